"""Decoded pictures on the wire: their planes as the decoder made them, so that nothing is converted or lost."""

from __future__ import annotations

from collections.abc import Sequence

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

    def __init__(self) -> None:
        self._rgb = RgbPictures()
        self._chroma_locations = ChromaLocations()
        self._tagger = FrameTagger()

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
        if layout.chroma_location not in CHROMA_LOCATIONS:
            raise MalformedMessageError(f"the chroma location {layout.chroma_location!r}")
        try:
            frame = av.VideoFrame(layout.coded_width, layout.coded_height, layout.pixel_format)
            frame = self._tagger.tag(frame, layout.chroma_location, layout.interlaced)
            frame.colorspace, frame.color_range, frame.color_primaries, frame.color_trc = layout.colour
        except (ValueError, OverflowError, av.FFmpegError) as error:
            raise MalformedMessageError(str(error)) from error
        if len(frame.planes) != len(buffers):
            raise MalformedMessageError(f"{len(buffers)} planes for a picture of format {layout.pixel_format}")
        for plane, stride, buffer in zip(frame.planes, layout.strides, buffers, strict=True):
            _fill(plane, stride, buffer)
        return VideoPicture(frame, orientation)

    def restart(self) -> None:
        """Every picture stands alone."""


def _fill(plane: VideoPlane, stride: int, buffer: memoryview) -> None:
    """Copy the rows of a buffer into a plane whose rows may be of another length."""
    if plane.line_size == 0:  # a palette
        if buffer.nbytes != plane.buffer_size:
            raise MalformedMessageError(f"a palette of {buffer.nbytes} bytes; expected {plane.buffer_size}")
        plane.update(bytes(buffer))
        return
    rows, row_bytes = plane.buffer_size // plane.line_size, min(plane.line_size, stride)
    if stride <= 0 or buffer.nbytes != stride * rows or stride < plane.width:
        raise MalformedMessageError(f"a plane of {buffer.nbytes} bytes in rows of {stride}; expected {rows} rows")
    target: ImageArray = np.frombuffer(memoryview(plane), np.uint8).reshape(rows, plane.line_size)
    target[:, :row_bytes] = np.frombuffer(buffer, np.uint8).reshape(rows, stride)[:, :row_bytes]
