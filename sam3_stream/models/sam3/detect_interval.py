"""How often the detector looks, in frames or in stream time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sam3_stream.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DetectInterval:
    """Every so many frames, or every so many milliseconds of stream time. Exactly one of the two is set.

    Attributes:
        frames: Look on every so many-th frame.
        ms: Look on the first frame after so many milliseconds.
    """

    frames: int | None = None
    ms: float | None = None

    def __post_init__(self) -> None:
        if (self.frames is None) == (self.ms is None):
            raise ConfigError("a detection interval is given in frames or in milliseconds, exactly one of the two")
        if self.frames is not None and self.frames < 1:
            raise ConfigError(f"a detection interval must be 1 frame or more, got {self.frames}")
        if self.ms is not None and not (math.isfinite(self.ms) and self.ms > 0):
            raise ConfigError(f"a detection interval must be a positive number of milliseconds, got {self.ms}")

    @classmethod
    def parse(cls, value: int | str) -> DetectInterval:
        """Read what a config says: ``4`` or ``"4"`` for frames, ``"250ms"`` for milliseconds.

        Raises:
            ConfigError: It is neither.
        """
        text = str(value).strip()
        try:
            if text.endswith("ms"):
                return cls(ms=float(text.removesuffix("ms")))
            return cls(frames=int(text))
        except ValueError:
            raise ConfigError(
                f"detect_interval must be a number of frames such as 4, or milliseconds such as 250ms, got {text!r}"
            ) from None


class DetectSchedule:
    """Says on which frames of one stream the detector looks.

    In milliseconds the looks keep their average rate whatever the frame rate, and after a gap the next frame is looked
    at once, not once for every interval that was missed.

    Attributes:
        interval: May be changed at any time.
    """

    def __init__(self, interval: DetectInterval) -> None:
        self.interval = interval
        self._frames = 0
        self._last_s: float | None = None
        self._due_s = -math.inf

    def is_due(self, time_s: float) -> bool:
        """Whether the detector looks at the frame at this stream time; to be called once for every frame."""
        self._frames += 1
        if self.interval.frames is not None:
            return self._last_s is None or self._frames >= self.interval.frames
        backwards = self._last_s is not None and time_s < self._last_s
        return self._last_s is None or backwards or time_s >= self._due_s - 1e-6

    def looked(self, time_s: float) -> None:
        """The detector has looked at the frame at this time, whether or not it was due."""
        self._frames = 0
        if self.interval.ms is not None:
            interval_s = self.interval.ms / 1000
            on_time = self._due_s <= time_s < self._due_s + interval_s
            self._due_s = (self._due_s if on_time else time_s) + interval_s
        self._last_s = time_s

    def state(self) -> tuple[float, float, float]:
        """All it knows as numbers; NaN for never."""
        return float(self._frames), math.nan if self._last_s is None else self._last_s, self._due_s

    def restore(self, state: tuple[float, float, float]) -> None:
        """Become the schedule that gave this `state`."""
        frames, last_s, self._due_s = state
        self._frames, self._last_s = int(frames), None if math.isnan(last_s) else last_s
