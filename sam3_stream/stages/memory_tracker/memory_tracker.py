"""The memory tracker stage: steps one stream's session frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from sam3_stream.core.errors import PromptNotReachedError
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.prompts import Prompt, PromptEffect, SessionPrompt
from sam3_stream.core.records import EncodedFrame, Frame, TrackedFrame
from sam3_stream.models.protocols import LooksForObjects, SkipsFrames, TrackingSession, VideoModel
from sam3_stream.stages.memory_tracker.backward import EarlierMasks
from sam3_stream.stages.memory_tracker.checkpoints import Checkpoint, ResumePoint
from sam3_stream.stages.memory_tracker.prompt_schedule import Mark, PromptSchedule
from sam3_stream.stages.memory_tracker.recent_frames import RecentFrames
from sam3_stream.stages.memory_tracker.request_desk import REFUSALS, Asked, RequestDesk
from sam3_stream.stages.memory_tracker.request_journal import RequestJournal
from sam3_stream.stages.memory_tracker.requests import AddPrompt, RemoveObject, RemovePrompt, Rename


class Outbox(Protocol):
    """Where tracked frames go: a channel, or what passes them on to one."""

    def put(self, tracked: TrackedFrame, /) -> None:
        """Take the next frame; may wait."""


class Checkpoints(Protocol):
    """Where the session's state is kept from time to time."""

    def offer(self, next_sequence: int, take: Callable[[], Checkpoint], *, now: bool = False) -> None:
        """Save it, if it is time to.

        Args:
            next_sequence: Number of the frame that comes next.
            take: Gives the state.
            now: Something was asked, or this is the end.
        """


class MemoryTracker:
    """Carries the prompts of one stream through its frames with a model's tracking session.

    Args:
        model: Opens the session.
        prompts: Prompts known at the start; each takes effect on the first frame at or after its time.
        checkpoints: Where the session's state is kept from time to time, so that a killed run can resume.
        resume: Where an earlier run of the same job was; its results are passed on instead of being made again.
        earlier: Masks of the frames before each prompt, from a backward pass over the same frames.
        ids: Hands out the public object ids; the tracker's own when None.
        journal: Where requests are noted that came while the stream ran, and read again after a restart.
        schedule: The prompts, instead of `prompts`, where they outlive this tracker.
        recent: Keeps the last frames, for prompts on a frame that the user has seen.
        max_objects: Room for so many objects; the model's own limit when None.
    """

    name = "memory_tracker"

    def __init__(
        self,
        model: VideoModel,
        prompts: Sequence[Prompt] = (),
        *,
        checkpoints: Checkpoints | None = None,
        resume: ResumePoint | None = None,
        earlier: EarlierMasks | None = None,
        ids: ObjectIds | None = None,
        journal: RequestJournal | None = None,
        schedule: PromptSchedule | None = None,
        recent: RecentFrames | None = None,
        max_objects: int | None = None,
    ) -> None:
        for prompt in prompts:
            model.check_prompt(prompt)
        self._model = model
        self._ids = ids or ObjectIds()
        self._schedule = schedule or PromptSchedule(prompts, self._ids)
        self._recent = recent
        self._max_objects = max_objects
        self._checkpoints = checkpoints
        self._resume = resume
        self._earlier = earlier
        self._journal = journal
        self._session: TrackingSession | None = None
        self._last: TrackedFrame | None = None
        self._desk = RequestDesk(model, self._schedule, recent)

    def add(
        self, prompt: Prompt, *, object_id: int | None = None, replaces: str | None = None, seen: int | None = None
    ) -> Future[PromptEffect]:
        """Add a prompt to the running stream, from any thread.

        It takes effect on the next frame to be tracked, whatever its `time_s`.

        Args:
            prompt: What to say.
            object_id: The object that it corrects, which a phrase may have found.
            replaces: Id of a prompt whose place it takes; an object, or a phrase, keeps its id.
            seen: Number of the frame that the user was looking at: what was there then is found on the newest.

        Returns:
            A future of what has become of it. It raises `PromptError` when the prompt does not fit the picture or the
            model; the stream goes on undisturbed. It is cancelled when the stream ends first.
        """
        self._model.check_prompt(prompt)
        return self._desk.ask(AddPrompt(prompt, object_id, replaces, seen))

    def remove(self, object_id: int) -> Future[int]:
        """Remove an object from the running stream, from any thread; a future of the first frame without it."""
        return self._desk.ask(RemoveObject(object_id))

    def remove_prompt(self, prompt_id: str) -> Future[int]:
        """Take back a prompt, from any thread: its object, or all objects of a phrase, end.

        Returns:
            A future of the number of the first frame without them; it raises `NotFoundError` for an unknown id.
        """
        return self._desk.ask(RemovePrompt(prompt_id))

    def rename(self, object_id: int, label: str) -> Future[int]:
        """Call an object something else, from any thread; a future of the first frame that does."""
        return self._desk.ask(Rename(object_id, label))

    def inherit(self, other: MemoryTracker) -> None:
        """Take over what was asked of a tracker that takes no more frames."""
        self._desk.inherit(other._desk)

    @property
    def looking(self) -> LooksForObjects | None:
        """The running session if it looks for objects from time to time; for the tracker's own thread."""
        return _looking(self._session)

    def expects(self, frame: Frame) -> bool:
        """Whether a prompt or a request waits that is to take effect on this frame."""
        journalled = self._journal is not None and self._journal.expects(frame.sequence)
        return journalled or not self._desk.is_empty or self._schedule.expects(frame.time_s)

    def move(self, carried: TrackedFrame) -> None:
        """Tell the session, if it wants to know, where the objects are likely to be on the frame that comes next."""
        _move(self._session, carried)

    def status(self) -> dict[str, Any]:
        """The last frame's number and time, and its objects, in values that JSON knows; from any thread."""
        last = self._last
        if last is None:
            return {"sequence": None, "time_s": None, "objects": []}
        objects = [
            {"id": each.object_id, "label": each.label, "score": each.score, "present": each.present}
            for each in last.objects
        ]
        return {"sequence": last.frame.sequence, "time_s": last.frame.time_s, "objects": objects}

    def run(self, inbox: Iterable[EncodedFrame], outbox: Outbox) -> None:
        """Track every frame of the inbox.

        Raises:
            PromptNotReachedError: The stream ended before the time of a prompt.
        """
        session = self._session = self._model.open_session(self._ids.new, self._max_objects)
        try:
            if self._resume is not None:
                self._go_on(self._resume, session, inbox, outbox)
            else:
                self._offer_checkpoint(0, session)
            for encoded in inbox:
                tracked, asked = self._step(encoded, session)
                self._offer_checkpoint(encoded.frame.sequence + 1, session, now=asked)
                outbox.put(tracked)
            if self._last is not None:
                self._offer_checkpoint(self._last.frame.sequence + 1, session, now=True)
        finally:
            self._session = None
            session.close()
            self._desk.cancel()
        if self._schedule.pending:
            times = ", ".join(f"{prompt.time_s:g} s" for prompt in self._schedule.pending)
            raise PromptNotReachedError(f"the video ended before the time of a prompt was reached: {times}")

    def _offer_checkpoint(self, next_sequence: int, session: TrackingSession, *, now: bool = False) -> None:
        if self._checkpoints is not None:
            self._checkpoints.offer(
                next_sequence,
                lambda: Checkpoint(next_sequence, self._ids.last, session.snapshot(), self._schedule.snapshot()),
                now=now,
            )

    def _go_on(
        self,
        resume: ResumePoint,
        session: TrackingSession,
        inbox: Iterable[EncodedFrame],
        outbox: Outbox,
    ) -> None:
        """Take up the state of the checkpoint."""
        checkpoint = resume.checkpoint
        self._replay(resume, inbox, outbox)
        session.restore(checkpoint.state)
        self._ids.resume_after(checkpoint.last_object_id)
        self._schedule.restore(checkpoint.schedule)

    def _replay(self, resume: ResumePoint, inbox: Iterable[EncodedFrame], outbox: Outbox) -> None:
        """Pass on the recorded results of the frames before the checkpoint."""
        for row, encoded in zip(resume.recorded, inbox, strict=False):  # in this order: no frame too many is taken
            outbox.put(TrackedFrame(encoded.frame, row.objects, state=row.state))

    def _step(self, encoded: EncodedFrame, session: TrackingSession) -> tuple[TrackedFrame, bool]:
        """The results, and whether anything was asked that has taken effect."""
        frame = encoded.frame
        for what in self._journal.due(frame.sequence) if self._journal is not None else ():
            self._desk.carry_out(what, encoded, self._last, session)
        before = self._schedule.mark()
        asked = self._desk.take(encoded, self._last, session)
        try:
            tracked = session.step(encoded, self._due(frame))
        except REFUSALS as error:
            if not any(isinstance(each.what, AddPrompt) for each in asked):
                raise
            asked = self._without_prompts(asked, before, error, encoded, session)
            tracked = session.step(encoded, self._due(frame))
        tracked = self._schedule.relabelled(tracked)
        self._last = tracked = tracked if self._earlier is None else self._earlier.merge_into(tracked)
        if self._recent is not None:
            self._recent.note(encoded, tracked)
        for each in asked:
            if self._journal is not None:
                self._journal.note(frame.sequence, each.what)
            each.future.set_result(each.effect)
        return tracked, bool(asked)

    def _due(self, frame: Frame) -> list[SessionPrompt]:
        return self._schedule.due(frame.time_s, (frame.width, frame.height))

    def _without_prompts(
        self, asked: list[Asked], before: Mark, error: Exception, encoded: EncodedFrame, session: TrackingSession
    ) -> list[Asked]:
        """Refuse the prompts that the model would not have, as if they had never been said; the rest holds."""
        self._schedule.undo(before)
        kept = [each for each in asked if not isinstance(each.what, AddPrompt)]
        for each in asked:
            if isinstance(each.what, AddPrompt):
                each.future.set_exception(error)
        for each in kept:
            self._desk.carry_out(each.what, encoded, self._last, session)
        return kept


def _looking(session: object) -> LooksForObjects | None:
    return session if isinstance(session, LooksForObjects) else None


def _move(session: object, carried: TrackedFrame) -> None:
    if isinstance(session, SkipsFrames):
        session.move(carried)
