"""Distance along the surface: how many edges one has to cross to get from the click to a place."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sam3_stream.models.lite.backbone import FloatArray

SWEEPS = 4
_FAR = np.float32(1e6)
_DIAGONAL = np.float32(np.sqrt(2) / 2)


def geodesic_distance(cost: FloatArray, seeds: npt.NDArray[np.bool_]) -> FloatArray:
    """Geodesic distance from the seeds by fast sweeping (Zhao, 2005), one direction after the other.

    Args:
        cost: float32 (h, w), positive: what it costs to cross a cell.
        seeds: bool (h, w), where the distance is 0.

    Returns:
        float32 (h, w).
    """
    distance = np.where(seeds, np.float32(0), _FAR)
    height, width = distance.shape
    for _ in range(SWEEPS):
        _sweep(distance, cost, range(height))
        _sweep(distance, cost, range(height - 1, -1, -1))
        _sweep(distance.T, cost.T, range(width))
        _sweep(distance.T, cost.T, range(width - 1, -1, -1))
    return distance


def _sweep(distance: FloatArray, cost: FloatArray, order: Iterable[int]) -> None:
    """Let every line learn from the line before it; changes `distance`."""
    for before, line in pairwise(order):
        known, crossed, entered = distance[before], cost[before], cost[line]
        best = np.minimum(distance[line], known + (crossed + entered) / 2)
        np.minimum(best[1:], known[:-1] + (crossed[:-1] + entered[1:]) * _DIAGONAL, out=best[1:])
        np.minimum(best[:-1], known[1:] + (crossed[1:] + entered[:-1]) * _DIAGONAL, out=best[:-1])
        distance[line] = best


def edge_cost(features_hwc: FloatArray) -> FloatArray:
    """How much the features change around every place: float32 (h, w)."""
    padded = np.pad(features_hwc, ((1, 1), (1, 1), (0, 0)), mode="edge")
    across = padded[1:-1, 2:] - padded[1:-1, :-2]
    down = padded[2:, 1:-1] - padded[:-2, 1:-1]
    energy = np.einsum("hwc,hwc->hw", across, across) + np.einsum("hwc,hwc->hw", down, down)
    return np.asarray(np.sqrt(energy) / 2, np.float32)
