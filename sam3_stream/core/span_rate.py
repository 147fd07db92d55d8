"""Frames per second of a live stream."""

from __future__ import annotations

from collections import deque


class SpanRate:
    """Pictures per second, counted over a span, so that a long gap before each key frame does no harm.

    One thread counts; any may ask.

    Args:
        span_s: Length of the span in seconds.
    """

    def __init__(self, span_s: float = 5.0) -> None:
        self._span_s = span_s
        self._times_s: deque[float] = deque(maxlen=1000)
        self._since_s: float | None = None

    def count(self, now_s: float) -> None:
        """Count a picture, at this time on a monotonic clock."""
        if self._since_s is None:
            self._since_s = now_s
        self._times_s.append(now_s)

    def per_second(self, now_s: float) -> float:
        """The rate over the span that ends now; 0 before the first picture."""
        if self._since_s is None:
            return 0.0
        span_s = min(self._span_s, now_s - self._since_s)
        counted = sum(time_s > now_s - self._span_s for time_s in list(self._times_s))
        return counted / span_s if span_s > 0 else 0.0
