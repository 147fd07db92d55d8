"""Which process runs which stage."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from sam3_stream.config.base import Config

STAGES = ("decoder", "encoder", "memory_tracker", "sinks")
EDGES = ("frames", "features", "results")  # EDGES[i] lies behind STAGES[i]


class EdgeConfig(Config):
    """An edge between two processes. Its sender listens, its receiver connects."""

    address: str | None = Field(
        None,
        description="tcp://HOST:PORT where the groups run on two machines; a local socket if null. Addresses that "
        "other machines reach need keys.",
    )
    pictures: Literal["raw", "jpeg", "h264"] = Field(
        "raw",
        description="How pixels travel: raw gives results identical to one process; jpeg and h264 are for links "
        "that are too thin for that.",
    )
    jpeg_quality: int = Field(90, ge=1, le=100)
    h264_bitrate: int = Field(4_000_000, ge=10_000, description="Bits a second.")
    window_bytes: int = Field(64 << 20, ge=1 << 16, description="So many bytes at most are under way.")


class EdgesConfig(Config):
    """The edges of the flow, in order."""

    frames: EdgeConfig = Field(EdgeConfig(), description="From the decoder to the encoder.")
    features: EdgeConfig = Field(EdgeConfig(), description="From the encoder to the memory tracker.")
    results: EdgeConfig = Field(EdgeConfig(), description="From the memory tracker to the sinks.")


class ProcessesConfig(Config):
    """Each stage names its process group: stages of one group share a process, groups talk over sockets."""

    decoder: str = Field("main", min_length=1, description="Group of the decoder.")
    encoder: str = Field("main", min_length=1, description="Group of the encoder.")
    memory_tracker: str = Field("main", min_length=1, description="Group of the memory tracker.")
    sinks: str = Field("main", min_length=1, description="Group of the sinks.")
    edges: EdgesConfig = EdgesConfig()
    keys: Path | None = Field(None, description="Folder of keys that 'sam3-stream keys' made.")
    directory: Path | None = Field(
        None,
        description="Where local sockets and the state for restarts live; a folder for this config in /tmp if null.",
    )
    heartbeat_s: float = Field(1.0, gt=0, description="A process that says nothing for so long is taken for dead.")
    max_restarts: int = Field(5, ge=0, description="Give up when a group dies more often than this ...")
    restart_window_s: float = Field(60.0, gt=0, description="... within so many seconds.")

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups in flow order."""
        return tuple(dict.fromkeys(self.group_of(stage) for stage in STAGES))

    def group_of(self, stage: str) -> str:
        """The group of a stage."""
        name: str = getattr(self, stage)
        return name

    def stages_of(self, group: str) -> tuple[str, ...]:
        """The stages of a group, in flow order."""
        return tuple(stage for stage in STAGES if self.group_of(stage) == group)

    @model_validator(mode="after")
    def _check_contiguous(self) -> ProcessesConfig:
        for group in self.groups:
            places = [STAGES.index(stage) for stage in self.stages_of(group)]
            if places[-1] - places[0] != len(places) - 1:
                raise ValueError(
                    f"the group {group!r} has {' and '.join(self.stages_of(group))}, but not what lies between; "
                    "stages of one group must follow each other"
                )
        return self
