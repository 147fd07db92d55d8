"""Opening a source with FFmpeg: the one place that knows its options and what its errors mean."""

from __future__ import annotations

import stat
from pathlib import Path

import av
from av.container import InputContainer
from av.error import FFmpegError
from av.stream import Discard, Disposition
from av.video.stream import VideoStream

from sam3_stream.core.errors import InputError
from sam3_stream.core.urls import is_url, redact_credentials

_NETWORK_TIMEOUT_S: float | None = 20.0
_STILL_PICTURES = Disposition.attached_pic | Disposition.timed_thumbnails


def display_name(source: str | Path) -> str:
    """How messages name a source: without the credentials that a URL may carry."""
    return redact_credentials(str(source))


def open_container(source: str | Path) -> InputContainer:
    """Open a file or a URL.

    Raises:
        InputError: It does not exist, may not be read, or is nothing that FFmpeg reads.
    """
    name = display_name(source)
    address = str(source)
    timeout_s = _NETWORK_TIMEOUT_S
    if not is_url(address):
        timeout_s = None
        _check_file(Path(source), name)
        address = f"file:{address}"  # so that a colon or a leading dash in the name means nothing to FFmpeg
    try:
        return av.open(address, "r", metadata_errors="replace", timeout=timeout_s)
    except FFmpegError as error:
        reason = redact_credentials(error.strerror or type(error).__name__)
        raise InputError(f"{name} is not a video that FFmpeg can read: {reason}") from error


def _check_file(path: Path, name: str) -> None:
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(
            f"cannot open {name}: {error.strerror}; expected a video file or a folder of images"
        ) from error
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{name} is a folder; expected a video file")
    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
        raise InputError(f"{name} is empty; expected a video file")


def choose_video_stream(container: InputContainer, name: str) -> VideoStream:
    """The best video stream; the packets of all others are left unread. Cover art is no video.

    Raises:
        InputError: There is no video stream, or nothing decodes it.
    """
    candidates = [stream for stream in container.streams.video if not stream.disposition & _STILL_PICTURES]
    if not candidates:
        what = "audio only" if container.streams.audio else "no audio either"
        raise InputError(f"{name} has no video stream ({what}); expected a video")
    decodable = [stream for stream in candidates if stream.codec_context is not None]
    if not decodable:
        raise InputError(f"{name}: FFmpeg has no decoder for its video stream; convert it to H.264 first")
    best = container.streams.best("video")
    chosen = next((stream for stream in decodable if stream is best), decodable[0])
    for stream in container.streams:
        if stream is not chosen:
            stream.discard = Discard.all
    return chosen
