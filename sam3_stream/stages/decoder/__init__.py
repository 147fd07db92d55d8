"""From a source to frames: video files and folders of images, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from sam3_stream.core.errors import InputError
from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.stages.decoder.backward import BackwardDecoder, images_backward, video_backward
from sam3_stream.stages.decoder.image_folder import DEFAULT_FPS, ImageFolderDecoder
from sam3_stream.stages.decoder.video_file import Anchor, VideoDecoder

__all__ = [
    "Anchor",
    "BackwardDecoder",
    "FrameSource",
    "ImageFolderDecoder",
    "VideoDecoder",
    "open_backward",
    "open_source",
]


class FrameSource(Protocol):
    """What every decoder offers."""

    @property
    def info(self) -> StreamInfo:
        """What the source says of itself."""

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames; once."""

    def close(self) -> None:
        """Let go of the source. Safe to call twice."""


def open_source(
    source: str | Path,
    *,
    stream_id: str = "0",
    start_s: float | None = None,
    end_s: float | None = None,
    max_frames: int | None = None,
    first_sequence: int = 0,
    image_fps: int | Fraction = DEFAULT_FPS,
) -> VideoDecoder | ImageFolderDecoder:
    """Open a video, or a folder of images, which `image_fps` gives times; see the two classes for the rest.

    Raises:
        InputError: It cannot be opened, or holds no pictures.
    """
    if _is_folder(source):
        return ImageFolderDecoder(
            source,
            stream_id=stream_id,
            fps=image_fps,
            start_s=start_s,
            end_s=end_s,
            max_frames=max_frames,
            first_sequence=first_sequence,
        )
    return VideoDecoder(
        source,
        stream_id=stream_id,
        start_s=start_s,
        end_s=end_s,
        max_frames=max_frames,
        first_sequence=first_sequence,
    )


def open_backward(
    source: str | Path,
    *,
    from_s: float,
    stream_id: str = "0",
    start_s: float | None = None,
    end_s: float | None = None,
    max_frames: int | None = None,
    image_fps: int | Fraction = DEFAULT_FPS,
) -> BackwardDecoder:
    """Open a source to read its frames in reverse, beginning with the first at or after `from_s`, or else the last.

    The frames have the numbers and time stamps that `open_source` gives them for the same window.

    Raises:
        InputError: It cannot be opened, or holds no pictures.
    """
    if _is_folder(source):
        images = ImageFolderDecoder(
            source, stream_id=stream_id, fps=image_fps, start_s=start_s, end_s=end_s, max_frames=max_frames
        )
        return images_backward(images, from_s)

    def open_video(first_sequence: int, anchor: Anchor | None) -> VideoDecoder:
        return VideoDecoder(
            source,
            stream_id=stream_id,
            start_s=start_s,
            end_s=end_s,
            max_frames=max_frames,
            first_sequence=first_sequence,
            anchor=anchor,
        )

    return video_backward(open_video, from_s)


def _is_folder(source: str | Path) -> bool:
    try:
        return Path(source).is_dir()
    except (OSError, ValueError) as error:  # no permission, a name that is too long, a null character
        raise InputError(f"cannot open {str(source)[:200]!r}: {error.args[-1]}") from error
