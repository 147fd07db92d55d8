"""The memory tracker of a live stream: takes the newest frame when it is free, and starts anew when it must."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import PromptNotReachedError
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.prompts import Prompt, PromptEffect
from sam3_stream.core.records import EncodedFrame, Frame, TrackedFrame
from sam3_stream.models.protocols import VideoModel
from sam3_stream.runtime.channel import Channel
from sam3_stream.stages.memory_tracker.live_state import LiveState
from sam3_stream.stages.memory_tracker.memory_tracker import MemoryTracker
from sam3_stream.stages.memory_tracker.prompt_schedule import GivenPrompts, PromptSchedule
from sam3_stream.stages.memory_tracker.rate_controlled_tracker import run_gated
from sam3_stream.stages.memory_tracker.rate_gate import RateGate
from sam3_stream.stages.memory_tracker.recent_frames import RecentFrames


class LiveTracker:
    """Encodes and tracks one frame after the other, each the newest there is.

    Objects keep their ids through a short outage. When the picture's size changes, or the outage was longer than
    `max_gap_s`, nobody can say that what is seen now is what was seen before: then the session starts anew, all prompts
    are given again (scaled to the new size), the objects get new ids, and the frame is marked as a discontinuity.

    Args:
        model: Opens the sessions.
        encode: Encodes a frame; may wait for its turn on a model that is shared.
        prompts: Prompts known at the start, in pixels of the first frame.
        max_gap_s: How long an outage may be for ids to survive it, in seconds.
        rate: Holds a frame rate; it then encodes, instead of `encode`. Without it the stream is tracked as it comes.
        state: Where the objects and what was said of them are kept, so that they outlive the process.
        recent_frames: How many frames are kept for prompts on a frame that the user has seen; 0 for none.
        max_objects: Room for so many objects; the model's own limit when None.
        clock: For the times that stages take; the machine's own when None.

    Attributes:
        encode_s: Seconds spent encoding so far, waiting for a turn included.
        track_s: Seconds spent tracking so far.
    """

    name = "memory_tracker"

    def __init__(
        self,
        model: VideoModel,
        encode: Callable[[Frame], EncodedFrame],
        prompts: Sequence[Prompt] = (),
        *,
        max_gap_s: float = 30.0,
        rate: RateGate | None = None,
        state: LiveState | None = None,
        recent_frames: int = 0,
        max_objects: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        for prompt in prompts:
            model.check_prompt(prompt)
        self._model = model
        self._encode = encode
        self._max_gap_s = max_gap_s
        self._ids = ObjectIds()
        self._lock = threading.Lock()
        self._schedule = PromptSchedule(prompts, self._ids)
        self._state = state
        self._recent_frames = recent_frames
        self._max_objects = max_objects
        self._size: tuple[int, int] | None = None
        self._last_time_s = 0.0
        self._sessions = 0
        self._tracker = MemoryTracker(model, ids=self._ids, schedule=self._schedule)
        self._rate = rate
        self._clock = clock or SystemClock()
        self._encoded_s = 0.0
        self.encode_s = 0.0
        self.track_s = 0.0

    @property
    def restarts(self) -> int:
        """How often the session had to start anew."""
        return max(0, self._sessions - 1)

    @property
    def given(self) -> tuple[GivenPrompts, ...]:
        """What has been said and still holds. From any thread."""
        return self._schedule.given

    def add(
        self, prompt: Prompt, *, object_id: int | None = None, replaces: str | None = None, seen: int | None = None
    ) -> Future[PromptEffect]:
        """Add a prompt to the running stream, as `MemoryTracker.add` does; new sessions are given it, too."""
        with self._lock:
            return self._tracker.add(prompt, object_id=object_id, replaces=replaces, seen=seen)

    def remove(self, object_id: int) -> Future[int]:
        """Remove an object from the running stream, as `MemoryTracker.remove` does; new sessions go without it."""
        with self._lock:
            return self._tracker.remove(object_id)

    def remove_prompt(self, prompt_id: str) -> Future[int]:
        """Take back a prompt, as `MemoryTracker.remove_prompt` does."""
        with self._lock:
            return self._tracker.remove_prompt(prompt_id)

    def rename(self, object_id: int, label: str) -> Future[int]:
        """Call an object something else, as `MemoryTracker.rename` does."""
        with self._lock:
            return self._tracker.rename(object_id, label)

    def status(self) -> dict[str, Any]:
        """See `MemoryTracker.status`."""
        with self._lock:
            return self._tracker.status()

    @property
    def rate(self) -> RateGate | None:
        """What holds the frame rate; None when nothing does."""
        return self._rate

    def run(self, inbox: Iterable[Frame], outbox: Channel[TrackedFrame]) -> None:
        """Track frames until there are no more.

        Raises:
            PromptError: A prompt known at the start does not fit the stream's first picture.
        """
        if self._rate is None:
            self._run_sessions(inbox, outbox)
        else:
            with contextlib.closing(self._rate.take_in(inbox)) as taken_in:
                self._run_sessions(taken_in, outbox)

    def _run_sessions(self, inbox: Iterable[Frame], outbox: Channel[TrackedFrame]) -> None:
        for session, frames in itertools.groupby(inbox, self._session_of):
            first = next(frames)
            size = (first.width, first.height)
            with self._lock:
                begun = self._begin_session(session, size)
                begun.inherit(self._tracker)
                self._tracker = begun
            if session > 1:
                first = replace(first, discontinuity=True)
            frames = itertools.chain([first], frames)
            with contextlib.suppress(PromptNotReachedError):  # a live stream may end at any time
                self._run_session(frames, outbox)

    def _begin_session(self, session: int, size: tuple[int, int]) -> MemoryTracker:
        resume = None
        if self._state is not None:
            self._state.begin(size)
        if session > 1:
            self._schedule.begin_again(size)
        elif self._state is not None:
            resume = self._state.load()
        if session == 1 and resume is None:
            self._schedule.check_size(*size)
        return MemoryTracker(
            self._model,
            ids=self._ids,
            schedule=self._schedule,
            checkpoints=self._state,
            resume=resume,
            recent=RecentFrames(self._recent_frames) if self._recent_frames else None,
            max_objects=self._max_objects,
        )

    def _run_session(self, frames: Iterable[Frame], outbox: Channel[TrackedFrame]) -> None:
        outlet = _Outlet(lambda tracked: self._pass_on(tracked, outbox))
        if self._rate is not None:
            run_gated(self._tracker, self._rate, frames, outlet)
        else:
            self._tracker.run((self._timed_encode(frame) for frame in frames), outlet)

    def _timed_encode(self, frame: Frame) -> EncodedFrame:
        started_s = self._clock.monotonic_s()
        encoded = self._encode(frame)
        self._encoded_s = self._clock.monotonic_s()
        self.encode_s += self._encoded_s - started_s
        return encoded

    def _pass_on(self, tracked: TrackedFrame, outbox: Channel[TrackedFrame]) -> None:
        if self._rate is None:
            self.track_s += self._clock.monotonic_s() - self._encoded_s
        else:
            self.encode_s, self.track_s = self._rate.encode_s, self._rate.track_s
        outbox.put(tracked)

    def _session_of(self, frame: Frame) -> int:
        """Number of the session that a frame belongs to, from 1."""
        size = (frame.width, frame.height)
        gap_s, self._last_time_s = frame.time_s - self._last_time_s, frame.time_s
        if self._size != size or gap_s > self._max_gap_s:
            self._size = size
            self._sessions += 1
        return self._sessions


class _Outlet:
    """Where the tracker of a session puts its frames."""

    def __init__(self, put: Callable[[TrackedFrame], None]) -> None:
        self.put = put
