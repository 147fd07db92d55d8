"""What a config may say about the frame rate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from sam3_stream.config.base import Config

Lever = Literal["detection", "resolution", "skip"]


class RateConfig(Config):
    """Hold a frame rate by seeing less: looking for new objects less often, smaller pictures, skipped frames."""

    target_fps: float | None = Field(
        None, gt=0, description="Frames a second to come out with masks, at what quality that leaves. null: no control."
    )
    min_resolution: int | None = Field(
        None, ge=1, description="Never show the model a picture whose shorter side has fewer pixels."
    )
    max_skip: int = Field(4, ge=0, description="Most frames in a row that may carry masks from an earlier one.")
    max_latency_ms: float = Field(
        500.0, gt=0, description="Drop live frames that cannot come out within so many milliseconds of their arrival."
    )
    give_up: tuple[Lever, ...] = Field(
        ("detection", "resolution", "skip"), description="What to give up, first one first; what is left out stays."
    )
    carry: Literal["propagated", "held"] = Field(
        "propagated", description="Masks of skipped frames: moved along with the picture, or left where they were."
    )

    @model_validator(mode="after")
    def _check_target(self) -> RateConfig:
        limits = {"min_resolution", "max_skip", "max_latency_ms", "give_up", "carry"} & self.model_fields_set
        if self.target_fps is None and limits:
            raise ValueError(f"{min(limits)} limits what is done for a target_fps; say which, or leave it out")
        if len(set(self.give_up)) < len(self.give_up):
            raise ValueError(f"give_up takes each lever once, got {', '.join(self.give_up)}")
        return self
