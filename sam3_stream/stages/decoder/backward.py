"""A source's frames from a time backwards, in bounded memory."""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections.abc import Callable, Generator
from types import TracebackType

from sam3_stream.core.errors import DecodeError
from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.stages.decoder.image_folder import ImageFolderDecoder
from sam3_stream.stages.decoder.video_file import Anchor, VideoDecoder

_BYTES_HELD = 256 << 20
_BYTES_PER_PIXEL = 3  # of a decoded picture: 1.5 in 8-bit 4:2:0, 3 in 10-bit 4:2:0

OpenVideo = Callable[[int, Anchor | None], VideoDecoder]


class BackwardDecoder:
    """Iterates frames from the last to the first, with the numbers and time stamps that the forward pass gives them.

    What is lost to damage is left out and not reported: the forward pass does that.

    Args:
        info: What the source says of itself.
        frames: The frames in reverse order.
    """

    def __init__(self, info: StreamInfo, frames: Generator[Frame, None, None]) -> None:
        self.info = info
        self._frames = frames

    def __iter__(self) -> Generator[Frame, None, None]:
        return self._frames

    def close(self) -> None:
        """Let go of the file. Safe to call twice."""
        self._frames.close()

    def __enter__(self) -> BackwardDecoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def video_backward(open_video: OpenVideo, from_s: float, piece_frames: int | None = None) -> BackwardDecoder:
    """The frames of a video in reverse, beginning with the first at or after `from_s`, or else with the last.

    A first pass decodes up to there and notes the time stamps, 8 bytes a frame. Then pieces from the end, as long as
    their decoded pictures fit into 256 MB, are decoded from the key frame before each.

    Args:
        open_video: Opens the window of the video from a frame number on, given a frame to seek to where one is known.
        from_s: Where to begin, in seconds of `Frame.time_s`.
        piece_frames: How many frames to hold at once rather than as many as fit.
    """
    with open_video(0, None) as video:
        info = video.info
    if piece_frames is None:
        piece_frames = max(1, _BYTES_HELD // (info.width * info.height * _BYTES_PER_PIXEL))
    return BackwardDecoder(info, _pieces_backward(open_video, from_s, piece_frames))


def images_backward(images: ImageFolderDecoder, from_s: float) -> BackwardDecoder:
    """The images of a folder in reverse, beginning with the first at or after `from_s`, or else with the last."""
    return BackwardDecoder(images.info, _images_backward(images, from_s))


def _images_backward(images: ImageFolderDecoder, from_s: float) -> Generator[Frame, None, None]:
    wanted = []
    for number, index in images.selected():
        wanted.append((number, index))
        if float(index * images.info.time_base) >= from_s:
            break
    with contextlib.suppress(DecodeError):
        yield from images.frames_of(wanted[::-1])


def _pieces_backward(open_video: OpenVideo, from_s: float, piece_frames: int) -> Generator[Frame, None, None]:
    pts, seekable = _timestamps_to(open_video, from_s)
    end = len(pts)
    while end > 0:
        begin = max(0, end - piece_frames)
        piece = _piece(open_video, begin, end, Anchor(begin, pts[begin])) if seekable else []
        if [frame.pts for frame in piece] != pts[begin:end].tolist():
            piece = _piece(open_video, begin, end, None)
        while piece:
            yield piece.pop()
        end = begin


def _timestamps_to(open_video: OpenVideo, from_s: float) -> tuple[array[int], bool]:
    """Time stamps of the frames up to the first at or after `from_s`, and whether frames can be found by them."""
    pts = array("q")
    with open_video(0, None) as video, contextlib.suppress(DecodeError):
        for frame in video:
            pts.append(frame.pts)
            if frame.time_s >= from_s:
                break
    return pts, not video.timestamps_repaired


def _piece(open_video: OpenVideo, begin: int, end: int, anchor: Anchor | None) -> list[Frame]:
    frames: list[Frame] = []
    with open_video(begin, anchor) as video, contextlib.suppress(DecodeError):
        frames.extend(itertools.islice(video, end - begin))
    return frames
