"""The memory tracker stage: steps one stream's session frame by frame."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from sam3_stream.core.errors import PromptError, PromptNotReachedError
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.prompts import Prompt
from sam3_stream.core.records import EncodedFrame, Frame, TrackedFrame
from sam3_stream.models.protocols import LooksForObjects, SkipsFrames, TrackingSession, VideoModel
from sam3_stream.stages.memory_tracker.backward import EarlierMasks
from sam3_stream.stages.memory_tracker.checkpoints import CheckpointStore, ResumePoint
from sam3_stream.stages.memory_tracker.prompt_schedule import PromptSchedule
from sam3_stream.stages.memory_tracker.request_journal import RequestJournal


class Outbox(Protocol):
    """Where tracked frames go: a channel, or what passes them on to one."""

    def put(self, tracked: TrackedFrame, /) -> None:
        """Take the next frame; may wait."""


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
    """

    name = "memory_tracker"

    def __init__(
        self,
        model: VideoModel,
        prompts: Sequence[Prompt] = (),
        *,
        checkpoints: CheckpointStore | None = None,
        resume: ResumePoint | None = None,
        earlier: EarlierMasks | None = None,
        ids: ObjectIds | None = None,
        journal: RequestJournal | None = None,
    ) -> None:
        for prompt in prompts:
            model.check_prompt(prompt)
        self._model = model
        self._ids = ids or ObjectIds()
        self._schedule = PromptSchedule(prompts, self._ids)
        self._checkpoints = checkpoints
        self._resume = resume
        self._earlier = earlier
        self._journal = journal
        self._session: TrackingSession | None = None
        self._last: TrackedFrame | None = None
        self._requests: queue.SimpleQueue[tuple[Prompt | int, Future[int]]] = queue.SimpleQueue()

    def add(self, prompt: Prompt) -> Future[int]:
        """Add a prompt to the running stream, from any thread.

        It takes effect on the next frame to be tracked, whatever its `time_s`.

        Returns:
            A future of the sequence number of the frame on which the prompt took effect. It raises `PromptError` when
            the prompt does not fit the picture or the model; the stream goes on undisturbed. It is cancelled when the
            stream ends first.
        """
        self._model.check_prompt(prompt)
        return self._request(prompt)

    def remove(self, object_id: int) -> Future[int]:
        """Remove an object from the running stream, from any thread; a future of the first frame without it."""
        return self._request(object_id)

    @property
    def looking(self) -> LooksForObjects | None:
        """The running session if it looks for objects from time to time; for the tracker's own thread."""
        return _looking(self._session)

    def expects(self, frame: Frame) -> bool:
        """Whether a prompt or a request waits that is to take effect on this frame."""
        journalled = self._journal is not None and self._journal.expects(frame.sequence)
        return journalled or not self._requests.empty() or self._schedule.expects(frame.time_s)

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
        session = self._session = self._model.open_session(self._ids.new)
        try:
            if self._resume is not None:
                self._go_on(self._resume, session, inbox, outbox)
            else:
                self._offer_checkpoint(0, session)
            for encoded in inbox:
                tracked = self._step(encoded, session)
                self._offer_checkpoint(encoded.frame.sequence + 1, session)
                outbox.put(tracked)
        finally:
            self._session = None
            session.close()
            self._cancel_requests()
        if self._schedule.pending:
            times = ", ".join(f"{prompt.time_s:g} s" for prompt in self._schedule.pending)
            raise PromptNotReachedError(f"the video ended before the time of a prompt was reached: {times}")

    def _cancel_requests(self) -> None:
        """Leave nobody waiting for a frame that does not come."""
        while not self._requests.empty():
            self._requests.get()[1].cancel()

    def _request(self, what: Prompt | int) -> Future[int]:
        future: Future[int] = Future()
        self._requests.put((what, future))
        return future

    def _offer_checkpoint(self, next_sequence: int, session: TrackingSession) -> None:
        if self._checkpoints is not None:
            self._checkpoints.offer(next_sequence, session, self._ids.last, self._schedule.snapshot())

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

    def _step(self, encoded: EncodedFrame, session: TrackingSession) -> TrackedFrame:
        frame = encoded.frame
        for what in self._journal.due(frame.sequence) if self._journal is not None else ():
            self._carry_out(what, frame, session)
        asked = self._take_requests(frame, session)
        due = self._schedule.due(frame.time_s)
        try:
            tracked = session.step(encoded, due)
        except PromptError as error:
            if not asked:
                raise
            for _, future in asked:
                future.set_exception(error)
            tracked = session.step(encoded, ())
            asked = []
        self._last = tracked = tracked if self._earlier is None else self._earlier.merge_into(tracked)
        for what, future in asked:
            if self._journal is not None:
                self._journal.note(frame.sequence, what)
            future.set_result(frame.sequence)
        return tracked

    def _take_requests(self, frame: Frame, session: TrackingSession) -> list[tuple[Prompt | int, Future[int]]]:
        """Carry out what other threads asked for; what it was, with the futures to answer once the frame is stepped."""
        taken: list[tuple[Prompt | int, Future[int]]] = []
        while not self._requests.empty():
            what, future = self._requests.get()
            try:
                self._carry_out(what, frame, session)
            except PromptError as error:
                future.set_exception(error)
            else:
                taken.append((what, future))
        return taken

    def _carry_out(self, what: Prompt | int, frame: Frame, session: TrackingSession) -> None:
        if isinstance(what, int):
            session.remove(what)
        else:
            what.check_size(frame.width, frame.height)
            self._schedule.add_now(what, frame.time_s)


def _looking(session: object) -> LooksForObjects | None:
    return session if isinstance(session, LooksForObjects) else None


def _move(session: object, carried: TrackedFrame) -> None:
    if isinstance(session, SkipsFrames):
        session.move(carried)
