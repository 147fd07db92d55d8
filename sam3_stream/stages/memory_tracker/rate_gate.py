"""Stands before a memory tracker and holds a frame rate: decides what the model sees, and at which resolution.

::

    source ─▶ Intake ─▶ RateGate ─┬─ encode ─▶ MemoryTracker ─▶ RateGate.put ─┬▶ outbox
                                  └──────── masks carried by MaskCarrier ─────┘

All behind the intake happens in one thread, frame by frame.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sam3_stream.config.rate import RateConfig
from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.records import EncodedFrame, Frame, RateFacts, TrackedFrame
from sam3_stream.models.protocols import Resolution, VideoModel
from sam3_stream.runtime.decimator import Decimator
from sam3_stream.runtime.rate_controller import RateController
from sam3_stream.runtime.rate_records import Decision, Observation
from sam3_stream.runtime.rate_settings import RateSettings, queue_frames
from sam3_stream.runtime.shared_load import SharedLoad
from sam3_stream.stages.memory_tracker.intake import Intake
from sam3_stream.stages.memory_tracker.mask_carrier import MaskCarrier
from sam3_stream.stages.memory_tracker.memory_tracker import MemoryTracker, Outbox

_log = logging.getLogger(__name__)

_FILE_CAPACITY = 2
_LOOK_LESS = (1, 2, 4)  # times the session's own interval

Encode = Callable[[Frame, Resolution | None], tuple[EncodedFrame, float]]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A frame that the model works on."""

    decision: Decision
    arrived_s: float
    prompted: bool
    began_s: float
    moved_s: float = 0.0


class RateGate:
    """Decides on every frame of one stream: `track` it, carry masks to it, or drop it.

    Args:
        config: The target and its limits; `target_fps` must be set.
        model: Says which resolutions it offers. Resolutions that `min_resolution` leaves none of raise `ConfigError`
            with the first frame.
        encode: Encodes a frame at a resolution; gives the features, and when the model began with them. None: `model`
            does, at once.
        live: Whether the source cannot wait: surplus frames are decimated, late ones dropped. Without it every frame
            goes through, once and in order, however long that takes.
        stream_id: Name for the log, and in `shared`.
        shared: What the streams that share a model know of each other.
        clock: The machine's own when None.

    Attributes:
        facts: The setting in force; None before the first frame.
        changes: How often the setting has changed.
        encode_s: Seconds spent on encoding so far, waiting for a turn included.
        track_s: Seconds spent on tracking so far.
        dropped: Frames that did not come out, by reason: ``decimated`` (the source gives more than the target),
            ``late`` (could not be in time).
    """

    def __init__(
        self,
        config: RateConfig,
        model: VideoModel,
        encode: Encode | None = None,
        *,
        live: bool,
        stream_id: str = "",
        shared: SharedLoad | None = None,
        clock: Clock | None = None,
    ) -> None:
        assert config.target_fps is not None
        self._config = config
        self._target_fps = config.target_fps
        self._model = model
        self._clock = clock or SystemClock()
        self._encode = encode or self._encode_now
        self._live = live
        self._stream_id = stream_id
        self._shared = shared or SharedLoad()
        self._decimator = Decimator()
        self._admit_fps = self._target_fps
        self._controller: RateController | None = None
        self._offered: tuple[Resolution, ...] = ()
        self._carrier = MaskCarrier(config.carry)
        self._intake: Intake | None = None
        self._begun: _Begun | None = None
        self._late = 0
        self._encoded_s = 0.0
        self.facts: RateFacts | None = None
        self.changes = 0
        self.encode_s = 0.0
        self.track_s = 0.0

    @property
    def dropped(self) -> Counter[str]:
        """Frames that did not come out, by reason."""
        late = self._late + (0 if self._intake is None else self._intake.dropped)
        return Counter(decimated=self._decimator.dropped, late=late)

    @property
    def waiting(self) -> int:
        """How many frames wait."""
        return 0 if self._intake is None else self._intake.waiting

    def check(self, width: int, height: int) -> None:
        """Raise `ConfigError` unless the limits leave the model something for pictures of this size."""
        self._settings(tuple(self._model.resolutions(width, height)), None)

    def take_in(self, inbox: Iterable[Frame]) -> Generator[Frame, None, None]:
        """The frames of the inbox that are not surplus, oldest first, for `select`. To be closed if not used up."""
        capacity = _FILE_CAPACITY
        if self._live:
            capacity = queue_frames(self._target_fps, self._max_latency_s)
        self._intake = Intake(inbox, capacity, live=self._live, admit=self._admits, clock=self._clock)
        try:
            yield from self._intake
        finally:
            self._shared.leave(self._stream_id)

    def select(self, frames: Iterable[Frame], tracker: MemoryTracker, outbox: Outbox) -> Iterator[EncodedFrame]:
        """The frames that the tracker is to step, encoded; the others go to the outbox with carried masks, or nowhere.

        Args:
            frames: Of one session, from `take_in`.
            tracker: Runs the session; asked what waits for a frame, told what was carried.
            outbox: Where frames with carried masks go.
        """
        self._carrier = MaskCarrier(self._config.carry)
        for frame in frames:
            encoded = self._begin(frame, tracker, outbox)
            if encoded is not None:
                yield encoded

    def put(self, tracked: TrackedFrame, tracker: MemoryTracker, outbox: Outbox) -> None:
        """Take what the tracker made of the frame that `select` gave last, learn from it, and pass it on."""
        begun = self._begun
        assert begun is not None
        self.track_s += self._clock.monotonic_s() - self._encoded_s
        self._carrier.start(tracked)
        looking = tracker.looking
        self._learn(begun, tracked, None if looking is None else looking.looked)
        outbox.put(replace(tracked, rate=self.facts))

    def _admits(self, frame: Frame) -> bool:
        return not self._live or self._decimator.admit(frame.time_s, self._admit_fps)

    @property
    def _max_latency_s(self) -> float:
        return self._config.max_latency_ms / 1000 if self._live else math.inf

    def _begin(self, frame: Frame, tracker: MemoryTracker, outbox: Outbox) -> EncodedFrame | None:
        assert self._intake is not None
        controller = self._controller_for(frame, tracker)
        arrived_s, now_s = self._intake.arrived_s, self._clock.monotonic_s()
        prompted = tracker.expects(frame) or not self._carrier.ready
        waiting = self._intake.waiting if self._live else 0
        decision = controller.decide(now_s, arrived_s, waiting=waiting, prompted=prompted)
        self._apply(decision)
        begun = _Begun(decision, arrived_s, prompted, now_s)
        if decision.action == "carry":
            carried = self._carrier.carry(frame)
            self._learn(begun, carried, None)
            outbox.put(replace(carried, rate=self.facts))
            return None
        if decision.action == "drop" and self._live:
            self._late += 1
            return None
        moved_s = self._move(frame, tracker) if self._carrier.age else 0.0
        if (looking := tracker.looking) is not None and looking.look_every is not None:
            looking.look_every = decision.setting.detection_interval
        before_s = self._clock.monotonic_s() - now_s
        encoded, encode_began_s = self._encode(frame, decision.setting.resolution)
        self._encoded_s = self._clock.monotonic_s()
        self.encode_s += self._encoded_s - now_s
        began_s = max(now_s, encode_began_s - before_s)  # waiting for a turn is no work
        self._begun = replace(begun, began_s=began_s, moved_s=moved_s)
        return encoded

    def _move(self, frame: Frame, tracker: MemoryTracker) -> float:
        """Carry masks to a frame that the model is to see after skipped ones; the seconds that took."""
        began_s = self._clock.monotonic_s()
        tracker.move(self._carrier.carry(frame))
        return self._clock.monotonic_s() - began_s

    def _encode_now(self, frame: Frame, resolution: Resolution | None) -> tuple[EncodedFrame, float]:
        began_s = self._clock.monotonic_s()
        return self._model.encode([frame], resolution)[0], began_s

    def _controller_for(self, frame: Frame, tracker: MemoryTracker) -> RateController:
        """The controller; a new one when the picture's size has changed so that other resolutions fit."""
        offered = tuple(self._model.resolutions(frame.width, frame.height))
        if self._controller is None or offered != self._offered:
            self._offered = offered
            settings = self._settings(offered, None if tracker.looking is None else tracker.looking.look_every)
            self._controller = RateController(settings, self._stream_id, self._shared)
        return self._controller

    def _settings(self, offered: Sequence[Resolution], look_every: int | None) -> RateSettings:
        return RateSettings(
            target_fps=self._target_fps,
            resolutions=offered,
            detection_intervals=(1,) if look_every is None else [look_every * times for times in _LOOK_LESS],
            min_resolution=self._config.min_resolution,
            max_skip=self._config.max_skip,
            max_latency_s=self._max_latency_s,
            give_up=self._config.give_up,
        )

    def _apply(self, decision: Decision) -> None:
        setting = decision.setting
        facts = RateFacts(
            setting.resolution, setting.tracked, setting.of, setting.detection_interval, not decision.impossible
        )
        self.changes += self.facts not in (None, facts)
        self.facts = facts
        self._admit_fps = decision.admit_fps
        if decision.reason is not None:
            level = logging.WARNING if decision.impossible else logging.INFO
            _log.log(level, "stream %s: %s", self._stream_id, decision.reason)

    def _learn(self, begun: _Begun, result: TrackedFrame, looked: bool | None) -> None:
        assert self._controller is not None
        finished_s = self._clock.monotonic_s()
        tracked = result.state == "tracked"
        self._controller.observe(
            Observation(
                arrived_s=begun.arrived_s,
                started_s=begun.began_s,
                finished_s=finished_s,
                service_s={"model": finished_s - begun.began_s - begun.moved_s},
                moved_s=begun.moved_s,
                state=result.state,
                resolution=result.resolution if tracked else None,
                detected=looked if tracked else None,
                objects=len(result.objects),
                prompted=begun.prompted,
                source_fps=self._decimator.source_fps if self._live else None,
            )
        )
