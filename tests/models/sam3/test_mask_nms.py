"""Non-maximum suppression on masks: what the reference's kernels would give, without the kernels."""

import numpy as np
import pytest
import torch

from sam3_stream.models.sam3.mask_nms import greedy_nms, mask_iou, mask_nms


def greedy_loop(iou_nn, scores_n, threshold):
    """The textbook loop that the reference's `generic_nms` kernel implements."""
    order, kept = list(np.argsort(-scores_n, kind="stable")), []
    while order:
        best = order.pop(0)
        kept.append(best)
        order = [i for i in order if iou_nn[best, i] <= threshold]
    return np.isin(np.arange(len(scores_n)), kept)


def random_boxes(rng, count, size=24):
    masks = np.zeros((count, size, size), bool)
    for mask in masks:
        (y0, x0), (height, width) = rng.integers(0, size - 4, 2), rng.integers(1, 12, 2)
        mask[y0 : y0 + height, x0 : x0 + width] = True
    return torch.from_numpy(masks)


def test_iou_is_that_of_the_definition_and_zero_for_empty_masks():
    masks = random_boxes(np.random.default_rng(0), 7)
    masks[3] = False
    expected = [[float((a & b).sum()) / max(1, int((a | b).sum())) for b in masks] for a in masks]
    assert torch.allclose(mask_iou(masks, masks), torch.tensor(expected))
    assert mask_iou(masks, masks)[3, 3] == 0


def test_iou_counts_large_masks_exactly():
    mask = torch.ones(1, 1152, 1152, dtype=torch.bool)
    almost = mask.clone()
    almost[0, 0, 0] = False
    assert mask_iou(mask, almost).item() == pytest.approx(1 - 1 / 1152**2, abs=6e-8)
    assert mask_iou(mask, almost).item() < 1


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("threshold", [0.05, 0.1, 0.5])
def test_greedy_nms_gives_what_the_loop_gives(seed, threshold):
    rng = np.random.default_rng(seed)
    masks = random_boxes(rng, int(rng.integers(1, 60)))
    scores = rng.random(len(masks)).round(1 if seed % 2 else 6)  # odd seeds have many equal scores
    iou = mask_iou(masks, masks).numpy()
    assert np.array_equal(greedy_nms(iou, scores, threshold), greedy_loop(iou, scores, threshold))


def test_a_chain_of_overlaps_spares_what_only_a_removed_mask_overlaps():
    masks = torch.zeros(3, 1, 12, dtype=torch.bool)
    masks[0, 0, 0:4], masks[1, 0, 3:7], masks[2, 0, 6:10] = True, True, True
    assert mask_nms(masks, np.array([0.9, 0.8, 0.7]), 0.1).tolist() == [True, False, True]
    assert mask_nms(masks, np.array([0.8, 0.9, 0.7]), 0.1).tolist() == [False, True, False]


def test_nothing_one_mask_and_a_threshold_of_zero_are_left_alone():
    assert mask_nms(torch.zeros(0, 4, 4, dtype=torch.bool), np.zeros(0), 0.1).shape == (0,)
    twice = torch.ones(2, 4, 4, dtype=torch.bool)
    assert mask_nms(twice[:1], np.array([0.3]), 0.1).tolist() == [True]
    assert mask_nms(twice, np.array([0.3, 0.9]), 0.0).tolist() == [True, True]
    assert mask_nms(twice, np.array([0.3, 0.9]), 0.1).tolist() == [False, True]


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_the_reference_does_when_its_kernel_is_there(seed, monkeypatch):
    reference = pytest.importorskip("transformers.models.sam3_video.modeling_sam3_video")
    rng = np.random.default_rng(seed)
    masks = random_boxes(rng, 40)
    scores = torch.from_numpy(rng.random(40))

    class Kernel:
        @staticmethod
        def generic_nms(ious, probs, threshold, use_iou_matrix):
            assert use_iou_matrix
            return torch.from_numpy(np.flatnonzero(greedy_loop(ious.numpy(), probs.numpy(), threshold)))

    monkeypatch.setattr(reference, "cv_utils_kernel", Kernel)
    expected = reference.nms_masks(scores, masks.double() * 2 - 1, prob_threshold=0.5, iou_threshold=0.1)
    kept = np.flatnonzero(scores.numpy() > 0.5)
    ours = kept[mask_nms(masks[kept], scores.numpy()[kept], 0.1)]
    assert np.array_equal(np.flatnonzero(expected.numpy()), ours)
