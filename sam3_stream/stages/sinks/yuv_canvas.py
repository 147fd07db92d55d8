"""Frames that an encoder takes, and drawing on the part of them that changes.

Most pixels of an output are those of the input. So a frame stays YUV, and only the region that is drawn on goes to BGR
and back: cheaper than converting all of it twice, and every other pixel keeps its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import av
import numpy as np
from av.video.plane import VideoPlane
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from sam3_stream.core.records import ImageArray, Picture

Region = tuple[int, int, int, int]

_BT709 = 1  # FFmpeg's number for the matrix, the primaries and the transfer of BT.709
_SIDE_STEP = 64


@runtime_checkable
class YuvPicture(Protocol):
    """A picture that may hold encodable pixels already."""

    def native_yuv420p(self) -> tuple[av.VideoFrame, int] | None:
        """The decoder's own frame, shared and not to be changed, and FFmpeg's number for its matrix.

        None unless it is upright yuv420p in limited range with the matrix of BT.601 or BT.709.
        """


class YuvCanvas:
    """Makes encodable frames of pictures and draws on them. One a sink: it keeps converters for the picture's size."""

    def __init__(self) -> None:
        self._to_yuv = VideoReformatter()
        self._region_to_bgr = VideoReformatter()
        self._region_to_yuv = VideoReformatter()

    def frame_of(self, picture: Picture) -> av.VideoFrame:
        """The picture as a new yuv420p frame in limited range, tagged with its matrix (BT.709 where there is a choice).

        yuv420p has even sides, so an odd side is padded by one replicated pixel.
        """
        native = picture.native_yuv420p() if isinstance(picture, YuvPicture) else None
        return self._converted(picture) if native is None else _copied(*native)

    def _converted(self, picture: Picture) -> av.VideoFrame:
        rgb = picture.to_ndarray("rgb24")
        if rgb.shape[0] % 2 or rgb.shape[1] % 2:
            rgb = np.pad(rgb, ((0, rgb.shape[0] % 2), (0, rgb.shape[1] % 2), (0, 0)), mode="edge")
        frame = self._to_yuv.reformat(
            av.VideoFrame.from_numpy_buffer(rgb, "rgb24"),
            format="yuv420p",
            dst_colorspace=Colorspace.ITU709,
            dst_color_range=ColorRange.MPEG,
            threads=1,
        )
        frame.color_primaries = frame.color_trc = _BT709
        return frame

    def draw(self, frame: av.VideoFrame, region: Region, paint: Callable[[ImageArray], object]) -> None:
        """Let `paint` change the region (x0, y0, x1, y1) of a frame in BGR.

        Args:
            frame: A frame that `frame_of` made.
            region: Even numbers within the frame, in pixels.
            paint: Changes the array, uint8 (y1 - y0, x1 - x0, 3), in place.
        """
        part = _new_frame(region[2] - region[0], region[3] - region[1], frame.colorspace)
        places = [_place(region, subsampling) for subsampling in (1, 2, 2)]
        for whole, piece, place in zip(frame.planes, part.planes, places, strict=True):
            plane_pixels(piece)[:] = plane_pixels(whole)[place]
        bgr = self._region_to_bgr.reformat(part, format="bgr24", threads=1)
        paint(plane_pixels(bgr.planes[0], channels=3).reshape(bgr.height, bgr.width, 3))
        painted = self._region_to_yuv.reformat(
            bgr,
            format="yuv420p",
            dst_colorspace=Colorspace.ITU709 if frame.colorspace == _BT709 else Colorspace.ITU601,
            dst_color_range=ColorRange.MPEG,
            threads=1,
        )
        for whole, piece, place in zip(frame.planes, painted.planes, places, strict=True):
            plane_pixels(whole)[place] = plane_pixels(piece)


def grown_region(region: Region, width: int, height: int) -> Region:
    """A region that holds this one in a frame of this size, odd sides rounded up, in even numbers.

    Its sides are multiples of 64 pixels where the frame has room: converters are made anew for every new size, which
    takes longer than converting, and a moving object would have another size on every frame.
    """
    x0, x1 = _grown(region[0], region[2], width + width % 2)
    y0, y1 = _grown(region[1], region[3], height + height % 2)
    return x0, y0, x1, y1


def _grown(low: int, high: int, limit: int) -> tuple[int, int]:
    low = max(0, low - low % 2)
    side = min(limit, math.ceil((high - low) / _SIDE_STEP) * _SIDE_STEP)
    low = min(low, limit - side)
    return low, low + side


def plane_pixels(plane: VideoPlane, channels: int = 1) -> ImageArray:
    """The pixels of a plane, not copied: uint8 (height, width * channels)."""
    return np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[
        : plane.height, : plane.width * channels
    ]


def _place(region: Region, subsampling: int) -> tuple[slice, slice]:
    x0, y0, x1, y1 = (side // subsampling for side in region)
    return slice(y0, y1), slice(x0, x1)


def _copied(native: av.VideoFrame, matrix: int) -> av.VideoFrame:
    frame = _new_frame(native.width + native.width % 2, native.height + native.height % 2, matrix)
    frame.color_primaries, frame.color_trc = native.color_primaries, native.color_trc
    for source, target in zip(native.planes, frame.planes, strict=True):
        _copy_padded(plane_pixels(source), plane_pixels(target))
    return frame


def _new_frame(width: int, height: int, matrix: int) -> av.VideoFrame:
    frame = av.VideoFrame(width, height, "yuv420p")
    frame.colorspace, frame.color_range = matrix, ColorRange.MPEG
    return frame


def _copy_padded(source: ImageArray, target: ImageArray) -> None:
    height, width = source.shape
    target[:height, :width] = source
    target[:height, width:] = source[:, -1:]
    target[height:] = target[height - 1]
