"""Carries out what other threads ask of a running tracker, and answers once a frame has been tracked with it."""

from __future__ import annotations

import queue
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sam3_stream.core.errors import CapacityError, NotFoundError, PromptError
from sam3_stream.core.prompts import ExemplarPrompt, MaskPrompt, PointPrompt, Prompt, PromptEffect, TextPrompt
from sam3_stream.core.records import EncodedFrame, TrackedFrame
from sam3_stream.models.protocols import TrackingSession, VideoModel
from sam3_stream.stages.memory_tracker.combining import Target
from sam3_stream.stages.memory_tracker.prompt_schedule import PromptSchedule
from sam3_stream.stages.memory_tracker.recent_frames import RecentFrames
from sam3_stream.stages.memory_tracker.requests import AddPrompt, RemoveObject, RemovePrompt, Rename, Request

_MOST_REQUESTS = 256

# What a request may be refused for; the stream goes on undisturbed.
REFUSALS = (PromptError, CapacityError, NotFoundError)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A request that has been carried out, up to the step of the session that shows whether the model has it.

    Attributes:
        what: The request.
        effect: What its future is to give.
        future: Whoever asked waits for it.
    """

    what: Request
    effect: PromptEffect | int
    future: Future[Any]


class RequestDesk:
    """The requests of one tracker. They may come from any thread; all else is for the tracker's own.

    Args:
        model: For prompts on frames that have been seen.
        schedule: The prompts; changed.
        recent: The frames that a user may have seen; None where nobody sees any.
    """

    def __init__(self, model: VideoModel, schedule: PromptSchedule, recent: RecentFrames | None) -> None:
        self._model = model
        self._schedule = schedule
        self._recent = recent
        self._waiting: queue.SimpleQueue[tuple[Request, Future[Any]]] = queue.SimpleQueue()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self._waiting.empty()

    def ask(self, what: Request) -> Future[Any]:
        """Put in a request.

        Raises:
            CapacityError: Too many wait for a frame that does not come.
        """
        if self._waiting.qsize() >= _MOST_REQUESTS:
            raise CapacityError(f"{_MOST_REQUESTS} requests wait for the next frame already; none comes")
        future: Future[Any] = Future()
        self._waiting.put((what, future))
        return future

    def inherit(self, other: RequestDesk) -> None:
        """Take over what waits at another desk."""
        while not other._waiting.empty():
            self._waiting.put(other._waiting.get())

    def cancel(self) -> None:
        """Leave nobody waiting for a frame that does not come."""
        while not self._waiting.empty():
            self._waiting.get()[1].cancel()

    def take(self, encoded: EncodedFrame, last: TrackedFrame | None, session: TrackingSession) -> list[Asked]:
        """Carry out what waits; what cannot be done is refused at once.

        Args:
            encoded: The frame that is stepped next.
            last: The results before it.
            session: The running session.
        """
        taken: list[Asked] = []
        while not self._waiting.empty():
            what, future = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue  # whoever asked waits no more
            try:
                taken.append(Asked(what, self.carry_out(what, encoded, last, session), future))
            except REFUSALS as error:
                future.set_exception(error)
        return taken

    def carry_out(
        self, what: Request, encoded: EncodedFrame, last: TrackedFrame | None, session: TrackingSession
    ) -> PromptEffect | int:
        """Do it; what its future is to give.

        Raises:
            PromptError: It makes no sense.
            NotFoundError: It speaks of what is not there.
        """
        match what:
            case AddPrompt():
                return self._add(what, encoded, last)
            case RemoveObject():
                session.remove(what.object_id)
                self._schedule.remove_object(what.object_id)
            case RemovePrompt():
                target = self._schedule.remove(what.prompt_id)
                if target.object_id is not None:
                    session.remove(target.object_id)
                else:
                    session.remove_prompt(what.prompt_id)
            case Rename():
                self._schedule.labels[what.object_id] = what.label
        return encoded.frame.sequence

    def _add(self, what: AddPrompt, encoded: EncodedFrame, last: TrackedFrame | None) -> PromptEffect:
        frame = encoded.frame
        what.prompt.check_size(frame.width, frame.height)
        known = self._corrected(what, last)
        prompt = self._on_newest(what, known, encoded)
        moment = frame.time_s, (frame.width, frame.height)
        if what.replaces is not None:
            target = self._schedule.replace_now(what.replaces, prompt, *moment)
        elif known is not None and what.object_id is not None:
            target = known
            self._schedule.refine_now(prompt, *moment, target)
        else:
            target = self._schedule.add_now(prompt, *moment)
        return PromptEffect(target.prompt_id, target.object_id, frame.sequence)

    def _corrected(self, what: AddPrompt, last: TrackedFrame | None) -> Target | None:
        """What a prompt corrects; None when it begins something."""
        if what.object_id is None:
            return None if what.prompt.name is None else self._schedule.target_of_name(what.prompt.name)
        if _is_concept(what.prompt):
            raise PromptError("a phrase cannot correct an object; a click, a box or a mask can")
        given = self._schedule.target_of_object(what.object_id)
        if given is not None:
            return given
        for each in last.objects if last is not None else ():
            if each.object_id == what.object_id:
                return Target(each.object_id, each.prompt_id, each.label)
        raise NotFoundError(f"there is no object {what.object_id}; it may have been removed")

    def _on_newest(self, what: AddPrompt, known: Target | None, encoded: EncodedFrame) -> Prompt:
        """The prompt as it lies on the newest frame, if it was said on an earlier one."""
        if self._recent is None or what.seen is None or _is_concept(what.prompt):
            return what.prompt
        object_id = known.object_id if known is not None and what.replaces is None else None
        if object_id is not None and isinstance(what.prompt, PointPrompt):
            return self._recent.follow(what.prompt, what.seen, encoded)
        mask = self._recent.carry(self._model, what.prompt, object_id, what.seen, encoded)
        return what.prompt if mask is None else MaskPrompt(mask=mask, name=what.prompt.name)


def _is_concept(prompt: Prompt) -> bool:
    return isinstance(prompt, TextPrompt | ExemplarPrompt)
