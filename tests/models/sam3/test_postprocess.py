"""From mask logits to masks at display size."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from sam3_stream.models.sam3.config import TrackerOptions
from sam3_stream.models.sam3.postprocess import MaskPostprocessor, fill_holes, remove_sprinkles, small_regions, smooth

PLAIN = TrackerOptions(hole_area=0, sprinkle_area=0, non_overlapping=False)


def blobs(seed: int, count: int = 4, side: int = 48) -> torch.Tensor:
    """Random logits with regions of all sizes."""
    noise = torch.randn((count, 1, side, side), generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.avg_pool2d(noise, 3, stride=1, padding=1)[:, 0] * 5


@pytest.mark.parametrize("area", [1, 4, 16, 40])
@pytest.mark.parametrize("seed", range(5))
def test_small_regions_are_those_that_opencv_counts(area: int, seed: int):
    masks = blobs(seed) > 0.3
    found = small_regions(masks, area).numpy()
    for mask, small in zip(masks.numpy(), found, strict=True):
        count, labels, statistics, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
        expected = np.zeros_like(mask)
        for label in range(1, count):
            if statistics[label, cv2.CC_STAT_AREA] <= area:
                expected |= labels == label
        np.testing.assert_array_equal(small, expected)


def test_a_long_thin_region_is_not_small():
    snake = torch.zeros((1, 40, 40), dtype=torch.bool)
    snake[0, ::2] = True
    snake[0, 1::4, -1] = True
    snake[0, 3::4, 0] = True
    assert not small_regions(snake, 16).any()


def test_holes_are_filled_and_specks_removed_as_sam3_does():
    logits = torch.full((1, 32, 32), -5.0)
    logits[0, 4:24, 4:24] = 5.0
    logits[0, 10:14, 10:14] = -5.0  # a hole of 16
    logits[0, 18:23, 18:22] = -5.0  # a hole of 20
    logits[0, 28:30, 28:30] = 5.0  # a speck of 4
    filled = fill_holes(logits, 16)
    assert bool((filled[0, 10:14, 10:14] > 0).all())
    assert bool((filled[0, 18:23, 18:22] < 0).all())
    assert bool((remove_sprinkles(filled, 16)[0, 28:30, 28:30] < 0).all())


def test_a_tiny_object_is_not_a_speck():
    logits = torch.full((1, 32, 32), -5.0)
    logits[0, 3:5, 3:5] = 5.0
    assert bool((remove_sprinkles(logits, 16)[0, 3:5, 3:5] > 0).all())


def test_masks_come_at_display_size_even_when_it_is_not_square():
    logits = torch.full((1, 24, 24), -5.0)
    logits[0, :, 12:] = 5.0
    masks = MaskPostprocessor(PLAIN).run(logits, (120, 70))
    assert masks.shape == (1, 70, 120)
    assert masks.dtype == np.bool_
    assert masks[0, :, 62:].all()
    assert not masks[0, :, :58].any()


def test_threshold_moves_the_border():
    logits = torch.linspace(-5, 5, 32).repeat(1, 32, 1)
    areas = [
        MaskPostprocessor(TrackerOptions(hole_area=0, sprinkle_area=0, mask_threshold=threshold))
        .run(logits, (32, 32))
        .sum()
        for threshold in (-2.0, 0.0, 2.0)
    ]
    assert areas[0] > areas[1] > areas[2] > 0


@pytest.mark.parametrize("batch", [None, 1, 2])
def test_objects_do_not_overlap_and_the_surer_one_wins(batch: int | None):
    logits = torch.stack([torch.full((16, 16), 1.0), torch.full((16, 16), 3.0), torch.full((16, 16), 2.0)])
    logits[1, :, 8:] = -1.0
    postprocessor = MaskPostprocessor(TrackerOptions(hole_area=0, sprinkle_area=0))
    postprocessor._batches.limit = batch
    masks = postprocessor.run(logits, (32, 32))
    assert masks.sum(axis=0).max() == 1
    assert masks[1, :, :15].all()
    assert masks[2, :, 18:].all()
    assert not masks[0].any()
    assert MaskPostprocessor(PLAIN).run(logits, (32, 32)).sum(axis=0).max() == 3


def test_smoothing_takes_single_pixels_away_and_keeps_the_mean():
    logits = torch.full((1, 32, 32), -1.0)
    logits[0, 16, 16] = 3.0
    smoothed = smooth(logits, 2.0)
    assert bool((smoothed < 0).all())
    assert float(smoothed.mean()) == pytest.approx(float(logits.mean()), abs=1e-3)
    assert smooth(logits, 0.0) is logits


def test_no_objects_give_no_masks():
    assert MaskPostprocessor(PLAIN).run(torch.zeros((0, 8, 8)), (20, 10)).shape == (0, 10, 20)
