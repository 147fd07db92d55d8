"""What a config may say about live streams."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, field_validator

from sam3_stream.config.base import Config

_SCHEMES = ("rtsp", "rtsps", "rtmp", "rtmps", "http", "https", "udp", "rtp", "tcp")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class LiveSourceConfig(Config):
    """A camera or another live stream that FFmpeg reads."""

    model_config = ConfigDict(hide_input_in_errors=True)  # an address may hold a password

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
    def _expand(cls, url: str) -> str:
        missing = [name for name in _VARIABLE.findall(url) if name not in os.environ]
        if missing:
            raise ValueError(f"the environment variable {missing[0]} is not set; set it, or write the value itself")
        return _check_address(_VARIABLE.sub(lambda match: os.environ[match[1]], url))


def _check_address(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator and url.startswith("/dev/"):
        return url
    if not separator or scheme.lower() not in _SCHEMES:
        known = ", ".join(f"{each}://" for each in _SCHEMES)
        raise ValueError(f"expected an address that begins with one of {known} or /dev/")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in rest and "@" not in host and ":" in host and not re.fullmatch(r".*:\d+", host):
        raise ValueError("a user name or password with / ? or # in it must be percent-encoded: %2F %3F %23")
    return url
