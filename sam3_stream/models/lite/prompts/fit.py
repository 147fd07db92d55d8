"""From a rough idea of where an object is to a mask: fit, score, filter, repeat; then GrabCut on the pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import ImageArray, MaskArray
from sam3_stream.models.lite.backbone import FloatArray
from sam3_stream.models.lite.features import FrameView
from sam3_stream.models.lite.ridge import RidgeMemory

SLOPE = 4.0
PRIOR_FLOOR = 0.05
PRIOR_SHARES = (1.0, 0.5, 0.25, 0.1)
STEADY_PRIOR = (1.0, 1.0, 1.0, 1.0)
GRABCUT_ITERATIONS = 2
CLICK_RADIUS = 2.5


@dataclass(frozen=True, slots=True, eq=False)
class Clicks:
    """Clicks on one object: float32 (n, 2) x and y in pixels of the picture they are in, and bool (n,) their signs."""

    points_n2: npt.NDArray[np.float32]
    positive_n: npt.NDArray[np.bool_]

    def moved(self, offset_xy: tuple[float, float], scale_xy: tuple[float, float]) -> Clicks:
        """The same clicks after a crop at an offset and a scaling."""
        points = (self.points_n2 - np.array(offset_xy, np.float32)) * np.array(scale_xy, np.float32)
        return Clicks(points.astype(np.float32), self.positive_n)

    def first_positive(self) -> Clicks:
        """The first click that is on the object, alone."""
        first = np.flatnonzero(self.positive_n)[:1]
        return Clicks(self.points_n2[first], self.positive_n[first])

    def disks(self, shape: tuple[int, int], *, positive: bool, radius: float = CLICK_RADIUS) -> npt.NDArray[np.bool_]:
        """Cells within `radius` of a click of this sign; the clicked cell always is."""
        height, width = shape
        ys, xs = np.mgrid[0:height, 0:width].astype(np.float32) + np.float32(0.5)
        marked = np.zeros(shape, np.bool_)
        for x, y in self.points_n2[self.positive_n == positive]:
            marked |= (xs - x) ** 2 + (ys - y) ** 2 <= radius**2
            marked[min(max(int(y), 0), height - 1), min(max(int(x), 0), width - 1)] = True
        return marked


@dataclass(frozen=True, slots=True, eq=False)
class Certainties:
    """What the user said of places: bool (h, w) each, where the object certainly is and where it certainly is not."""

    inside: npt.NDArray[np.bool_]
    outside: npt.NDArray[np.bool_]

    @classmethod
    def none(cls, shape: tuple[int, int]) -> Certainties:
        return cls(np.zeros(shape, np.bool_), np.zeros(shape, np.bool_))

    @classmethod
    def of(cls, clicks: Clicks, shape: tuple[int, int]) -> Certainties:
        """A disk around every click, which is in cells of a grid of this (height, width)."""
        return cls(clicks.disks(shape, positive=True), clicks.disks(shape, positive=False))

    def without(self, outside: npt.NDArray[np.bool_]) -> Certainties:
        """The same, and the object is certainly not here either."""
        return Certainties(self.inside, self.outside | outside)

    def enlarge(self, shape: tuple[int, ...]) -> Certainties:
        """The same on a finer grid of this (height, width)."""
        height, width = shape
        inside, outside = (
            np.asarray(cv2.resize(part.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST)) > 0
            for part in (self.inside, self.outside)
        )
        return Certainties(inside, outside)

    def put_into(self, probability: FloatArray) -> FloatArray:
        """A probability map that agrees with what is known."""
        agreed = probability.copy()
        agreed[self.outside] = 0
        agreed[self.inside] = 1
        return agreed


def sigmoid(x: FloatArray) -> FloatArray:
    """Logistic function."""
    return np.asarray(1 / (1 + np.exp(-x)), np.float32)


def log_odds(probability: FloatArray, floor: float) -> FloatArray:
    """Logarithm of p / (1 - p) with p kept `floor` away from 0 and 1."""
    clipped = np.clip(probability, floor, 1 - floor)
    return np.asarray(np.log(clipped / (1 - clipped)), np.float32)


def fit_rounds(
    view: FrameView,
    prior: FloatArray,
    ridge_lambda: float,
    known: Certainties,
    prior_shares: Sequence[float] = STEADY_PRIOR,
    score_offset: float = 0.0,
) -> FloatArray:
    """Let a classifier that learns from the prior correct it, round after round.

    Args:
        view: The picture.
        prior: float32 (h, w) on the stride-4 grid, 0 to 1.
        ridge_lambda: Regularisation of the classifier.
        known: What is certain.
        prior_shares: For every round, how much of the prior's log-odds counts beside the classifier's score.
        score_offset: Added to the score; less than 0 leaves to the background what could be either.

    Returns:
        float32 (h, w), 0 to 1.
    """
    probability = known.put_into(prior)
    log_prior = log_odds(prior, PRIOR_FLOOR)
    for share in prior_shares:
        classifier = RidgeMemory.of(view.rows, probability).solve(ridge_lambda)
        score = view.scores(classifier[None])[0] + np.float32(score_offset)
        probability = known.put_into(sigmoid(SLOPE * score + share * log_prior))
        probability = view.edges.fit(probability).apply(view.features.grid_rgb)
    return probability


def grabcut(rgb: ImageArray, probability: FloatArray, known: Certainties) -> MaskArray:
    """GrabCut (Rother et al., 2004) from a probability map.

    Args:
        rgb: uint8 (h, w, 3).
        probability: float32 (h, w).
        known: What is certain, at the same size.
    """
    labels = np.where(probability > 0.5, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[known.outside] = cv2.GC_BGD
    labels[known.inside] = cv2.GC_FGD
    foreground = (labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)
    if foreground.all() or not foreground.any():  # GrabCut needs pixels of both kinds
        return np.asarray(foreground)
    cv2.setRNGSeed(0)  # its colour models start from k-means: the same prompt must give the same mask
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(rgb[:, :, ::-1].copy(), labels, None, *models, GRABCUT_ITERATIONS, cv2.GC_INIT_WITH_MASK)
    return np.asarray((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD))
