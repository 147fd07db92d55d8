"""Decoded pictures on the wire: their planes as the decoder made them, so that nothing is converted or lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import av
import numpy as np
from av.video.plane import VideoPlane

from sam3_stream.core.records import ImageArray, Picture
from sam3_stream.stages.decoder.frame_tags import CHROMA_LOCATIONS, ChromaLocations, FrameTagger
from sam3_stream.stages.decoder.orientation import Orientation
from sam3_stream.stages.decoder.picture import VideoPicture
from sam3_stream.transport.pictures import RgbPictures, expect
from sam3_stream.transport.wire_format import MalformedMessageError, Parts, PictureLayout


class RawPictures:
    """Sends a `VideoPicture` as planes and any other picture as RGB; what arrives gives the same pixels to the bit."""

    stands_alone = True

    def __init__(self) -> None:
        self._rgb = RgbPictures()
        self._chroma_locations = ChromaLocations()
        self._form: tuple[int, int, str] | None = None
        self._planes: list[_Plane] = []

    def pack(self, picture: Picture) -> tuple[PictureLayout, Parts]:
        if not isinstance(picture, VideoPicture):
            return self._rgb.pack(picture)
        frame, orientation = picture.decoded, picture.orientation
        layout = PictureLayout(
            encoding="raw",
            width=picture.width,
            height=picture.height,
            pixel_format=frame.format.name,
            coded_width=frame.width,
            coded_height=frame.height,
            strides=[plane.line_size for plane in frame.planes],
            rotation=orientation.rotation,
            mirrored=orientation.mirrored,
            colour=[int(frame.colorspace), int(frame.color_range), int(frame.color_primaries), int(frame.color_trc)],
            chroma_location=self._chroma_locations.of(frame),
            interlaced=frame.interlaced_frame,
            buffers=len(frame.planes),
        )
        return layout, [memoryview(plane).cast("B") for plane in frame.planes]

    def unpack(self, layout: PictureLayout, buffers: Sequence[memoryview]) -> Picture:
        if not layout.coded_width:
            return self._rgb.unpack(layout, buffers)
        expect(layout, buffers, "raw", count=len(layout.strides))
        orientation = Orientation(layout.rotation, layout.mirrored)
        if orientation.size((layout.coded_width, layout.coded_height)) != (layout.width, layout.height):
            raise MalformedMessageError("a picture whose displayed size is not that of its coded one")
        if layout.chroma_location not in CHROMA_LOCATIONS or len(layout.colour) != 4:
            raise MalformedMessageError(f"the chroma location {layout.chroma_location!r}, colour {layout.colour}")
        form = (layout.coded_width, layout.coded_height, layout.pixel_format)
        if self._form != form:
            self._form, self._planes = form, _geometry(*form)
        if len(self._planes) != len(buffers):
            raise MalformedMessageError(f"{len(buffers)} planes for a picture of format {layout.pixel_format}")
        for plane, stride, buffer in zip(self._planes, layout.strides, buffers, strict=True):
            plane.check(stride, buffer)
        return ArrivedPicture(layout, buffers, orientation)

    def restart(self) -> None:
        """Every picture stands alone."""


class ArrivedPicture(VideoPicture):
    """A picture whose planes lie in a message's buffers until somebody looks at it.

    Args:
        layout: Checked, and fits the buffers.
        buffers: The planes.
        orientation: How the coded picture is displayed.
    """

    __slots__ = ("_buffers", "_layout")

    def __init__(self, layout: PictureLayout, buffers: Sequence[memoryview], orientation: Orientation) -> None:
        self._layout = layout
        self._buffers: Sequence[memoryview] | None = buffers
        self._prepare(orientation, (layout.coded_width, layout.coded_height))

    @property
    def decoded(self) -> av.VideoFrame:
        with self._lock:
            if self._buffers is not None:
                self._frame = _to_frame(self._layout, self._buffers)
                self._buffers = None
        return self._frame


def _to_frame(layout: PictureLayout, buffers: Sequence[memoryview]) -> av.VideoFrame:
    frame = av.VideoFrame(layout.coded_width, layout.coded_height, layout.pixel_format)
    for plane, stride, buffer in zip(frame.planes, layout.strides, buffers, strict=True):
        _fill(plane, stride, buffer)
    frame = FrameTagger.of_this_thread().tag(frame, layout.chroma_location, layout.interlaced)
    frame.colorspace, frame.color_range, frame.color_primaries, frame.color_trc = layout.colour
    return frame


@dataclass(frozen=True, slots=True)
class _Plane:
    """What a plane of a frame of some size and format must be."""

    rows: int
    width: int
    size: int

    def check(self, stride: int, buffer: memoryview) -> None:
        """Raise `MalformedMessageError` unless the buffer holds the plane's rows."""
        if self.rows == 0:
            if buffer.nbytes != self.size:
                raise MalformedMessageError(f"a palette of {buffer.nbytes} bytes; expected {self.size}")
        elif stride < self.width or buffer.nbytes != stride * self.rows:
            raise MalformedMessageError(
                f"a plane of {buffer.nbytes} bytes in rows of {stride}; expected {self.rows} rows of {self.width} bytes"
            )


def _geometry(width: int, height: int, pixel_format: str) -> list[_Plane]:
    """The planes of such a frame; 0 rows for a palette."""
    try:
        frame = av.VideoFrame(width, height, pixel_format)
    except (ValueError, OverflowError, av.FFmpegError) as error:
        raise MalformedMessageError(f"a frame of {width}x{height} {pixel_format!r}: {error}") from error
    return [
        _Plane(plane.buffer_size // plane.line_size if plane.line_size else 0, plane.width, plane.buffer_size)
        for plane in frame.planes
    ]


def _fill(plane: VideoPlane, stride: int, buffer: memoryview) -> None:
    """Copy the rows of a buffer into a plane whose rows may be of another length."""
    if plane.line_size == 0:  # a palette
        plane.update(bytes(buffer))
        return
    rows, row_bytes = plane.buffer_size // plane.line_size, min(plane.line_size, stride)
    target: ImageArray = np.frombuffer(memoryview(plane), np.uint8).reshape(rows, plane.line_size)
    target[:, :row_bytes] = np.frombuffer(buffer, np.uint8).reshape(rows, stride)[:, :row_bytes]
