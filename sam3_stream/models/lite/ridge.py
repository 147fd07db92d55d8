"""The classifier of one object: weighted ridge regression in closed form, learning online.

w = (XᵀWX + λI)⁻¹ XᵀWy with y = +1 on the object and -1 off it. The memory is only XᵀWX and XᵀWy, averaged over time, so
its size is constant: hundreds of frames of appearance live in 160 kB, and what the user said of them in another 160 kB.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.models.lite.backbone import FloatArray
from sam3_stream.models.lite.features import ROW_LENGTH

RIDGE_LAMBDA = 0.01
SAID_SHARE = 0.5
CHANGED_WEIGHT = 2.0
NEARNESS_GAIN = 8.0
NEARNESS_SIGMA = 10.0
OUTLINE_DILATE, OUTLINE_ERODE = 13, 7
INSIDE_STEP, OUTSIDE_STEP = 2, 3


@dataclass(slots=True, eq=False)
class RidgeMemory:
    """Second moments of what was seen so far, twice: what the user said, which stays, and what was learnt since.

    A classifier of the recent frames alone follows its own mistakes; half a vote for the prompt holds it back.

    Attributes:
        gram: XᵀWX, the recent frames; float32 (rows, rows).
        moment: XᵀWy, the recent frames; float32 (rows,).
        said_gram: XᵀWX of the prompted frames.
        said_moment: XᵀWy of the prompted frames.
    """

    gram: FloatArray
    moment: FloatArray
    said_gram: FloatArray
    said_moment: FloatArray

    @classmethod
    def of(cls, rows: FloatArray, probability: FloatArray) -> RidgeMemory:
        """The memory of one prompted frame; arguments as for `learn`."""
        gram, moment = _moments(rows, probability)
        return cls(gram, moment, gram.copy(), moment.copy())

    def learn(self, rows: FloatArray, probability: FloatArray, rate: float) -> None:
        """Blend a tracked frame in: new = (1 - rate) * old + rate * frame.

        Args:
            rows: float32 (h * w, rows), `FrameView.rows`.
            probability: float32 (h, w), the object's probability on the same grid.
            rate: 0 to 1; 1 forgets all that was before.
        """
        gram, moment = _moments(rows, probability)
        self.gram += np.float32(rate) * (gram - self.gram)
        self.moment += np.float32(rate) * (moment - self.moment)

    def correct(self, rows: FloatArray, probability: FloatArray, rate: float, before: FloatArray | None) -> None:
        """Blend a frame in that the user had a say in; what that changed counts most.

        Args:
            rows: As for `learn`.
            probability: As for `learn`, with the correction.
            rate: As for `learn`.
            before: The probability without the correction; None when the object was not in the picture.
        """
        changed = None if before is None else (probability > 0.5) != (before > 0.5)
        gram, moment = _moments(rows, probability, changed)
        self.gram += np.float32(rate) * (gram - self.gram)
        self.moment += np.float32(rate) * (moment - self.moment)
        self.said_gram += np.float32(rate) * (gram - self.said_gram)
        self.said_moment += np.float32(rate) * (moment - self.said_moment)

    def solve(self, ridge_lambda: float = RIDGE_LAMBDA) -> FloatArray:
        """The weights of the classifier, float32 (rows,)."""
        said = np.float32(SAID_SHARE)
        gram = said * self.said_gram + (1 - said) * self.gram
        moment = said * self.said_moment + (1 - said) * self.moment
        gram[np.diag_indices(ROW_LENGTH)] += np.float32(ridge_lambda)
        return np.asarray(np.linalg.solve(gram, moment), np.float32)


def _moments(
    rows: FloatArray, probability: FloatArray, changed: npt.NDArray[np.bool_] | None = None
) -> tuple[FloatArray, FloatArray]:
    """XᵀWX and XᵀWy of one frame."""
    cells, weights = _training_sample(probability, changed)
    labels = np.where(probability.ravel()[cells] > 0.5, np.float32(1), np.float32(-1))
    sample = rows[cells]
    weighted = sample * weights[:, None]
    gram = np.asarray(weighted.T @ sample, np.float32)
    return gram, np.asarray(weighted.T @ labels, np.float32)


def _training_sample(
    probability: FloatArray, changed: npt.NDArray[np.bool_] | None = None
) -> tuple[npt.NDArray[np.intp], FloatArray]:
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
    if changed is not None:
        weight[changed] = CHANGED_WEIGHT * 0.5 / max(1, changed.sum())
    cells = np.flatnonzero(weight)
    return cells, np.asarray(weight.ravel()[cells], np.float32)
