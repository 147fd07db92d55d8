"""From what a viewer reports to the rendition that its line can carry."""

from __future__ import annotations

from collections.abc import Sequence

_DOWN_LOSS, _DOWN_REPORTS = 0.10, 2
_DOWN_SHARE = 0.8
_UP_LOSS = 0.02
_UP_WAIT_S = 4.0
_MOST_WAIT_S = 64.0


class RenditionChoice:
    """Goes down when the line is too thin or loses packets, and up again, later and later where that fails.

    Args:
        bit_rates: Bits per second of the renditions, best first.

    Attributes:
        index: The rendition to give, 0 is the best.
    """

    def __init__(self, bit_rates: Sequence[int]) -> None:
        self._bit_rates = tuple(bit_rates)
        self._bad_reports = 0
        self._good_since_s: float | None = None
        self._wait_s = _UP_WAIT_S
        self._went_up_s: float | None = None
        self.index = 0

    def estimate(self, now_s: float, bits_per_second: float) -> int:
        """Take the viewer's estimate of its bandwidth (REMB); the rendition to give.

        A viewer's estimate follows what it is sent, so it says little above that: it counts only when it is short.
        """
        if bits_per_second < _DOWN_SHARE * self._bit_rates[self.index]:
            self._bad(now_s)
        return self.index

    def report(self, now_s: float, fraction_lost: float) -> int:
        """Take a receiver report (RFC 3550); the rendition to give.

        Args:
            now_s: Now, on a monotonic clock.
            fraction_lost: Share of the packets lost since the last report.
        """
        if fraction_lost > _DOWN_LOSS:
            self._bad(now_s)
        elif fraction_lost <= _UP_LOSS:
            self._good(now_s)
        return self.index

    def _bad(self, now_s: float) -> None:
        self._good_since_s = None
        self._bad_reports += 1
        if self._bad_reports < _DOWN_REPORTS or self.index == len(self._bit_rates) - 1:
            return
        self.index += 1
        self._bad_reports = 0
        if self._went_up_s is not None and now_s - self._went_up_s < 2 * self._wait_s:
            self._wait_s = min(_MOST_WAIT_S, 2 * self._wait_s)  # it was too early

    def _good(self, now_s: float) -> None:
        self._bad_reports = 0
        if self._good_since_s is None:
            self._good_since_s = now_s
        if self.index > 0 and now_s - self._good_since_s >= self._wait_s:
            self.index -= 1
            self._good_since_s, self._went_up_s = now_s, now_s
