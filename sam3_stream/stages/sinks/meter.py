"""Watches what comes out of a stream."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.core.span_rate import SpanRate


class MeterSink:
    """Counts frames and notes the newest result; writes nothing. Its attributes may be read from any thread.

    Args:
        clock: The machine's own when None.

    Attributes:
        frames: How many frames have come.
        age_s: How long after its capture the newest came, in seconds; None before the first.
        objects: How many objects are present in it.
        resolution: (width, height) in pixels that the model saw when it ran last.
        states: How many frames have come, by how their masks came about.
    """

    name = "meter"

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._rate = SpanRate()
        self.frames = 0
        self.age_s: float | None = None
        self.objects = 0
        self.resolution: tuple[int, int] | None = None
        self.states: Counter[str] = Counter()

    @property
    def fps(self) -> float:
        """Frames per second, over the last seconds."""
        return self._rate.per_second(self._clock.monotonic_s())

    def check(self, source: Path | None = None) -> None:
        """There is nothing that could be wrong."""

    def open(self, info: StreamInfo, header: RunHeader) -> None:
        """There is nothing to open."""

    def write(self, tracked: TrackedFrame) -> None:
        self.frames += 1
        self._rate.count(self._clock.monotonic_s())
        capture_s = tracked.frame.capture_time_s
        self.age_s = None if capture_s is None else max(0.0, self._clock.wall_s() - capture_s)
        self.objects = len(tracked.present)
        self.resolution = tracked.resolution or self.resolution
        self.states[tracked.state] += 1

    def close(self) -> None:
        """There is nothing to close."""
