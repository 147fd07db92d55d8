"""Frames, encoded frames and tracked frames as messages, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from sam3_stream.core.masks_format import decode_rle, encode_rle
from sam3_stream.core.records import (
    EncodedFrame,
    Frame,
    FrameState,
    MaskArray,
    Retraction,
    TrackedFrame,
    TrackedObject,
)
from sam3_stream.transport.pictures import PictureCodec, RgbPictures
from sam3_stream.transport.wire_format import (
    MAX_OBJECTS,
    Arrays,
    FrameHeader,
    FrameLayout,
    MalformedMessageError,
    MaskLayout,
    ObjectLayout,
    Parts,
    PictureLayout,
    TrackedHeader,
    frame_topic,
    pack,
    pack_arrays,
    stream_of,
    trace_of,
    unpack_arrays,
)

Record = Frame | EncodedFrame | TrackedFrame
MaskEncoding = Literal["rle", "bits"]


def frame_of_record(record: Record) -> Frame:
    """The frame in a record, whose sequence number is the record's number on every edge that it crosses."""
    return record.frame if isinstance(record, EncodedFrame | TrackedFrame) else record


def with_frame(record: Record, frame: Frame) -> Record:
    """The record with another frame in it."""
    return replace(record, frame=frame) if isinstance(record, EncodedFrame | TrackedFrame) else frame


def marked(record: Record) -> Record:
    """The record, marked as coming after a discontinuity."""
    return with_frame(record, replace(frame_of_record(record), discontinuity=True))


@dataclass(frozen=True)
class FeatureCodec:
    """How a model's features become named arrays, and back; see `VideoModel`."""

    to_arrays: Callable[[Any], Arrays]
    from_arrays: Callable[[Arrays], Any]


class RecordCodec:
    """Turns records into messages and back.

    Args:
        pictures: How pixels travel. One for each end of an edge.
        features: How a model's features travel; not needed where no `EncodedFrame` does.
        masks: ``bits`` is quickest to make and read, ``rle`` smallest.
    """

    def __init__(
        self,
        pictures: PictureCodec | None = None,
        features: FeatureCodec | None = None,
        masks: MaskEncoding = "bits",
    ) -> None:
        self.pictures: PictureCodec = pictures or RgbPictures()
        self._features = features
        self._masks = masks

    def pack(self, record: Record, epoch: int = 0) -> Parts:
        """The message of a record.

        Args:
            record: The record.
            epoch: Which run of the stream it belongs to.
        """
        if isinstance(record, TrackedFrame):
            return self._pack_tracked(record, epoch)
        frame = record.frame if isinstance(record, EncodedFrame) else record
        picture, buffers = self.pictures.pack(frame.picture)
        layout = frame_layout(frame, picture, epoch)
        if isinstance(record, Frame):
            header = FrameHeader(frame=layout)
        else:
            if self._features is None:
                raise TypeError("this edge was made without a way to send features")
            arrays, array_buffers = pack_arrays(self._features.to_arrays(record.features))
            buffers = [*buffers, *array_buffers]
            header = FrameHeader(frame=layout, arrays=arrays, resolution=list(record.resolution), dtype=record.dtype)
        return pack(frame_topic(frame.stream_id), header, buffers)

    def unpack(self, topic: str, header: FrameHeader | TrackedHeader, buffers: Sequence[memoryview]) -> Record:
        """The record of a message.

        Raises:
            MalformedMessageError: It is not one.
        """
        layout = header.frame
        layout.check()
        try:
            pictures, rest = buffers[: layout.picture.buffers], buffers[layout.picture.buffers :]
            frame = frame_of(stream_of(topic), layout, self.pictures.unpack(layout.picture, pictures))
            if isinstance(header, TrackedHeader):
                return tracked_of(frame, header, buffers)
            if not header.resolution:
                if rest or header.arrays:
                    raise MalformedMessageError("a frame with buffers that nobody knows")
                return frame
            if self._features is None:
                raise MalformedMessageError("an encoded frame on an edge for other records")
            features = self._features.from_arrays(unpack_arrays(header.arrays, rest))
            return EncodedFrame(frame, features, _resolution(header.resolution), header.dtype)
        except (ValueError, KeyError, TypeError, OverflowError, IndexError, AttributeError) as error:
            raise MalformedMessageError(str(error)) from error

    def _pack_tracked(self, tracked: TrackedFrame, epoch: int) -> Parts:
        picture, buffers = self.pictures.pack(tracked.frame.picture)
        objects, mask_buffers = pack_objects(tracked.objects, self._masks, first_buffer=len(buffers))
        header = tracked_header(tracked, objects, frame_layout(tracked.frame, picture, epoch))
        return pack(frame_topic(tracked.frame.stream_id), header, [*buffers, *mask_buffers])


def frame_layout(frame: Frame, picture: PictureLayout, epoch: int) -> FrameLayout:
    """A frame's part of a header."""
    return FrameLayout(
        sequence=frame.sequence,
        pts=frame.pts,
        time_base=[frame.time_base.numerator, frame.time_base.denominator],
        picture=picture,
        start_pts=frame.start_pts,
        epoch=epoch,
        capture_time_s=frame.capture_time_s,
        rotation=frame.rotation,
        key_frame=frame.key_frame,
        discontinuity=frame.discontinuity,
        corrupt=frame.corrupt,
        trace=trace_of(frame.stream_id, epoch, frame.sequence),
    )


def frame_of(stream_id: str, layout: FrameLayout, picture: Any) -> Frame:
    """The frame of a checked layout and its picture."""
    return Frame(
        stream_id=stream_id,
        sequence=layout.sequence,
        pts=layout.pts,
        time_base=Fraction(*layout.time_base),
        picture=picture,
        start_pts=layout.start_pts,
        capture_time_s=layout.capture_time_s,
        rotation=layout.rotation,
        key_frame=layout.key_frame,
        discontinuity=layout.discontinuity,
        corrupt=layout.corrupt,
    )


def tracked_header(tracked: TrackedFrame, objects: list[ObjectLayout], layout: FrameLayout) -> TrackedHeader:
    """The header of a tracked frame whose objects and picture have been packed."""
    return TrackedHeader(
        frame=layout,
        objects=objects,
        state=tracked.state,
        resolution=list(tracked.resolution or ()),
        mask_age=tracked.mask_age,
        retracted=[[each.object_id, each.first_sequence, each.last_sequence] for each in tracked.retracted],
    )


def tracked_of(frame: Frame, header: TrackedHeader, buffers: Sequence[memoryview]) -> TrackedFrame:
    """The tracked frame of a message; raises `ValueError` and its like, or `MalformedMessageError`."""
    if header.state not in get_args(FrameState) or header.mask_age < 0:
        raise MalformedMessageError(f"state {header.state!r} with masks {header.mask_age} frames old")
    if len(header.objects) > MAX_OBJECTS:
        raise MalformedMessageError(f"{len(header.objects)} objects; expected {MAX_OBJECTS} at most")
    shape = (frame.height, frame.width)
    objects = tuple(_unpack_object(each, shape, buffers) for each in header.objects)
    retracted = tuple(Retraction(*each) for each in header.retracted)
    resolution = _resolution(header.resolution) if header.resolution else None
    state: Any = header.state
    return TrackedFrame(frame, objects, state, resolution, header.mask_age, retracted)


def pack_objects(
    objects: Sequence[TrackedObject], encoding: MaskEncoding, first_buffer: int
) -> tuple[list[ObjectLayout], Parts]:
    """Objects as layouts, and the buffers of their masks.

    Args:
        objects: The objects.
        encoding: How masks travel.
        first_buffer: How many buffers the message has before these.
    """
    layouts, buffers = [], Parts()
    for each in objects:
        box = each.box_xywh
        mask = None
        if box is not None and encoding == "rle":
            mask = MaskLayout(encoding="rle", counts=encode_rle(each.mask)["counts"])
        elif box is not None:
            mask = MaskLayout(encoding="bits", buffer=first_buffer + len(buffers))
            buffers.append(np.packbits(each.mask, axis=1).reshape(-1).data)
        layouts.append(
            ObjectLayout(
                id=each.object_id,
                prompt=each.prompt_id,
                label=each.label,
                score=each.score,
                present=each.present,
                box=None if box is None else list(box),
                mask=mask,
            )
        )
    return layouts, buffers


def _unpack_object(layout: ObjectLayout, shape: tuple[int, int], buffers: Sequence[memoryview]) -> TrackedObject:
    mask = _unpack_mask(layout.mask, shape, buffers)
    return TrackedObject(layout.id, layout.prompt, layout.label, layout.score, mask, layout.present)


def _unpack_mask(layout: MaskLayout | None, shape: tuple[int, int], buffers: Sequence[memoryview]) -> MaskArray:
    height, width = shape
    if layout is None:
        return np.zeros(shape, np.bool_)
    if layout.encoding == "rle":
        if rle_pixels(layout.counts) != height * width:
            raise MalformedMessageError("run lengths that do not fill the picture")
        return decode_rle({"size": [height, width], "counts": layout.counts})
    if layout.encoding != "bits" or not 0 <= layout.buffer < len(buffers):
        raise MalformedMessageError(f"a mask encoded as {layout.encoding!r} in buffer {layout.buffer}")
    packed = np.frombuffer(buffers[layout.buffer], np.uint8).reshape(height, (width + 7) // 8)
    return np.unpackbits(packed, axis=1, count=width).view(np.bool_)


def rle_pixels(counts: str) -> int:
    """How many pixels COCO's compressed run lengths cover; -1 when they are not run lengths.

    pycocotools writes past its arrays when they do not add up, so nothing else may reach it. The coding is that of
    rleFrString in cocoapi's maskApi.c: 5 bits a character from 48 up, 32 says that more follow, and from the fourth
    run on the number is the difference to the run two before.
    """
    data = np.frombuffer(counts.encode(), np.uint8).astype(np.int64) - 48
    if data.size == 0 or data.min() < 0 or data.max() > 63 or data[-1] & 32:
        return -1
    ends = np.flatnonzero((data & 32) == 0)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts).max() > 6:
        return -1
    place = np.arange(data.size) - np.repeat(starts, ends - starts + 1)
    values = np.add.reduceat((data & 31) << (5 * place), starts)
    values -= np.where(data[ends] & 16, np.int64(1) << (5 * (ends - starts + 1)), 0)
    runs = values
    for parity in (1, 2):  # runs 1, 3, 5, … and 2, 4, 6, … are sums of their differences; run 0 stands alone
        runs[parity::2] = np.cumsum(values[parity::2])
    return int(runs.sum()) if runs.min() >= 0 and runs.max() < 1 << 32 else -1


def _resolution(sides: Sequence[int]) -> tuple[int, int]:
    width, height = sides
    if not (0 < width < 1 << 16 and 0 < height < 1 << 16):
        raise MalformedMessageError(f"a resolution of {width}x{height}")
    return width, height
