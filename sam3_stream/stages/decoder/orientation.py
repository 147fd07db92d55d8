"""Which way up a coded picture is to be displayed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import av
import cv2
import numpy as np
from av.sidedata.sidedata import SideData, Type

from sam3_stream.core.records import ImageArray

_ROTATIONS = {90: cv2.ROTATE_90_CLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_COUNTERCLOCKWISE}
_EXIF = {2: (0, True), 3: (180, False), 4: (180, True), 5: (90, True), 6: (90, False), 7: (270, True), 8: (270, False)}


@dataclass(frozen=True, slots=True)
class Orientation:
    """How to get from the coded to the displayed picture: turn it, then mirror it left to right.

    Attributes:
        rotation: Clockwise degrees: 0, 90, 180 or 270.
        mirrored: Whether the turned picture is mirrored as well, as front cameras and EXIF may ask for.
    """

    rotation: int = 0
    mirrored: bool = False

    @classmethod
    def of(cls, frame: av.VideoFrame) -> Orientation:
        """The orientation that the frame's display matrix asks for, to the nearest quarter turn.

        The matrix (a, b, u, c, d, v, x, y, w) maps coded (p, q) to displayed (a p + c q, b p + d q), y down
        (libavutil/display.h).
        """
        try:
            matrix = next((bytes(item) for item in _side_data(frame) if item.type == Type.DISPLAYMATRIX), None)
        except ValueError:  # PyAV 18.1 cannot list the side data of a frame with EXIF data, and knows the turn only
            return cls(_nearest_quarter_turn(-frame.rotation))
        if matrix is None:
            return cls()
        a, b, _, c, d = np.frombuffer(matrix, dtype=np.int32)[:5].astype(float)
        mirrored = bool(a * d - b * c < 0)
        if mirrored:  # undo the mirroring, which comes last, to see the turn alone
            a, c = -a, -c
        return cls(_nearest_quarter_turn(np.degrees(np.arctan2(b - c, a + d))), mirrored)

    @classmethod
    def from_exif(cls, orientation: int) -> Orientation:
        """The orientation that this value of the EXIF tag 0x0112 stands for."""
        return cls(*_EXIF.get(orientation, (0, False)))

    @property
    def swaps_sides(self) -> bool:
        """Whether displayed width is coded height."""
        return self.rotation in (90, 270)

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Displayed (width, height) of a coded size, and the other way round."""
        return size[::-1] if self.swaps_sides else size

    def apply(self, image: ImageArray) -> ImageArray:
        """Turn and mirror an image of shape (height, width, channels)."""
        if self.rotation:
            image = np.asarray(cv2.rotate(image, _ROTATIONS[self.rotation]), dtype=np.uint8)
        if self.mirrored:
            image = np.asarray(cv2.flip(image, 1), dtype=np.uint8)
        return image


def _nearest_quarter_turn(degrees: float) -> int:
    return int(round(degrees / 90) * 90 % 360)


def _side_data(frame: av.VideoFrame) -> Iterable[SideData]:
    return cast("Iterable[SideData]", frame.side_data)  # PyAV's type stub tells of motion vectors only
