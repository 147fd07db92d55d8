"""What a config may say about the live preview: `sam3-stream serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from sam3_stream.config.base import Config
from sam3_stream.config.live import LiveSinkConfig, LiveSourceConfig, NamedStreamConfig, check_distinct
from sam3_stream.config.models import ModelConfig, PromptConfig


class LoopedFileConfig(Config):
    """A video, or a folder of images, played like a camera without end."""

    type: Literal["file"] = "file"
    path: Path = Field(description="Video file, or folder of images.")
    loop: Literal["forth_and_back", "over"] = Field(
        "forth_and_back",
        description="forth_and_back: the picture never jumps (clips that fit into memory). over: from the start.",
    )


class WhipSourceConfig(Config):
    """Whoever shares a camera with this stream over WHIP: a browser, OBS."""

    type: Literal["whip"] = "whip"


def _source_type(value: Any) -> str:
    kind = value.get("type", "url") if isinstance(value, dict) else getattr(value, "type", "url")
    return kind if kind in ("file", "whip") else "url"


PreviewSourceConfig = Annotated[
    Annotated[LiveSourceConfig, Tag("url")]
    | Annotated[LoopedFileConfig, Tag("file")]
    | Annotated[WhipSourceConfig, Tag("whip")],
    Discriminator(_source_type),
]


class PreviewStreamConfig(NamedStreamConfig):
    """One stream of the preview."""

    source: PreviewSourceConfig
    prompts: tuple[PromptConfig, ...] = Field((), description="Clicks, boxes, masks or phrases to begin with.")
    sinks: tuple[LiveSinkConfig, ...] = Field((), description="Where else the results go.")


class AllowedSourcesConfig(Config):
    """What streams that are added over the API may open. Those of the config may open anything."""

    schemes: tuple[str, ...] = Field(("rtsp", "rtsps"), description="Kinds of address.")
    hosts: tuple[str, ...] = Field((), description="Hosts that cameras may be on, names or addresses; none if empty.")
    media_folders: tuple[Path, ...] = Field((), description="Folders that files may be in; none if empty.")
    whip: bool = Field(True, description="Whether people may share their cameras.")


class ServerConfig(Config):
    """Where the page and the API are served, and how much of them."""

    host: str = Field("127.0.0.1", description="Address to listen on; any but loopback asks for a token.")
    port: int = Field(8420, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    media_hosts: tuple[str, ...] = Field(
        (), description="Addresses of this machine that media go over; the one of `host` if empty, or all for 0.0.0.0."
    )
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Names under which browsers reach this machine, besides its addresses."
    )
    max_viewers: int = Field(32, ge=1, description="Peers that may watch or share at a time.")
    max_streams: int = Field(16, ge=1, description="Streams there may be.")
    max_requests: int = Field(64, ge=1, description="Requests under way at a time; more are told to come back.")
    max_body_bytes: int = Field(16 << 20, ge=1024, description="Largest request body.")


class PreviewConfig(Config):
    """A page to watch live streams, point at things and see them tracked, and the API behind it."""

    preview: ServerConfig = ServerConfig()
    streams: tuple[PreviewStreamConfig, ...] = ()
    model: ModelConfig = ModelConfig()
    other_models: tuple[ModelConfig, ...] = Field((), description="What may be chosen over the API instead of `model`.")
    max_batch: int = Field(8, ge=1, description="How many frames, of different streams, are encoded at once at most.")
    sources: AllowedSourcesConfig = AllowedSourcesConfig()
    state_folder: Path | None = Field(
        None, description="Where prompts, names and the token are kept over restarts; nothing is kept if null."
    )

    @model_validator(mode="after")
    def _check_names(self) -> PreviewConfig:
        check_distinct(self.streams)
        return self
