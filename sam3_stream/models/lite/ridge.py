"""The classifier of one object: weighted ridge regression in closed form, learning online.

w = (XᵀWX + λI)⁻¹ XᵀWy with y = +1 on the object and -1 off it. The memory is only XᵀWX and XᵀWy, averaged over time, so
its size is constant and hundreds of frames of appearance live in 160 kB.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from sam3_stream.models.lite.backbone import FloatArray
from sam3_stream.models.lite.features import ROW_LENGTH

RIDGE_LAMBDA = 0.01
NEARNESS_GAIN = 8.0
NEARNESS_SIGMA = 10.0
OUTLINE_DILATE, OUTLINE_ERODE = 13, 7
INSIDE_STEP, OUTSIDE_STEP = 2, 3


@dataclass(slots=True, eq=False)
class RidgeMemory:
    """Second moments of what was seen so far: float32 (rows, rows) and (rows,)."""

    gram: FloatArray
    moment: FloatArray

    @classmethod
    def empty(cls) -> RidgeMemory:
        return cls(np.zeros((ROW_LENGTH, ROW_LENGTH), np.float32), np.zeros(ROW_LENGTH, np.float32))

    def learn(self, rows: FloatArray, probability: FloatArray, rate: float) -> None:
        """Blend one labelled frame in: new = (1 - rate) * old + rate * frame.

        Args:
            rows: float32 (h * w, rows), from `build_rows`.
            probability: float32 (h, w), the object's probability on the same grid.
            rate: 0 to 1; 1 forgets all that was before.
        """
        cells, weights = _training_sample(probability)
        labels = np.where(probability.ravel()[cells] > 0.5, np.float32(1), np.float32(-1))
        sample = rows[cells]
        weighted = sample * weights[:, None]
        self.gram += np.float32(rate) * (weighted.T @ sample - self.gram)
        self.moment += np.float32(rate) * (weighted.T @ labels - self.moment)

    def solve(self, ridge_lambda: float = RIDGE_LAMBDA) -> FloatArray:
        """The weights of the classifier, float32 (rows,)."""
        regular = self.gram + np.eye(ROW_LENGTH, dtype=np.float32) * np.float32(ridge_lambda)
        return np.asarray(np.linalg.solve(regular, self.moment), np.float32)


def _training_sample(probability: FloatArray) -> tuple[np.ndarray, FloatArray]:
    """Which cells to learn from, and their weights: each class sums to one half."""
    inside = probability > 0.5
    mask = inside.astype(np.uint8)
    outline = cv2.dilate(mask, np.ones((OUTLINE_DILATE,) * 2, np.uint8)) > cv2.erode(
        mask, np.ones((OUTLINE_ERODE,) * 2, np.uint8)
    )
    density = np.zeros(probability.shape, np.float32)
    density[::OUTSIDE_STEP, ::OUTSIDE_STEP] = OUTSIDE_STEP**2
    inner = np.zeros_like(density)
    inner[::INSIDE_STEP, ::INSIDE_STEP] = INSIDE_STEP**2
    density = np.where(inside, inner, density)
    density[outline] = 1
    near = cv2.GaussianBlur(probability, (0, 0), NEARNESS_SIGMA)
    weight = density * np.abs(2 * probability - 1)
    weight *= np.where(inside, 1, 1 + NEARNESS_GAIN * near / (near.max() + 1e-6))
    for part in (inside, ~inside):
        total = weight[part].sum()
        if total > 0:
            weight[part] *= 0.5 / total
    cells = np.flatnonzero(weight)
    return cells, np.asarray(weight.ravel()[cells], np.float32)
