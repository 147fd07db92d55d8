"""Clocks are injected: no other module reads the time or sleeps."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a stage may ask of time."""

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; its zero means nothing."""

    def wall_s(self) -> float:
        """Seconds since the Unix epoch."""

    def sleep(self, duration_s: float) -> None:
        """Return after ``duration_s`` seconds."""


class SystemClock:
    """The machine's own clock."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)


class SimulatedClock:
    """A clock for tests: time passes only when somebody sleeps."""

    def __init__(self, start_s: float = 0.0) -> None:
        self.now_s = start_s

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += max(0.0, duration_s)
