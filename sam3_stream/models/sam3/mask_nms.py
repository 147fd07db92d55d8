"""Mask IoU and non-maximum suppression on masks, without any kernel to download."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def mask_iou(masks_nhw: Tensor, others_mhw: Tensor) -> Tensor:
    """Intersection over union of every mask with every other; 0 where both are empty.

    One matrix product: its counts are exact in float32 for masks of up to 2**24 pixels, whatever the masks' device.

    Args:
        masks_nhw: bool, shape (n, h, w).
        others_mhw: bool, shape (m, h, w).

    Returns:
        float32, shape (n, m).
    """
    masks_np = masks_nhw.flatten(1).float()
    others_mp = others_mhw.flatten(1).float()
    intersection_nm = masks_np @ others_mp.T
    union_nm = masks_np.sum(1)[:, None] + others_mp.sum(1)[None, :] - intersection_nm
    return intersection_nm / union_nm.clamp(min=1.0)


def greedy_nms(
    iou_nn: npt.NDArray[np.floating], scores_n: npt.NDArray[np.floating], iou_threshold: float
) -> npt.NDArray[np.bool_]:
    """Which candidates survive when each, from the best down, removes those that overlap it by more than the threshold.

    The result is that of the loop in Faster R-CNN's ``nms_cpu`` and of SAM 3's ``generic_nms``, found by iterating
    "kept unless a kept better one overlaps" to its fixed point, which takes as many rounds as the longest chain of
    removals (two or three in practice). Of equal scores the one that comes first counts as better.

    Args:
        iou_nn: Overlap of every pair, shape (n, n), symmetric.
        scores_n: Shape (n,).
        iou_threshold: Overlap above which the worse of two is removed.

    Returns:
        bool, shape (n,).
    """
    order = np.argsort(-scores_n, kind="stable")
    removes = np.triu(iou_nn[np.ix_(order, order)] > iou_threshold, k=1)
    kept: npt.NDArray[np.bool_] = np.ones(len(order), np.bool_)
    while True:
        survivors: npt.NDArray[np.bool_] = np.logical_not(removes[kept].any(axis=0))
        if np.array_equal(survivors, kept):
            break
        kept = survivors
    keep_n = np.empty_like(kept)
    keep_n[order] = kept
    return keep_n


def mask_nms(masks_nhw: Tensor, scores_n: npt.NDArray[np.floating], iou_threshold: float) -> npt.NDArray[np.bool_]:
    """Which of the masks survive non-maximum suppression; see `greedy_nms`.

    Args:
        masks_nhw: bool, shape (n, h, w).
        scores_n: Shape (n,).
        iou_threshold: IoU above which the worse of two masks is removed; 0 or less keeps all, as the reference does.
    """
    if iou_threshold <= 0.0 or len(scores_n) < 2:
        return np.ones(len(scores_n), np.bool_)
    with torch.autocast(masks_nhw.device.type, enabled=False):
        iou_nn = mask_iou(masks_nhw, masks_nhw)
    return greedy_nms(iou_nn.cpu().numpy(), scores_n, iou_threshold)
