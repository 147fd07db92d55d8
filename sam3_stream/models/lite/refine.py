"""Snap a coarse mask to the picture's edges: the colour guided filter.

He, Sun & Tang, "Guided Image Filtering", TPAMI 2013, with the fast variant's trick (He & Sun, 2015): the linear
coefficients are computed on the coarse grid and applied at full size.
"""

from __future__ import annotations

import cv2
import numpy as np

from sam3_stream.core.records import ImageArray
from sam3_stream.models.lite.backbone import FloatArray

RADIUS = 2
EPSILON = 1e-5


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

    def coefficients(self, mask_hw: FloatArray) -> FloatArray:
        """The linear model mask = a · guide + b around every place: float32 (h, w, 4), a first."""
        mean_mask = _mean(mask_hw)
        covariance = _mean(self._guide * mask_hw[:, :, None]) - self._mean_guide * mean_mask[:, :, None]
        cr, cg, cb = np.moveaxis(covariance, 2, 0)
        rr, rg, rb, gg, gb, bb = self._inverse
        linear = np.empty((*mask_hw.shape, 4), np.float32)
        linear[:, :, 0] = rr * cr + rg * cg + rb * cb
        linear[:, :, 1] = rg * cr + gg * cg + gb * cb
        linear[:, :, 2] = rb * cr + gb * cg + bb * cb
        linear[:, :, 3] = mean_mask - np.einsum("hwc,hwc->hw", linear[:, :, :3], self._mean_guide)
        return _mean(linear)


def apply_coefficients(linear_hw4: FloatArray, guide_hw3: FloatArray) -> FloatArray:
    """Evaluate the linear model on a guide of the same size; clipped to 0..1."""
    mask = np.einsum("hwc,hwc->hw", linear_hw4[:, :, :3], guide_hw3) + linear_hw4[:, :, 3]
    return np.asarray(np.clip(mask, 0, 1), np.float32)


def upsample_mask(linear_hw4: FloatArray, mask_hw: FloatArray, fine_rgb: ImageArray, margin: int = 2) -> FloatArray:
    """The mask at the fine picture's size, computed only in the box around the coarse mask.

    Args:
        linear_hw4: From `GuidedFilter.coefficients`.
        mask_hw: The coarse mask, float32 (h, w).
        fine_rgb: uint8 (height, width, 3).
        margin: Cells that the box reaches beyond the coarse mask.
    """
    height, width = fine_rgb.shape[:2]
    fine = np.zeros((height, width), np.float32)
    grid_height, grid_width = mask_hw.shape
    rows, columns = np.flatnonzero((mask_hw > 0.3).any(axis=1)), np.flatnonzero((mask_hw > 0.3).any(axis=0))
    if rows.size == 0:
        return fine
    y0, y1 = max(int(rows[0]) - margin, 0), min(int(rows[-1]) + 1 + margin, grid_height)
    x0, x1 = max(int(columns[0]) - margin, 0), min(int(columns[-1]) + 1 + margin, grid_width)
    top, bottom = round(y0 * height / grid_height), round(y1 * height / grid_height)
    left, right = round(x0 * width / grid_width), round(x1 * width / grid_width)
    linear = cv2.resize(linear_hw4[y0:y1, x0:x1], (right - left, bottom - top))
    guide = np.divide(fine_rgb[top:bottom, left:right], 255, dtype=np.float32)
    fine[top:bottom, left:right] = apply_coefficients(np.asarray(linear, np.float32), guide)
    return fine
