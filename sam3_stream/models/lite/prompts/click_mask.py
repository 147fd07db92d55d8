"""From clicks to a mask of the object: the first click finds it, the others correct it."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import MaskArray, Picture
from sam3_stream.models.lite.backbone import FloatArray
from sam3_stream.models.lite.features import GRID_STRIDE, FrameView
from sam3_stream.models.lite.prompts.closer_look import resize_mask
from sam3_stream.models.lite.prompts.fit import (
    PRIOR_SHARES,
    Certainties,
    Clicks,
    fit_rounds,
    grabcut,
    log_odds,
    sigmoid,
)
from sam3_stream.models.lite.prompts.geodesic import edge_cost, geodesic_distance

CLICK_LAMBDA = 0.3
SIMILARITY_GAIN, SIMILARITY_CENTRE = 7.0, 0.35
DISTANCE_GAIN, DISTANCE_CENTRE = 3.3, 0.35
FIRST_SCORE_OFFSET = -0.1
CORRECTION_GAIN, CORRECTION_REACH = 6.0, 0.1
CORRECTION_FLOOR = 0.02
CORRECTION_GRABCUT_SHARE = 0.35
LAB_SCALE = 25.0
EDGE_BASE = 0.02


def mask_from_clicks(view: FrameView, picture: Picture, clicks: Clicks, current: FloatArray | None = None) -> MaskArray:
    """The object under the clicks.

    Args:
        view: The picture's features.
        picture: The picture.
        clicks: In pixels of the picture; at least one is positive unless `current` is given.
        current: What the object is thought to be so far, float32 (h, w) on the stride-4 grid.

    Returns:
        bool (height, width) at the picture's size.
    """
    height, width = view.grid_shape
    on_grid = clicks.moved((0, 0), (width / picture.width, height / picture.height))
    rgb = picture.to_ndarray("rgb24", size=(width * GRID_STRIDE, height * GRID_STRIDE))
    if current is None:
        mask = _find(view, rgb, on_grid.first_positive())
        if len(clicks.positive_n) == 1:
            return resize_mask(mask, (picture.width, picture.height))
        current = cv2.resize(mask.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA)
    return resize_mask(_correct(view, rgb, on_grid, current), (picture.width, picture.height))


def _find(view: FrameView, rgb: npt.NDArray[np.uint8], click: Clicks) -> MaskArray:
    """What looks like the place of the click and is not far from it, edges counting as distance."""
    known = Certainties.of(click, view.grid_shape)
    distance = _relative_distance(_crossing_cost(view), known.inside)
    evidence = SIMILARITY_GAIN * (_similarity(view, known.inside) - SIMILARITY_CENTRE)
    evidence -= DISTANCE_GAIN * (distance - DISTANCE_CENTRE)
    probability = fit_rounds(view, sigmoid(evidence), CLICK_LAMBDA, known, PRIOR_SHARES, FIRST_SCORE_OFFSET)
    known, probability = known.enlarge(rgb.shape[:2]), _enlarge(probability, rgb)
    return _components_under(grabcut(rgb, probability, known), known.inside)


def _correct(view: FrameView, rgb: npt.NDArray[np.uint8], clicks: Clicks, current: FloatArray) -> MaskArray:
    """The mask so far, changed near the clicks."""
    known = Certainties.of(clicks, view.grid_shape)
    cost = _crossing_cost(view)
    evidence = log_odds(current, CORRECTION_FLOOR)
    for sign, where in ((1, known.inside), (-1, known.outside)):
        if where.any():
            distance = _relative_distance(cost, where) / CORRECTION_REACH
            evidence += np.float32(sign * CORRECTION_GAIN) * np.exp(-np.square(distance))
    probability = fit_rounds(view, sigmoid(evidence), CLICK_LAMBDA, known)
    known, probability = known.enlarge(rgb.shape[:2]), _enlarge(probability, rgb)
    cut = grabcut(rgb, probability, known)
    voted = CORRECTION_GRABCUT_SHARE * cut + (1 - CORRECTION_GRABCUT_SHARE) * known.put_into(probability)
    return _components_under(voted > 0.5, known.inside | (_enlarge(current, rgb) > 0.5))


def _crossing_cost(view: FrameView) -> FloatArray:
    """What it costs to cross every cell: float32 (h, w)."""
    height, width = view.grid_shape
    lab = np.asarray(cv2.cvtColor(view.features.grid_rgb, cv2.COLOR_RGB2LAB), np.float32) / np.float32(LAB_SCALE)
    cost = edge_cost(np.concatenate([lab, *(cv2.resize(level, (width, height)) for level in view.levels)], axis=2))
    return cost + np.float32(EDGE_BASE)


def _relative_distance(cost: FloatArray, where: npt.NDArray[np.bool_]) -> FloatArray:
    """Geodesic distance in units of its own median."""
    distance = geodesic_distance(cost, where)
    return distance / (np.median(distance) + np.float32(1e-6))


def _similarity(view: FrameView, where: npt.NDArray[np.bool_]) -> FloatArray:
    """Mean cosine of the stride-8 and stride-16 features to those at a place: float32 (h, w), -1 to 1."""
    height, width = view.grid_shape
    total = np.zeros(view.grid_shape, np.float32)
    for level in view.levels[1:]:
        size = level.shape[1], level.shape[0]
        weight = cv2.resize(where.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        mean = np.einsum("hw,hwc->c", weight, level)
        total += cv2.resize(level @ (mean / (np.linalg.norm(mean) + np.float32(1e-6))), (width, height))
    return total / np.float32(2)


def _enlarge(probability: FloatArray, rgb: npt.NDArray[np.uint8]) -> FloatArray:
    """A probability map at the size of a picture."""
    return np.asarray(cv2.resize(probability, (rgb.shape[1], rgb.shape[0])), np.float32)


def _components_under(mask: MaskArray, anchors: npt.NDArray[np.bool_]) -> MaskArray:
    """The connected parts of the mask that touch an anchor."""
    _, labels = cv2.connectedComponents(mask.astype(np.uint8))
    touched = np.unique(labels[anchors & mask])
    return np.isin(labels, touched[touched > 0])
