"""Surplus source frames are thinned out evenly, by their own time stamps."""

from __future__ import annotations

from collections import deque

_SPAN_FRAMES = 64
_SPAN_S = 3.0
_MAX_DEBT_S = 0.5
_CATCH_UP = 1.5


class Decimator:
    """Lets frames through at a rate, as evenly as the source allows, and counts the source's own rate.

    After a gap in the source it lets more frames through for a while, at most 1.5 times the rate, so that the rate
    over some seconds is kept; what is owed from more than half a second ago is forgotten.
    """

    def __init__(self) -> None:
        self._times_s: deque[float] = deque(maxlen=_SPAN_FRAMES)
        self._due_s: float | None = None
        self._earliest_s = 0.0
        self.dropped = 0

    @property
    def source_fps(self) -> float | None:
        """The source's rate counted over its last frames (3 s or 64 frames); None until two have come."""
        if len(self._times_s) < 2:
            return None
        span_s = self._times_s[-1] - self._times_s[0]
        return (len(self._times_s) - 1) / span_s if span_s > 0 else None

    def admit(self, time_s: float, rate_fps: float) -> bool:
        """Whether a source frame of this time goes on; `dropped` counts those that do not.

        Args:
            time_s: The frame's own time in seconds; may jump, also back.
            rate_fps: Frames a second to let through.
        """
        self._count(time_s)
        interval_s = 1.0 / rate_fps
        if self._due_s is None:
            self._due_s = self._earliest_s = time_s
        self._due_s = max(self._due_s, time_s - _MAX_DEBT_S)
        tolerance_s = 0.5 / self.source_fps if self.source_fps else 0.0
        if time_s < max(self._due_s, self._earliest_s) - tolerance_s:
            self.dropped += 1
            return False
        self._earliest_s = max(self._earliest_s, time_s - tolerance_s) + interval_s / _CATCH_UP
        self._due_s += interval_s
        return True

    def _count(self, time_s: float) -> None:
        if self._times_s and not 0 <= time_s - self._times_s[-1] <= _SPAN_S:
            self._times_s.clear()  # stream time jumped: start over
            self._due_s = None
        self._times_s.append(time_s)
        while time_s - self._times_s[0] > _SPAN_S:
            self._times_s.popleft()
