"""A part of the picture, seen by the network at a size where details show."""

from __future__ import annotations

import cv2
import numpy as np

from sam3_stream.core.records import MaskArray, Picture
from sam3_stream.models.lite.backbone import INPUT_MULTIPLE, Backbone, FloatArray
from sam3_stream.models.lite.features import FourierColour, FrameView, Standardisation, encode_picture

CROP_MARGIN = 0.35
CROP_AREA = 320 * 320

Box = tuple[float, float, float, float]


class CloserLook:
    """The part of a picture around a box, encoded on its own.

    Args:
        backbone: The network.
        colour: The model's colour features.
        picture: The whole picture.
        box: (x0, y0, x1, y1) in pixels of the picture.
        margin: How far the part reaches beyond each side of the box, as a share of the box's side.

    Attributes:
        rgb: uint8 (h, w, 3), the part as the network saw it.
        view: Its features.
    """

    def __init__(
        self, backbone: Backbone, colour: FourierColour, picture: Picture, box: Box, margin: float = CROP_MARGIN
    ) -> None:
        self._backbone = backbone
        self._picture_shape = picture.height, picture.width
        x0, y0, x1, y1 = box
        margin_x, margin_y = margin * (x1 - x0), margin * (y1 - y0)
        self._left, self._top = max(int(x0 - margin_x), 0), max(int(y0 - margin_y), 0)
        self._right = min(int(np.ceil(x1 + margin_x)), picture.width)
        self._bottom = min(int(np.ceil(y1 + margin_y)), picture.height)
        crop = picture.to_ndarray("rgb24")[self._top : self._bottom, self._left : self._right]
        size = working_size(crop.shape[1], crop.shape[0], CROP_AREA)
        interpolation = cv2.INTER_AREA if size[0] < crop.shape[1] else cv2.INTER_LINEAR
        self.rgb = np.asarray(cv2.resize(crop, size, interpolation=interpolation), np.uint8)
        features = encode_picture(backbone, self.rgb, self.rgb)
        self.view = FrameView(features, Standardisation.of(features), colour)

    @property
    def offset(self) -> tuple[int, int]:
        """(x, y) of the part's corner in the picture."""
        return self._left, self._top

    @property
    def crop_size(self) -> tuple[int, int]:
        """(width, height) of the part in pixels of the picture."""
        return self._right - self._left, self._bottom - self._top

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the part as the network saw it."""
        return self.rgb.shape[1], self.rgb.shape[0]

    def class_logits(self) -> FloatArray:
        """Class activation maps: float32 (1000, h / 32, w / 32)."""
        return class_logits(self._backbone, self.view)

    def place(self, mask: MaskArray) -> MaskArray:
        """A mask of the part as a mask of the whole picture."""
        whole = np.zeros(self._picture_shape, np.bool_)
        whole[self._top : self._bottom, self._left : self._right] = resize_mask(mask, self.crop_size)
        return whole


def class_logits(backbone: Backbone, view: FrameView) -> FloatArray:
    """Class activation maps of an encoded picture: float32 (1000, h / 32, w / 32)."""
    last_tap_nchw = np.ascontiguousarray(view.features.levels_hwc[-1].transpose(2, 0, 1))[None]
    return np.asarray(backbone.class_logits(last_tap_nchw)[0], np.float32)


def working_size(width: int, height: int, area: float) -> tuple[int, int]:
    """(width, height) of about this area with the picture's aspect, both multiples of 32 and at least 64."""
    scale = (area / (width * height)) ** 0.5
    sides = (max(2, round(side * scale / INPUT_MULTIPLE)) * INPUT_MULTIPLE for side in (width, height))
    return next(sides), next(sides)


def resize_mask(mask: MaskArray, size: tuple[int, int]) -> MaskArray:
    """A bool mask at another (width, height)."""
    if (mask.shape[1], mask.shape[0]) == size:
        return mask
    return np.asarray(cv2.resize(mask.astype(np.float32), size)) > 0.5
