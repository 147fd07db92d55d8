"""The resolution changes in mid-stream and the tracks go on."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch

from sam3_stream.models.sam3 import TrackerOptions, load_sam3
from sam3_stream.models.sam3.session import Sam3Session
from tests.models.sam3.conftest import clicks, frame_of
from tests.support.sam3_checkpoints import smooth_model, smooth_picture

FRAMES, EVERY = 100, 20
LADDER = (168, 112, 224)
OPTIONS = TrackerOptions(max_objects=2, mask_threshold=3.0, non_overlapping=False)
PROMPTS = (clicks(3, (20, 20)), clicks(8, (60, 45)))


def test_a_change_every_20_frames_keeps_every_id_and_the_masks(tmp_path: Path):
    smooth_model().save_pretrained(tmp_path)
    model = load_sam3(tmp_path, device="cpu", options=OPTIONS)
    steady, changing = model.open_session(lambda: 1), model.open_session(lambda: 1)
    worst, areas, resolutions = 1.0, [], set()
    for number in range(FRAMES):
        frame = frame_of(smooth_picture(number), number)
        prompts = PROMPTS if number == 0 else ()
        model.resolution = LADDER[0]
        wanted = steady.step(model.encode([frame])[0], prompts)
        model.resolution = LADDER[number // EVERY % len(LADDER)]
        found = changing.step(model.encode([frame])[0], prompts)
        resolutions.add(found.resolution)
        assert [one.object_id for one in found.objects] == [3, 8]
        for one, other in zip(wanted.objects, found.objects, strict=True):
            areas.append(one.mask.mean())
            worst = min(worst, (one.mask & other.mask).sum() / max(1, (one.mask | other.mask).sum()))
    assert resolutions == {(side, side) for side in LADDER}
    assert 0.1 < np.mean(areas) < 0.9
    assert worst >= 0.9


def test_pointers_scores_and_ages_survive_a_change(tmp_path: Path):
    smooth_model().save_pretrained(tmp_path)
    model = load_sam3(tmp_path, device="cpu", options=OPTIONS)
    session = model.open_session(lambda: 1)
    for number in range(5):
        frame = frame_of(smooth_picture(number), number)
        session.step(model.encode([frame])[0], PROMPTS if number == 0 else ())
    before = session.snapshot()
    session._bank.resample(8, 32)
    after = session.snapshot()
    for name in ("pointers_spc", "scores_s", "memory_ages_se", "pointer_ages_sp", "object_ids"):
        np.testing.assert_array_equal(before[name], after[name])


def test_the_smooth_checkpoint_means_something(tmp_path: Path):
    """Its logits spread, and without memory they are others."""
    forgetful = copy.deepcopy(smooth_model())
    with torch.no_grad():
        for layer in forgetful.tracker_model.memory_attention.layers:
            layer.cross_attn_image.o_proj.weight.zero_()
    logits = []
    for number, checkpoint in enumerate((smooth_model(), forgetful)):
        checkpoint.save_pretrained(tmp_path / str(number))
        model = load_sam3(tmp_path / str(number), device="cpu", options=OPTIONS)
        session: Sam3Session = model.open_session(lambda: 1)
        for number in range(4):
            frame = frame_of(smooth_picture(number), number)
            session.step(model.encode([frame])[0], PROMPTS if number == 0 else ())
        logits.append(session._bank.logits_shw.clone())
    assert float(logits[0].std()) >= 1
    assert float((logits[0] - logits[1]).abs().mean()) >= 0.1
