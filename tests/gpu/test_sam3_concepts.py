"""Phrases and exemplars on a GPU: the same objects as on the CPU, in every precision."""

from __future__ import annotations

from itertools import count

import pytest

pytest.importorskip("torch", reason="needs sam3-stream[sam3]")
pytest.importorskip("transformers", reason="needs sam3-stream[sam3]")

import torch

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.core.prompts import ConceptPrompt
from sam3_stream.models.sam3 import TrackerOptions, load_sam3
from sam3_stream.models.sam3.concept_options import ConceptOptions
from tests.support.sam3_concepts import moving_frame, phrases, save_concept_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

EXEMPLAR = ConceptPrompt(
    prompt_id="like this",
    text="",
    label="like this",
    exemplar_boxes_xyxy=((10.0, 10.0, 60.0, 50.0),),
    exemplar_positive=(True,),
)


def run(folder, device, dtype, frames):
    """Ids, prompts and masks of every frame."""
    thresholds = AssociationConfig(score_threshold=0.7, new_score=0.7, hot_start_ticks=0)
    model = load_sam3(
        folder,
        device=device,
        dtype=dtype,
        options=TrackerOptions(max_objects=16, non_overlapping=False),
        concepts=ConceptOptions(association=thresholds, prompt_bank=None),
    )
    ids = count(1)
    session = model.open_session(lambda: next(ids))
    results = []
    for number in range(frames):
        prompts = [*phrases("dog", "red cat"), EXEMPLAR] if number == 0 else []
        results.append(session.step(model.encode([moving_frame(number)])[0], prompts).objects)
    model.close()
    return results


def iou(one, other):
    union = (one.mask | other.mask).sum()
    return 1.0 if union == 0 else float((one.mask & other.mask).sum() / union)


def test_the_same_objects_appear_as_on_the_cpu(tmp_path):
    folder = save_concept_model(tmp_path)
    for ours, theirs in zip(run(folder, "cuda", "fp32", 6), run(folder, "cpu", "fp32", 6), strict=True):
        assert [(one.object_id, one.prompt_id) for one in ours] == [(one.object_id, one.prompt_id) for one in theirs]
        assert all(iou(one, other) > 0.98 for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_half_precision_finds_what_full_precision_finds(tmp_path, dtype):
    """Scores at the threshold may fall on the other side of it, so some objects may lack a counterpart."""
    folder = save_concept_model(tmp_path)
    (ours,), (theirs,) = run(folder, "cuda", dtype, 1), run(folder, "cpu", "fp32", 1)
    best = [max(iou(one, other) for other in ours if other.prompt_id == one.prompt_id) for one in theirs]
    assert len(best) >= 3
    assert sum(overlap > 0.9 for overlap in best) >= 0.6 * len(best)
