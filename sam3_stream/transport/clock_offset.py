"""How far another machine's clock is ahead of ours, from the times at which messages went to and fro."""

from __future__ import annotations

from collections import deque

_KEPT = 16


class ClockOffset:
    """Estimates the offset as NTP does (RFC 5905, section 8): by the exchange with the shortest round trip of late."""

    def __init__(self) -> None:
        self._exchanges: deque[tuple[float, float]] = deque(maxlen=_KEPT)

    def observe(self, asked_s: float, heard_s: float, answered_s: float, arrived_s: float) -> None:
        """Note an exchange.

        Args:
            asked_s: When we asked, on our clock.
            heard_s: When they heard it, on their clock.
            answered_s: When they answered, on their clock.
            arrived_s: When the answer arrived, on our clock.
        """
        round_trip_s = (arrived_s - asked_s) - (answered_s - heard_s)
        if round_trip_s >= 0:
            self._exchanges.append((round_trip_s, ((heard_s - asked_s) + (answered_s - arrived_s)) / 2))

    @property
    def offset_s(self) -> float:
        """Seconds that their clock is ahead; 0 before the first exchange."""
        return min(self._exchanges)[1] if self._exchanges else 0.0

    @property
    def uncertainty_s(self) -> float:
        """The true offset is within so many seconds of `offset_s`."""
        return min(self._exchanges)[0] / 2 if self._exchanges else float("inf")

    @property
    def matters(self) -> bool:
        """Whether the offset is more than the uncertainty of its measurement."""
        return abs(self.offset_s) > self.uncertainty_s
