"""Snap a coarse mask to the picture's edges: the colour guided filter.

He, Sun & Tang, "Guided Image Filtering", TPAMI 2013, with the fast variant's trick (He & Sun, 2015): the linear
coefficients are computed on the coarse grid and applied at full size.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import ImageArray
from sam3_stream.models.lite.backbone import FloatArray

RADIUS = 2
EPSILON = 1e-5
MASK_FLOOR = 0.3
MARGIN = 2
_SUM_OF_CHANNELS = np.ones((1, 3), np.float32)


def _mean(image: FloatArray) -> FloatArray:
    side = 2 * RADIUS + 1
    return np.asarray(cv2.blur(image, (side, side), borderType=cv2.BORDER_REFLECT), np.float32)


class GuidedFilter:
    """The guided filter of one picture, for any number of masks.

    Args:
        guide_hw3: float32 (h, w, 3), 0 to 1.
    """

    def __init__(self, guide_hw3: FloatArray) -> None:
        self._guide = guide_hw3
        self._mean_guide = _mean(guide_hw3)
        r, g, b = cv2.split(guide_hw3)
        products = np.stack([r * r, r * g, r * b, g * g], axis=2), np.stack([g * b, b * b], axis=2)
        moments = np.concatenate([_mean(part) for part in products], axis=2)
        mr, mg, mb = cv2.split(self._mean_guide)
        means = np.stack([mr * mr, mr * mg, mr * mb, mg * mg, mg * mb, mb * mb], axis=2)
        rr, rg, rb, gg, gb, bb = np.moveaxis(moments - means, 2, 0)
        rr, gg, bb = rr + EPSILON, gg + EPSILON, bb + EPSILON
        cofactors = (gg * bb - gb * gb, gb * rb - rg * bb, rg * gb - gg * rb)
        determinant = rr * cofactors[0] + rg * cofactors[1] + rb * cofactors[2]
        self._inverse = (
            np.stack([*cofactors, rr * bb - rb * rb, rb * rg - rr * gb, rr * gg - rg * rg], axis=0) / determinant
        )

    def fit(self, mask_hw: FloatArray) -> LocalLinearModel:
        """The linear models mask = slope · guide + offset around every place of a float32 (h, w) mask."""
        mean_mask = _mean(mask_hw)
        covariance = _mean(self._guide * mask_hw[:, :, None]) - self._mean_guide * mean_mask[:, :, None]
        cr, cg, cb = np.moveaxis(covariance, 2, 0)
        rr, rg, rb, gg, gb, bb = self._inverse
        slope = np.stack(
            [rr * cr + rg * cg + rb * cb, rg * cr + gg * cg + gb * cb, rb * cr + gb * cg + bb * cb], axis=2
        )
        offset = mean_mask - np.einsum("hwc,hwc->hw", slope, self._mean_guide)
        return LocalLinearModel(_mean(slope), _mean(offset))


@dataclass(frozen=True, slots=True, eq=False)
class LocalLinearModel:
    """What a mask is as a function of the picture's colour, place by place.

    Attributes:
        slope_hw3: float32 (h, w, 3).
        offset_hw: float32 (h, w).
    """

    slope_hw3: FloatArray
    offset_hw: FloatArray

    def apply(self, guide_hw3: FloatArray) -> FloatArray:
        """The mask on the guide that the model was fitted on: float32 (h, w), 0 to 1."""
        mask = np.einsum("hwc,hwc->hw", self.slope_hw3, guide_hw3) + self.offset_hw
        return np.asarray(np.clip(mask, 0, 1), np.float32)

    def upsample(self, mask_hw: FloatArray, fine_rgb: ImageArray) -> FloatArray:
        """The mask at the fine picture's size, computed only in the box around the coarse mask.

        Args:
            mask_hw: The coarse mask, float32 (h, w).
            fine_rgb: uint8 (height, width, 3).

        Returns:
            float32 (height, width), about 0 to 1.
        """
        height, width = fine_rgb.shape[:2]
        fine = np.zeros((height, width), np.float32)
        box = _box_around(mask_hw > MASK_FLOOR)
        if box is None:
            return fine
        rows, columns = box
        scale_y, scale_x = height / mask_hw.shape[0], width / mask_hw.shape[1]
        fine_rows = slice(round(rows.start * scale_y), round(rows.stop * scale_y))
        fine_columns = slice(round(columns.start * scale_x), round(columns.stop * scale_x))
        size = fine_columns.stop - fine_columns.start, fine_rows.stop - fine_rows.start
        slope, offset = (cv2.resize(part[rows, columns], size) for part in (self.slope_hw3, self.offset_hw))
        guide = fine_rgb[fine_rows, fine_columns]
        coloured = cv2.multiply(slope, guide, scale=1 / 255, dtype=cv2.CV_32F)
        fine[fine_rows, fine_columns] = cv2.transform(coloured, _SUM_OF_CHANNELS) + offset
        return fine


def _box_around(flags: npt.NDArray[np.bool_]) -> tuple[slice, slice] | None:
    """The rows and columns around the cells that are set, with a margin; None when none is."""
    rows, columns = np.flatnonzero(flags.any(axis=1)), np.flatnonzero(flags.any(axis=0))
    if rows.size == 0:
        return None
    return (
        slice(max(int(rows[0]) - MARGIN, 0), min(int(rows[-1]) + 1 + MARGIN, flags.shape[0])),
        slice(max(int(columns[0]) - MARGIN, 0), min(int(columns[-1]) + 1 + MARGIN, flags.shape[1])),
    )
