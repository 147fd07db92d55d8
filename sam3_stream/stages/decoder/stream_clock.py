"""The time of a live stream, which goes forward whatever the camera's clock does."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

_TICKS_PER_S = 90_000
STREAM_TIME_BASE = Fraction(1, _TICKS_PER_S)

# How fast a lag is forgotten: a camera's clock that runs a little slow must not make it grow for ever.
_FORGET_LAG = 1e-3


@dataclass(frozen=True, slots=True)
class StreamTime:
    """When a picture belongs into its stream.

    Attributes:
        pts: Stream time in units of `STREAM_TIME_BASE`, from 0, strictly increasing over all connections.
        epoch: Counts the discontinuities so far: pictures of one epoch were timed by one run of the camera's clock.
    """

    pts: int
    epoch: int


class StreamClock:
    """Turns the time stamps of a camera into a time that starts at 0 and only goes forward.

    Within an epoch the distances are the camera's own, so that network jitter does not show. A stamp that falls back,
    or leaps ahead of what has passed here, by more than `tolerance_s` (a reset, a wrap, a jump of hours) begins a new
    epoch, as a new connection does: stream time then goes on by what has passed here since the last picture. Stamps
    that fall back by less are nudged forward; missing ones are replaced by what has passed here.

    Stamps may lag behind at will, and catch up in a burst: after a stall the network hands over late what was sent in
    time, and a new connection begins with what was sent before.

    Args:
        tolerance_s: By how much a camera's stamps may disagree with the clock here, jitter included, in seconds.
    """

    def __init__(self, tolerance_s: float = 1.0) -> None:
        self._tolerance_s = tolerance_s
        self._epoch = 0
        self._last_pts: int | None = None
        self._last_arrival_s = 0.0
        self._shift: int | None = None
        self._lag_s = 0.0

    def reconnected(self) -> None:
        """Say that what follows comes over another connection."""
        if self._last_pts is not None:
            self._begin_epoch()

    def __call__(self, pts: int | None, time_base: Fraction, arrival_s: float) -> StreamTime:
        """The stream time of the next picture.

        Args:
            pts: The stream's own stamp; None when it carries none.
            time_base: Seconds per unit of `pts`.
            arrival_s: When it arrived, on a monotonic clock.
        """
        # Whole ticks: fractions would cost more than all the rest.
        stamp = None if pts is None else pts * time_base.numerator * _TICKS_PER_S // time_base.denominator
        if self._last_pts is None:
            self._last_pts = 0
        else:
            elapsed_s = max(0.0, arrival_s - self._last_arrival_s)
            self._last_pts = self._next(stamp, elapsed_s, self._last_pts)
        if stamp is not None and self._shift is None:
            self._shift = self._last_pts - stamp
        self._last_arrival_s = arrival_s
        return StreamTime(self._last_pts, self._epoch)

    def _next(self, stamp: int | None, elapsed_s: float, last_pts: int) -> int:
        by_arrival = last_pts + max(1, round(elapsed_s * _TICKS_PER_S))
        if stamp is None or self._shift is None:
            return by_arrival
        by_stamp = stamp + self._shift
        advance_s = (by_stamp - last_pts) / _TICKS_PER_S
        if advance_s < -self._tolerance_s or advance_s - elapsed_s - self._lag_s > self._tolerance_s:
            self._begin_epoch()
            return by_arrival
        self._lag_s = max(0.0, self._lag_s + (1 - _FORGET_LAG) * elapsed_s - advance_s)
        return max(by_stamp, last_pts + 1)

    def _begin_epoch(self) -> None:
        self._epoch += 1
        self._shift = None
        self._lag_s = 0.0
