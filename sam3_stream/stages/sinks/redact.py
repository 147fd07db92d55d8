"""The video with its objects hidden for good."""

from __future__ import annotations

import av
import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import ImageArray, MaskArray, TrackedFrame
from sam3_stream.stages.sinks.mp4_sink import Mp4Sink
from sam3_stream.stages.sinks.yuv_canvas import plane_pixels

_BLOCKS_ACROSS = 8
_SMALLEST_BLOCK = 8
_LIMITED_RANGE = 16, 235
_SHADES = np.array([[0, 14, -10, 6], [-14, 4, 10, -6], [8, -12, 2, 12], [-4, 10, -8, -2]])


class RedactSink(Mp4Sink):
    """Writes an MP4 as `Mp4Sink` does, every object under blocks that tell nothing but its average colour.

    An ordinary mosaic gives each block the mean of its pixels. That is a small picture of the object, and small
    pictures are recognised (McPherson et al., "Defeating Image Obfuscation with Deep Learning", 2016); over a video the
    object moves under the grid, and its many small pictures add up to a sharp one. So here the blocks' colours come
    from one mean over all of them and a fixed pattern of shades: three numbers a frame leave the object, whatever its
    size. Hidden are the mask, a margin that grows with the object, every block that these touch and what they enclose,
    so that only a coarse shape is left. An object that the tracker has lost is not hidden while it is lost.
    """

    name = "redact"

    def _draw(self, picture: av.VideoFrame, tracked: TrackedFrame) -> None:
        for each in tracked.present:
            box = each.box_xywh
            if box is not None:
                hide(picture, each.mask, box)


def hide(picture: av.VideoFrame, mask: MaskArray, box_xywh: tuple[int, int, int, int]) -> None:
    """Cover an object of a yuv420p frame with blocks, in place.

    Args:
        picture: The frame; its sides may be larger than the mask's by the pixel that makes them even.
        mask: bool (height, width), not empty.
        box_xywh: Tight box around the mask in pixels.
    """
    x, y, width, height = box_xywh
    side = max(_SMALLEST_BLOCK, round(max(width, height) / _BLOCKS_ACROSS / 2) * 2)
    margin = side // 2
    # The part of the picture that can change, in whole blocks.
    column, row = max(0, x - margin) // side, max(0, y - margin) // side
    columns, rows = -(-(x + width + margin) // side) - column, -(-(y + height + margin) // side) - row
    part = np.zeros((rows * side, columns * side), np.uint8)
    seen = mask[row * side :, column * side :][: part.shape[0], : part.shape[1]]
    part[: seen.shape[0], : seen.shape[1]] = seen
    grown = cv2.dilate(part, np.ones((2 * margin + 1, 2 * margin + 1), np.uint8))
    touched = _without_holes(grown.reshape(rows, side, columns, side).any(axis=(1, 3)))
    shades = _SHADES[np.ix_(np.arange(row, row + rows) % 4, np.arange(column, column + columns) % 4)]
    for plane, subsampling in zip(picture.planes, (1, 2, 2), strict=True):
        size = side // subsampling
        pixels = plane_pixels(plane)[row * size :, column * size :]
        _fill(pixels, touched, shades if subsampling == 1 else np.zeros_like(shades), size)


def _without_holes(blocks: MaskArray) -> MaskArray:
    """The blocks and all that they enclose, where a mask may have missed a part of the object."""
    outlines, _ = cv2.findContours(blocks.view(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    filled = np.zeros(blocks.shape, np.uint8)
    cv2.drawContours(filled, outlines, -1, 1, cv2.FILLED)
    return filled.view(np.bool_)


def _fill(pixels: ImageArray, touched: MaskArray, shades: npt.NDArray[np.int_], size: int) -> None:
    """Give the touched blocks of a plane the mean of them all, each in its shade."""
    covered, pattern = (each.repeat(size, axis=0).repeat(size, axis=1) for each in (touched, shades))
    inside = pixels[: covered.shape[0], : covered.shape[1]]
    covered = covered[: inside.shape[0], : inside.shape[1]]
    colors = np.clip(inside[covered].mean() + pattern, *_LIMITED_RANGE)[: inside.shape[0], : inside.shape[1]]
    np.copyto(inside, colors.astype(np.uint8), where=covered)
