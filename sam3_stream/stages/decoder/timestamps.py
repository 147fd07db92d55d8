"""Time stamps that every later stage may rely on: present, and strictly increasing."""

from __future__ import annotations

from fractions import Fraction


class TimestampRepair:
    """Passes good time stamps on as they are and repairs the others.

    A missing one is counted on from the last by the nominal frame duration. One that does not increase becomes the last
    one plus 1. When the stream jumps back by more than a second (joined files, a counter that wrapped), all from there
    on are shifted to go on where the stream was.

    Args:
        time_base: Seconds per unit.
        frame_duration_s: Nominal, in seconds.
    """

    def __init__(self, time_base: Fraction, frame_duration_s: Fraction) -> None:
        self._step = max(Fraction(1), frame_duration_s / time_base)
        self._jump = Fraction(1) / time_base
        self._last: int | None = None
        self._known = 0
        self._missing = 0
        self._shift = 0
        self.repaired = False

    def __call__(self, pts: int | None) -> int:
        """The time stamp to use for the next frame in display order, given the stream's own."""
        if pts is None:
            good = self._count_on()
        else:
            good = self._increase(pts + self._shift)
            self._known, self._missing = good, 0
        self.repaired |= good != pts
        self._last = good
        return good

    def _count_on(self) -> int:
        if self._last is None:
            return 0
        self._missing += 1
        return max(self._last + 1, self._known + round(self._missing * self._step))

    def _increase(self, pts: int) -> int:
        if self._last is None or pts > self._last:
            return pts
        if self._last - pts > self._jump:
            good = self._last + round(self._step)
            self._shift += good - pts
            return good
        return self._last + 1
