"""The small checkpoints behave, so that what is compared on them means something."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.support.sam3_checkpoints import (
    CALIBRATIONS,
    SAMPLE_CLICKS,
    calibrated_model,
    reference_tracker,
    run_reference,
)


@pytest.mark.parametrize("seed", sorted(CALIBRATIONS))
def test_calibrated_masks_move_objects_come_and_go_and_memory_matters(seed: int):
    tracker = reference_tracker(calibrated_model(seed))
    logits, scores = run_reference(tracker, SAMPLE_CLICKS, 24)
    forgetful = copy.deepcopy(tracker)
    with torch.no_grad():
        for layer in forgetful.memory_attention.layers:
            layer.cross_attn_image.o_proj.weight.zero_()
    logits_without, scores_without = run_reference(forgetful, SAMPLE_CLICKS, 24)

    present = scores > 0
    assert float(logits[present].std(dim=(1, 2)).mean()) >= 1
    assert 0 < int(present.sum()) < present.numel()
    both = present & (scores_without > 0)
    both[0] = False  # no memory yet
    assert both.any()
    assert float((logits - logits_without)[both].abs().mean()) >= 0.1
