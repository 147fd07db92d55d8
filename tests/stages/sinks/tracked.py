"""Tracked frames to feed to sinks: the clips' own pictures, with the disc's true mask as the object."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import Frame, ImageArray, MaskArray, RunHeader, StreamInfo, TrackedFrame, TrackedObject
from tests.support.clips import Size, disc_mask, draw_frame

SIZE = (160, 120)
TIME_BASE = Fraction(1, 25)
HEADER = RunHeader("clip.mp4", "lite", ({"type": "click", "x": 3.0, "y": 4.0, "time_s": 0.0, "name": None},))


def stream_info(size: Size = SIZE, time_base: Fraction = TIME_BASE, frame_count: int | None = None) -> StreamInfo:
    return StreamInfo(*size, time_base, average_rate=Fraction(25), frame_count=frame_count)


def tracked_frame(
    number: int,
    *,
    size: Size = SIZE,
    pts: int | None = None,
    time_base: Fraction = TIME_BASE,
    image: ImageArray | None = None,
    objects: tuple[TrackedObject, ...] | None = None,
) -> TrackedFrame:
    """Frame `number` of the test clip with the disc as object 1, unless `objects` are given."""
    picture = ArrayPicture(draw_frame(number, size) if image is None else image)
    frame = Frame("clip", number, number if pts is None else pts, time_base, picture)
    return TrackedFrame(frame, (disc_object(number, size),) if objects is None else objects)


def disc_object(number: int, size: Size = SIZE) -> TrackedObject:
    return TrackedObject(1, "prompt-1", "disc", 0.91, disc_mask(number, size))


def object_of(mask: MaskArray, object_id: int = 1, *, label: str = "thing", present: bool = True) -> TrackedObject:
    return TrackedObject(object_id, f"prompt-{object_id}", label, 0.5 if present else 0.0, mask, present)


def rectangle(x0: int, y0: int, x1: int, y1: int, size: Size = SIZE) -> MaskArray:
    mask = np.zeros((size[1], size[0]), np.bool_)
    mask[y0:y1, x0:x1] = True
    return mask
