"""From the decoder's mask logits to masks at display size, on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from sam3_stream.core.records import MaskArray
from sam3_stream.models.sam3.config import TrackerOptions
from sam3_stream.models.sam3.oom import BatchLimit

_BARELY_INSIDE, _BARELY_OUTSIDE = 0.1, -0.1


class MaskPostprocessor:
    """Cleans masks up and brings them to display size.

    Args:
        options: Threshold, areas, smoothing and whether objects may overlap.
    """

    def __init__(self, options: TrackerOptions) -> None:
        self._options = options
        self._batches = BatchLimit("masks")

    def run(self, logits_nhw: torch.Tensor, size: tuple[int, int]) -> MaskArray:
        """Make masks.

        Args:
            logits_nhw: Mask logits at the decoder's grid, which spans the whole picture.
            size: (width, height) in pixels to bring them to.

        Returns:
            bool array of shape (n, height, width).
        """
        width, height = size
        count = len(logits_nhw)
        if count == 0:
            return np.zeros((0, height, width), np.bool_)
        options = self._options
        logits = logits_nhw.float() - options.mask_threshold
        logits = fill_holes(logits, options.hole_area)
        logits = remove_sprinkles(logits, options.sprinkle_area)
        logits = smooth(logits, options.smoothing_sigma)
        keep_apart = options.non_overlapping and count > 1
        owner = torch.zeros((height, width), dtype=torch.int32, device=logits.device)
        best = torch.full((height, width), -torch.inf, device=logits.device)

        def enlarge(start: int, stop: int) -> torch.Tensor:
            enlarged = functional.interpolate(
                logits[start:stop, None], size=(height, width), mode="bilinear", align_corners=False
            )[:, 0]
            if keep_apart:
                top = enlarged.max(dim=0)
                higher = top.values > best
                owner.copy_(torch.where(higher, top.indices.int() + start, owner))
                best.copy_(torch.maximum(best, top.values))
            return enlarged > 0

        masks = torch.cat(self._batches.run(count, enlarge))
        if keep_apart:
            masks &= owner == torch.arange(count, device=owner.device)[:, None, None]
        result: MaskArray = masks.cpu().numpy()
        return result


def fill_holes(logits_nhw: torch.Tensor, area: int) -> torch.Tensor:
    """Set background regions of at most `area` pixels just above zero, as `fill_holes_in_mask_scores` of SAM 3 does."""
    if area < 1:
        return logits_nhw
    return torch.where(small_regions(logits_nhw <= 0, area), _BARELY_INSIDE, logits_nhw)


def remove_sprinkles(logits_nhw: torch.Tensor, area: int) -> torch.Tensor:
    """Set foreground regions of at most `area` pixels, and at most half of the mask, just below zero."""
    if area < 1:
        return logits_nhw
    inside = logits_nhw > 0
    limit_n = (inside.sum(dim=(1, 2)) // 2).clamp(max=area)
    return torch.where(small_regions(inside, area, limit_n), _BARELY_OUTSIDE, logits_nhw)


def small_regions(mask_nhw: torch.Tensor, area: int, limit_n: torch.Tensor | None = None) -> torch.Tensor:
    """Mark the 8-connected regions of at most `area` pixels.

    Every pixel starts with a number of its own and takes the highest of its neighbours' in the region, `area` times:
    then the pixels of a region of at most `area` share one number. A larger region may still hold several, but each
    that is small touches a higher one, by which it is told apart.

    Args:
        mask_nhw: bool (n, height, width).
        area: Largest area that counts as small; the work grows with it.
        limit_n: A smaller limit for each mask, or None.

    Returns:
        bool (n, height, width).
    """
    count, height, width = mask_nhw.shape
    numbers = torch.arange(1, height * width + 1, dtype=torch.float32, device=mask_nhw.device).view(height, width)
    labels = torch.where(mask_nhw, numbers, 0.0)
    for _ in range(area):
        labels = torch.where(mask_nhw, functional.max_pool2d(labels, 3, stride=1, padding=1), 0.0)
    flat = labels.flatten(1).long()
    sizes = torch.zeros((count, height * width + 1), dtype=torch.int32, device=mask_nhw.device)
    sizes.scatter_add_(1, flat, torch.ones_like(flat, dtype=torch.int32))
    grown = torch.where(mask_nhw, functional.max_pool2d(labels, 3, stride=1, padding=1), 0.0)
    touching = (grown != labels).flatten(1)
    sizes.scatter_(1, torch.where(touching, flat, 0), height * width)  # not a whole region: never small
    limit = torch.full((count,), area, device=mask_nhw.device) if limit_n is None else limit_n
    small = sizes.gather(1, flat) <= limit[:, None]
    return small.view_as(mask_nhw) & mask_nhw


def smooth(logits_nhw: torch.Tensor, sigma: float) -> torch.Tensor:
    """Blur logits with a Gaussian of `sigma` pixels; edges are replicated."""
    if sigma <= 0:
        return logits_nhw
    radius = max(1, round(3 * sigma))
    steps = torch.arange(-radius, radius + 1, dtype=logits_nhw.dtype, device=logits_nhw.device)
    kernel = torch.exp(-0.5 * (steps / sigma) ** 2)
    kernel /= kernel.sum()
    padded = functional.pad(logits_nhw[:, None], (radius,) * 4, mode="replicate")
    return functional.conv2d(functional.conv2d(padded, kernel[None, None, None]), kernel[None, None, :, None])[:, 0]
