"""What the rate controller is told, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sam3_stream.core.records import FrameState
from sam3_stream.runtime.rate_settings import Resolution, Setting

Action = Literal["track", "carry", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What became of one frame, told when it leaves the stages. All times on one monotonic clock.

    Attributes:
        arrived_s: When the frame came to wait for the first stage.
        started_s: When the first stage began with it.
        finished_s: When it left the last stage.
        service_s: Seconds of work by stage, in flow order. What one thread does is one stage.
        moved_s: Seconds that the first stage worked besides, to carry masks to a tracked frame behind skipped ones.
        state: `tracked`, or how its masks were carried.
        resolution: (width, height) that the model saw; None unless tracked.
        detected: Whether the model looked for new objects; None while there is nothing to look for (no phrase).
        objects: Number of objects on the frame.
        prompted: Whether the frame took a prompt: that costs extra, once, and teaches nothing about the frames to come.
        source_fps: The source's own rate, counted over a span; None while unknown.
    """

    arrived_s: float
    started_s: float
    finished_s: float
    service_s: Mapping[str, float]
    state: FrameState
    moved_s: float = 0.0
    resolution: Resolution | None = None
    detected: bool | None = None
    objects: int = 0
    prompted: bool = False
    source_fps: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one frame.

    Attributes:
        action: Run the model, carry the masks of an earlier frame, or drop the frame because it comes too late.
        setting: The rung in force; `setting.resolution` is what the model is to see.
        detect: Whether to look for new objects.
        admit_fps: Rate to which the source is to be decimated from now on.
        impossible: Whether the target is out of reach within the limits.
        reason: Why `setting` or `impossible` changed with this decision, in words; None when neither did.
    """

    action: Action
    setting: Setting
    detect: bool
    admit_fps: float
    impossible: bool
    reason: str | None = None
