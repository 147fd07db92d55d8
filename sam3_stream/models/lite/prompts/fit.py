"""From a rough idea of where an object is to a mask: fit, score, filter, repeat; then GrabCut on the pixels."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import ImageArray, MaskArray
from sam3_stream.models.lite.backbone import FloatArray
from sam3_stream.models.lite.features import FrameView
from sam3_stream.models.lite.ridge import RidgeMemory

ROUNDS = 4
SLOPE = 4.0
PRIOR_FLOOR = 0.05
GRABCUT_ITERATIONS = 2


def sigmoid(x: FloatArray) -> FloatArray:
    """Logistic function."""
    return np.asarray(1 / (1 + np.exp(-x)), np.float32)


def log_odds(probability: FloatArray, floor: float) -> FloatArray:
    """Logarithm of p / (1 - p) with p kept `floor` away from 0 and 1."""
    clipped = np.clip(probability, floor, 1 - floor)
    return np.asarray(np.log(clipped / (1 - clipped)), np.float32)


def fit_rounds(
    view: FrameView, prior: FloatArray, ridge_lambda: float, constrain: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Let a classifier that learns from the prior correct it, a few times over.

    Args:
        view: The picture.
        prior: float32 (h, w) on the stride-4 grid, 0 to 1.
        ridge_lambda: Regularisation of the classifier.
        constrain: Puts what is known for certain into a probability map.

    Returns:
        float32 (h, w), 0 to 1.
    """
    probability = constrain(prior)
    guide = view.features.grid_rgb
    for _ in range(ROUNDS):
        memory = RidgeMemory.of(view.rows, probability)
        score = (view.rows @ memory.solve(ridge_lambda)).reshape(prior.shape)
        probability = constrain(sigmoid(SLOPE * score + log_odds(prior, PRIOR_FLOOR)))
        probability = view.edges.fit(probability).apply(guide)
    return probability


def grabcut(
    rgb: ImageArray, probability: FloatArray, inside: npt.NDArray[np.bool_], outside: npt.NDArray[np.bool_]
) -> MaskArray:
    """GrabCut (Rother et al., 2004) from a probability map.

    Args:
        rgb: uint8 (h, w, 3).
        probability: float32 (h, w).
        inside: bool (h, w), certainly the object.
        outside: bool (h, w), certainly not.
    """
    labels = np.where(probability > 0.5, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[outside] = cv2.GC_BGD
    labels[inside] = cv2.GC_FGD
    foreground = (labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)
    if foreground.all() or not foreground.any():  # GrabCut needs pixels of both kinds
        return np.asarray(foreground)
    cv2.setRNGSeed(0)  # its colour models start from k-means: the same prompt must give the same mask
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(rgb[:, :, ::-1].copy(), labels, None, *models, GRABCUT_ITERATIONS, cv2.GC_INIT_WITH_MASK)
    return np.asarray((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD))
