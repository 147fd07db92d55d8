"""J and F as the DAVIS benchmark defines them.

Perazzi et al., "A Benchmark Dataset and Evaluation Methodology for Video Object Segmentation", CVPR 2016; reference
code: https://github.com/davisvideochallenge/davis2017-evaluation, ``davis2017/metrics.py``.
"""

from __future__ import annotations

import math

import cv2
import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
BOUND_TH = 0.008


def region_similarity(mask: BoolArray, truth: BoolArray) -> float:
    """J: intersection over union of two bool (height, width) masks; 1 where both are empty."""
    union = np.count_nonzero(mask | truth)
    return 1.0 if union == 0 else float(np.count_nonzero(mask & truth) / union)


def contour_accuracy(mask: BoolArray, truth: BoolArray, bound_th: float = BOUND_TH) -> float:
    """F: F-measure of the boundary pixels that match within a tolerance.

    Args:
        mask: bool (height, width).
        truth: bool (height, width).
        bound_th: Tolerance as a share of the picture's diagonal, rounded up to whole pixels (8 at 854x480).
    """
    radius_px = bound_th if bound_th >= 1 else math.ceil(bound_th * math.hypot(*mask.shape))
    mask_boundary, truth_boundary = boundary(mask), boundary(truth)
    mask_count, truth_count = np.count_nonzero(mask_boundary), np.count_nonzero(truth_boundary)
    if mask_count == 0 or truth_count == 0:
        return float(mask_count == truth_count)
    precision = np.count_nonzero(mask_boundary & _dilate(truth_boundary, radius_px)) / mask_count
    recall = np.count_nonzero(truth_boundary & _dilate(mask_boundary, radius_px)) / truth_count
    return 0.0 if precision + recall == 0 else float(2 * precision * recall / (precision + recall))


def boundary(mask: BoolArray) -> BoolArray:
    """Pixels that differ from their right, lower or lower right neighbour (`_seg2bmap` of the reference)."""
    padded = np.pad(mask, ((0, 1), (0, 1)), mode="edge")
    right, below, diagonal = padded[:-1, 1:], padded[1:, :-1], padded[1:, 1:]
    edges: BoolArray = (mask ^ right) | (mask ^ below) | (mask ^ diagonal)
    edges[-1, :] = mask[-1, :] ^ right[-1, :]
    edges[:, -1] = mask[:, -1] ^ below[:, -1]
    edges[-1, -1] = False
    return edges


def _dilate(edges: BoolArray, radius_px: float) -> BoolArray:
    """Dilate by a disk: all pixels whose Euclidean distance to an edge pixel is at most the radius."""
    distance = cv2.distanceTransform((~edges).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    dilated: BoolArray = np.asarray(distance) <= radius_px + 1e-3
    return dilated
