"""Frames as viewers see them: scaled first, then drawn on, which costs a fraction of the other order."""

from __future__ import annotations

import threading
from dataclasses import replace

import av
import cv2
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import ImageArray, TrackedFrame, TrackedObject

_per_thread = threading.local()


def render(tracked: TrackedFrame, height: int, overlay: bool = True) -> av.VideoFrame:
    """The frame as yuv420p of even sides, at most `height` pixels high; from any thread.

    Args:
        tracked: The frame and its objects.
        height: In pixels.
        overlay: Whether the objects are drawn.
    """
    bgr = draw(tracked, height, overlay)
    frame = av.VideoFrame.from_numpy_buffer(bgr, "bgr24")
    reformatter: VideoReformatter | None = getattr(_per_thread, "reformatter", None)
    if reformatter is None:
        reformatter = _per_thread.reformatter = VideoReformatter()
    return reformatter.reformat(
        frame, format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG, threads=1
    )


def draw(tracked: TrackedFrame, height: int, overlay: bool = True) -> ImageArray:
    """The frame as uint8 BGR (height, width, 3) with even sides, at most `height` pixels high."""
    size = scaled_size(tracked.frame.width, tracked.frame.height, height)
    bgr = tracked.frame.picture.to_ndarray("bgr24", size)
    if overlay and tracked.present:
        small = replace(
            tracked,
            frame=replace(tracked.frame, picture=ArrayPicture(bgr)),
            objects=tuple(_scaled(each, size) for each in tracked.present),
        )
        _paint(small, bgr)
    return bgr


def scaled_size(width: int, height: int, most_height: int) -> tuple[int, int]:
    """(width, height) in even pixels of a picture that is to be no higher than so."""
    scale = min(1.0, most_height / height)
    return max(2, round(width * scale / 2) * 2), max(2, round(height * scale / 2) * 2)


def _paint(tracked: TrackedFrame, bgr: ImageArray) -> None:
    from sam3_stream.stages.sinks.object_painter import ObjectPainter  # supervision takes a second to import

    size = tracked.frame.width, tracked.frame.height
    painters: dict[tuple[int, int], ObjectPainter] = _per_thread.__dict__.setdefault("painters", {})
    if size not in painters:
        painters.clear()
        painters[size] = ObjectPainter(*size)
    drawing = painters[size].plan(tracked)
    if drawing is not None:
        x0, y0, x1, y1 = drawing.region
        painters[size].paint(drawing, bgr[y0:y1, x0:x1])


def _scaled(tracked: TrackedObject, size: tuple[int, int]) -> TrackedObject:
    if tracked.mask.shape == size[::-1]:
        return tracked
    mask = cv2.resize(tracked.mask.view(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    return replace(tracked, mask=np.asarray(mask, dtype=np.bool_))
