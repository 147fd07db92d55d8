"""Pictures that are not tied to a decoder."""

from __future__ import annotations

import cv2
import numpy as np

from sam3_stream.core.records import ImageArray, PixelFormat


class ArrayPicture:
    """A `Picture` over an array that is in memory already.

    Args:
        rgb: uint8 array of shape (height, width, 3), RGB. Not copied; must not change afterwards.

    Raises:
        ValueError: The array is not a uint8 RGB picture.
    """

    def __init__(self, rgb: ImageArray) -> None:
        if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.size == 0:
            raise ValueError(f"expected a uint8 array of shape (height, width, 3), got {rgb.dtype} {rgb.shape}")
        self._rgb = rgb

    @property
    def width(self) -> int:
        """Displayed width in pixels."""
        return int(self._rgb.shape[1])

    @property
    def height(self) -> int:
        """Displayed height in pixels."""
        return int(self._rgb.shape[0])

    def to_ndarray(self, pixel_format: PixelFormat = "rgb24", size: tuple[int, int] | None = None) -> ImageArray:
        """Convert to a new array of shape (height, width, 3); `size` is (width, height), scaled by area."""
        image = self._rgb
        if size is not None and size != (self.width, self.height):
            image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
        if pixel_format == "bgr24":
            image = image[:, :, ::-1]
        return np.array(image, order="C")
