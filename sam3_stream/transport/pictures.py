"""Pictures on the wire: raw, JPEG, or left out. H.264 is in `transport.h264`, which keeps state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import cv2
import numpy as np

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import ImageArray, Picture, PixelFormat
from sam3_stream.transport.wire_format import Buffer, MalformedMessageError, Parts, PictureLayout

PictureEncoding = Literal["raw", "jpeg", "h264", "none"]


class PictureCodec(Protocol):
    """Turns pictures into buffers and back. One for each end of an edge."""

    @property
    def stands_alone(self) -> bool:
        """Whether the picture that was packed last can be read without those before it."""

    def pack(self, picture: Picture) -> tuple[PictureLayout, Parts]:
        """The picture's layout and buffers."""

    def unpack(self, layout: PictureLayout, buffers: Sequence[memoryview]) -> Picture:
        """The picture of a checked layout and its buffers; raises `MalformedMessageError`."""

    def restart(self) -> None:
        """The next picture must be decodable without those before it."""


class AbsentPicture:
    """A picture whose pixels were left out on the way, because nobody behind here looks at them."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height

    def to_ndarray(
        self,
        pixel_format: PixelFormat = "rgb24",  # noqa: ARG002 - the protocol's
        size: tuple[int, int] | None = None,  # noqa: ARG002
    ) -> ImageArray:
        raise ValueError("the pixels of this picture were left out on the way: its edge has pictures: none")


class NoPictures:
    """Leaves the pixels out: for edges behind which nobody looks at them."""

    stands_alone = True

    def pack(self, picture: Picture) -> tuple[PictureLayout, Parts]:
        return PictureLayout(encoding="none", width=picture.width, height=picture.height), []

    def unpack(self, layout: PictureLayout, buffers: Sequence[memoryview]) -> Picture:
        expect(layout, buffers, "none", count=0)
        return AbsentPicture(layout.width, layout.height)

    def restart(self) -> None:
        """Every picture stands alone."""


class RgbPictures:
    """Raw RGB: one buffer of width * height * 3 bytes."""

    stands_alone = True

    def pack(self, picture: Picture) -> tuple[PictureLayout, Parts]:
        rgb = picture.to_ndarray("rgb24")
        layout = PictureLayout(
            encoding="raw",
            width=picture.width,
            height=picture.height,
            pixel_format="rgb24",
            strides=[picture.width * 3],
            buffers=1,
        )
        return layout, [rgb.reshape(-1).data]

    def unpack(self, layout: PictureLayout, buffers: Sequence[memoryview]) -> Picture:
        expect(layout, buffers, "raw", count=1)
        row_bytes = layout.width * 3
        if layout.pixel_format != "rgb24" or layout.strides != [row_bytes] or layout.rotation or layout.mirrored:
            raise MalformedMessageError(f"raw {layout.pixel_format!r} with strides {layout.strides}; expected rgb24")
        if buffers[0].nbytes != row_bytes * layout.height:
            raise MalformedMessageError(f"{buffers[0].nbytes} bytes for {layout.width}x{layout.height} RGB pixels")
        return ArrayPicture(np.frombuffer(buffers[0], np.uint8).reshape(layout.height, layout.width, 3))

    def restart(self) -> None:
        """Every picture stands alone."""


class JpegPictures:
    """JPEG, for thin links; lossy, so results are not those of raw pictures to the bit.

    Args:
        quality: 1 to 100.
    """

    stands_alone = True

    def __init__(self, quality: int = 90) -> None:
        self._parameters = [cv2.IMWRITE_JPEG_QUALITY, quality]

    def pack(self, picture: Picture) -> tuple[PictureLayout, Parts]:
        _, jpeg = cv2.imencode(".jpg", picture.to_ndarray("bgr24"), self._parameters)
        layout = PictureLayout(encoding="jpeg", width=picture.width, height=picture.height, buffers=1)
        return layout, [jpeg.reshape(-1).data]

    def unpack(self, layout: PictureLayout, buffers: Sequence[memoryview]) -> Picture:
        expect(layout, buffers, "jpeg", count=1)
        data = np.frombuffer(buffers[0], np.uint8)
        if jpeg_size(buffers[0]) != (layout.width, layout.height):
            raise MalformedMessageError("not a JPEG picture of the size that its header names")
        try:
            rgb = cv2.imdecode(data, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        except cv2.error as error:
            raise MalformedMessageError("not a JPEG picture") from error
        if rgb is None or rgb.shape != (layout.height, layout.width, 3):
            raise MalformedMessageError("not a JPEG picture of the size that its header names")
        return ArrayPicture(np.asarray(rgb, np.uint8))

    def restart(self) -> None:
        """Every picture stands alone."""


def jpeg_size(data: Buffer) -> tuple[int, int] | None:
    """(width, height) from a JPEG's frame header (ITU-T T.81, B.2.2), without decoding it; None where there is none.

    A few bytes could otherwise ask the decoder for a picture of gigabytes.
    """
    view = memoryview(data)
    if bytes(view[:2]) != b"\xff\xd8":
        return None
    position = 2
    while position + 9 <= len(view) and view[position] == 0xFF:
        marker, length = view[position + 1], int.from_bytes(view[position + 2 : position + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height = int.from_bytes(view[position + 5 : position + 7], "big")
            return int.from_bytes(view[position + 7 : position + 9], "big"), height
        position += 2 + length
    return None


def expect(layout: PictureLayout, buffers: Sequence[memoryview], encoding: str, count: int) -> None:
    """Raise `MalformedMessageError` unless the picture is encoded so, in so many buffers."""
    if layout.encoding != encoding or len(buffers) != count:
        raise MalformedMessageError(
            f"a picture encoded as {layout.encoding!r} in {len(buffers)} buffers; expected {encoding!r} in {count}"
        )
