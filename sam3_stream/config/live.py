"""What a config may say about live streams."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import ConfigDict, Field, field_validator, model_validator

from sam3_stream.config.base import Config
from sam3_stream.config.models import ModelConfig, PromptConfig, ZeroMqConfig
from sam3_stream.config.rate import RateConfig

_SOURCE_SCHEMES = ("rtsp", "rtsps", "rtmp", "rtmps", "http", "https", "udp", "rtp", "tcp")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class LiveSourceConfig(Config):
    """A camera or another live stream that FFmpeg reads."""

    model_config = ConfigDict(hide_input_in_errors=True)  # an address may hold a password

    type: Literal["url"] = "url"
    url: str = Field(
        min_length=1,
        repr=False,
        description="rtsp://, rtsps://, rtmp://, http://, https:// (MJPEG, HLS), udp:// (MPEG-TS) or /dev/video0. "
        "${NAME} stands for the environment variable NAME, so that a password need not be in the file.",
    )
    mode: Literal["latest", "every_frame"] = Field(
        "latest",
        description="latest: stay close to now and drop what the model is too slow for. every_frame: drop nothing, "
        "fall behind instead, and end where the stream ends.",
    )
    transport: Literal["tcp", "udp"] = Field("tcp", description="How RTSP carries the pictures.")
    connect_timeout_s: float = Field(10.0, gt=0, description="A connection must be made within so many seconds.")
    read_timeout_s: float = Field(10.0, gt=0, description="Reconnect when nothing has come for so many seconds.")
    stalled_after_s: float = Field(2.0, gt=0, description="Say that the stream is stalled after so many seconds.")
    backoff_initial_s: float = Field(1.0, gt=0, description="Wait so long before the first new attempt; then double.")
    backoff_max_s: float = Field(30.0, gt=0, description="Never wait longer than this between two attempts.")
    max_attempts: int | None = Field(None, ge=1, description="Give up after so many attempts in a row; never if null.")
    wait_for_key_frame: bool = Field(
        True, description="After a damaged picture, pass none on until one comes that does not build on it."
    )
    verify_tls: bool = Field(True, description="Accept only a certificate that can be verified (rtsps, https).")
    ca_file: Path | None = Field(None, description="Certificates to verify against; the system's own if null.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        return url if url.startswith("/dev/") else _check_address(_expand(url), _SOURCE_SCHEMES)


class SegmentsConfig(Config):
    """One file after the other, of which the newest are kept."""

    type: Literal["segments"] = "segments"
    content: Literal["overlay", "masks", "redact"] = Field(
        "overlay", description="The video with the objects drawn, the masks as JSON Lines, or the objects pixelated."
    )
    folder: Path = Field(description="Where to; made if it is not there. Of this sink alone.")
    segment_seconds: float = Field(60.0, gt=0, description="Length of a file.")
    keep: int | None = Field(None, ge=1, description="How many files at most.")
    max_bytes: int | None = Field(None, ge=1, description="How many bytes the files may hold together.")
    min_free_bytes: int = Field(
        1_000_000_000, ge=0, description="Delete old files, then write nothing, while the disk has less free space."
    )


class PushConfig(Config):
    """The video with the objects drawn, sent to a server."""

    model_config = ConfigDict(hide_input_in_errors=True)

    type: Literal["push"] = "push"
    url: str = Field(repr=False, description="rtsp:// (RECORD) or rtmp://; ${NAME} stands for an environment variable.")
    kbps: int = Field(2000, ge=50, description="Bit rate in thousands of bits per second.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        return _check_address(_expand(url), ("rtsp", "rtsps", "rtmp", "rtmps"))


LiveSinkConfig = Annotated[SegmentsConfig | PushConfig | ZeroMqConfig, Field(discriminator="type")]


class NamedStreamConfig(RateConfig):
    """What every stream that runs beside others has."""

    name: str = Field(
        pattern=r"^[\w.-]+$", max_length=64, description="Letters, digits, dot, dash, underscore; unique."
    )
    max_gap_s: float = Field(
        30.0, gt=0, description="Objects keep their ids through an outage that is no longer, in seconds."
    )
    max_objects: int | None = Field(
        None, ge=1, description="Room for so many objects; more are refused, phrases find no more."
    )


class StreamConfig(NamedStreamConfig):
    """One live stream, what to track in it, and where the results go."""

    source: LiveSourceConfig
    prompts: tuple[PromptConfig, ...] = Field(min_length=1, description="Clicks, boxes, masks or phrases.")
    sinks: tuple[LiveSinkConfig, ...] = Field(min_length=1, description="Where the results go.")


class HealthConfig(Config):
    """An HTTP endpoint: /livez, /readyz, /streams and /metrics (Prometheus)."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for all of this machine's.")
    port: int = Field(9464, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")


class LiveJobConfig(Config):
    """Live streams that run side by side with one model."""

    streams: tuple[StreamConfig, ...] = Field(min_length=1)
    model: ModelConfig = ModelConfig()
    max_batch: int = Field(8, ge=1, description="How many frames, of different streams, are encoded at once at most.")
    health: HealthConfig | None = Field(None, description="Serve health and metrics over HTTP.")

    @model_validator(mode="after")
    def _check_names(self) -> LiveJobConfig:
        check_distinct(self.streams)
        return self


class _NamedStream(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def sinks(self) -> tuple[LiveSinkConfig, ...]: ...


def check_distinct(streams: Sequence[_NamedStream]) -> None:
    """Raise `ValueError` when two streams have the same name, or two outputs the same folder."""
    names = [stream.name for stream in streams]
    folders = [sink.folder.absolute() for each in streams for sink in each.sinks if sink.type == "segments"]
    for what, values in (("streams are named", names), ("outputs go to the folder", map(str, folders))):
        twice = [value for value, count in Counter(values).items() if count > 1]
        if twice:
            raise ValueError(f"two {what} {twice[0]}; give each its own")


def _expand(text: str) -> str:
    missing = [name for name in _VARIABLE.findall(text) if name not in os.environ]
    if missing:
        raise ValueError(f"the environment variable {missing[0]} is not set; set it, or write the value itself")
    return _VARIABLE.sub(lambda match: os.environ[match[1]], text)


def _check_address(url: str, schemes: tuple[str, ...]) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in schemes:
        known = ", ".join(f"{each}://" for each in schemes)
        raise ValueError(f"expected an address that begins with one of {known}")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in rest and "@" not in host and ":" in host and not re.fullmatch(r".*:\d+", host):
        raise ValueError("a user name or password with / ? or # in it must be percent-encoded: %2F %3F %23")
    return url
