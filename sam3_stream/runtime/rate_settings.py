"""What the rate controller may do: the user's target and limits, and the ladder of settings that follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sam3_stream.core.errors import ConfigError

Lever = Literal["detection", "resolution", "skip"]
Resolution = tuple[int, int]

_BURST_S = 0.4
_SKIP_PATTERNS = ((3, 4), (2, 3), (1, 2))  # finer steps near full quality; after them 1/3, 1/4, … by max_skip


@dataclass(frozen=True, slots=True)
class Setting:
    """One rung of the ladder.

    Attributes:
        resolution: (width, height) in pixels that the model sees.
        detection_interval: Look for new objects on every so many-th tracked frame.
        tracked: The model runs on `tracked` of every `of` frames, evenly spread; the others get carried masks.
        of: See `tracked`.
    """

    resolution: Resolution
    detection_interval: int = 1
    tracked: int = 1
    of: int = 1

    def __str__(self) -> str:
        parts = ["{}x{}".format(*self.resolution)]
        parts.append("every frame" if self.of == 1 else f"{self.tracked} of {self.of} frames")
        if self.detection_interval > 1:
            parts.append(f"detection every {self.detection_interval}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSettings:
    """The target and its limits.

    Attributes:
        target_fps: Frames a second that leave the pipeline with masks.
        resolutions: (width, height) in pixels that fit the model, best first.
        detection_intervals: Allowed intervals between detections in tracked frames, best first.
        min_resolution: The shorter side may not fall below this many pixels; None for no limit.
        max_skip: Most frames in a row that may go without the model.
        max_latency_s: Most seconds from a frame's arrival to its emission; `math.inf` for files.
        give_up: What to give up, first one first. A lever that is left out stays at its best. The default order of
            resolution and skip follows from `benchmarks/rate_quality.py` (J&F of `lite` on DAVIS against CPU time): to
            save half, 320x192 loses 2.6 points and skipping with propagated masks about 2.7; to save more, resolution
            loses less. The two are close, and with smaller pictures the model still sees every frame. Detection comes
            first because known objects lose nothing by it, only new ones come later; that has not been measured.
    """

    target_fps: float
    resolutions: Sequence[Resolution]
    detection_intervals: Sequence[int] = (1,)
    min_resolution: int | None = None
    max_skip: int = 4
    max_latency_s: float = 0.5
    give_up: Sequence[Lever] = ("detection", "resolution", "skip")

    def __post_init__(self) -> None:
        if not (math.isfinite(self.target_fps) and self.target_fps > 0):
            raise ConfigError(f"target_fps must be a positive number, got {self.target_fps}")
        if not self.resolutions:
            raise ConfigError("rate control needs one resolution or more to choose from, got none")
        if not self.detection_intervals or min(self.detection_intervals) < 1:
            raise ConfigError(f"detection intervals must be 1 or more, got {list(self.detection_intervals)}")
        if self.max_skip < 0:
            raise ConfigError(f"max_skip must be 0 or more frames, got {self.max_skip}")
        if not self.max_latency_s > 0:
            raise ConfigError(f"max_latency_ms must be positive, got {self.max_latency_s * 1000:g}")
        unknown = [lever for lever in self.give_up if lever not in get_args(Lever)]
        if unknown or len(set(self.give_up)) != len(self.give_up):
            raise ConfigError(f"give_up takes each of {', '.join(get_args(Lever))} once, got {list(self.give_up)}")
        if not self.allowed_resolutions:
            sides = ", ".join(f"{width}x{height}" for width, height in self.resolutions)
            raise ConfigError(f"min_resolution {self.min_resolution} leaves none of {sides}; lower it")

    @property
    def allowed_resolutions(self) -> tuple[Resolution, ...]:
        """The resolutions that `min_resolution` leaves, best first."""
        least = self.min_resolution or 0
        return tuple(resolution for resolution in self.resolutions if min(resolution) >= least)

    @property
    def queue_frames(self) -> int:
        """Room that the channel before the first stage needs, with `drop_oldest`; `latest` would keep one frame only.

        While the model works on one frame the next ones wait here: as many as can still be emitted in time, or as a
        network delivers at once after having held them back.
        """
        return queue_frames(self.target_fps, self.max_latency_s)


def queue_frames(target_fps: float, max_latency_s: float) -> int:
    """See `RateSettings.queue_frames`, which needs no resolutions."""
    if math.isinf(max_latency_s):
        return 2
    return max(2, math.ceil(max(max_latency_s, _BURST_S) * target_fps) + 1)


def build_ladder(settings: RateSettings) -> tuple[Setting, ...]:
    """Every setting that the controller may choose, best first.

    The first lever of `give_up` goes down to its limit step by step, then the next one.
    """
    skips = [(1, 1)]
    if settings.max_skip:
        skips += [*_SKIP_PATTERNS, *((1, skip + 1) for skip in range(2, settings.max_skip + 1))]
    steps: dict[Lever, Sequence[object]] = {
        "detection": settings.detection_intervals,
        "resolution": settings.allowed_resolutions,
        "skip": skips,
    }
    at: dict[Lever, int] = dict.fromkeys(steps, 0)

    def setting() -> Setting:
        tracked, of = skips[at["skip"]]
        interval = settings.detection_intervals[at["detection"]]
        return Setting(settings.allowed_resolutions[at["resolution"]], interval, tracked, of)

    ladder = [setting()]
    for lever in settings.give_up:
        for step in range(1, len(steps[lever])):
            at[lever] = step
            ladder.append(setting())
    return tuple(ladder)
