"""Our tracker against `transformers`' own, fed the same pictures and prompts on the same weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.models.sam3 import load_sam3
from sam3_stream.models.sam3.mask_decoder import Decoded
from sam3_stream.models.sam3.tracker import ObjectTracker, Tracked
from tests.models.sam3.conftest import SaveCheckpoint, box, clicks, disc, frame_of, mask
from tests.support.sam3_checkpoints import calibrated_model, moving_picture, reference_tracker
from tests.support.sam3_oracle import Found, Oracle

Script = Mapping[int, Sequence[ObjectPrompt]]
FRAMES = 40
PLACES = ((20, 20), (60, 45), (100, 70), (140, 20), (30, 80), (80, 12), (120, 50), (10, 50))


def script_for(objects: int) -> Script:
    """Clicks, boxes and a mask that start objects on different frames and correct them later."""
    script: dict[int, list[ObjectPrompt]] = {}
    for index, (x, y) in enumerate(PLACES[:objects]):
        starts = [
            clicks(index + 1, (x, y)),
            box(index + 1, max(0, x - 18), max(0, y - 15), x + 14, y + 16),
            clicks(index + 1, (x, y), (x + 5, y - 3), negative=((x + 9, y + 8),)),
            mask(index + 1, disc((x, y), 14)),
        ]
        script.setdefault((0, 0, 3, 5, 5, 8, 13, 17)[index], []).append(starts[index % 4])
    script.setdefault(10, []).append(clicks(1, (PLACES[0][0] + 30, PLACES[0][1]), negative=((5, 60),)))
    script.setdefault(21, []).append(clicks(1, (50, 30)))
    if objects > 1:
        script.setdefault(17, []).append(clicks(2, negative=((130, 80),)))
        script.setdefault(26, []).append(box(2, 70, 20, 120, 70))
    return script


def run_ours(folder: Path, dtype: str, script: Script, frames: int, resolution: int = 112) -> list[dict[int, Decoded]]:
    """What our session remembers of every object on every frame."""
    found: list[dict[int, Decoded]] = []
    memorize = ObjectTracker.memorize

    def note(self, features, tables, tracked: Tracked, *rest, **options):
        for row, slot in enumerate(tracked.slots):
            values = (getattr(tracked.decoded, name)[row] for name in Decoded.__slots__)
            found[-1][slot + 1] = Decoded(*values)
        return memorize(self, features, tables, tracked, *rest, **options)

    model = load_sam3(folder, device="cpu", dtype=dtype, max_objects=8, resolution=resolution)
    session = model.open_session(lambda: 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectTracker, "memorize", note)
        for number in range(frames):
            found.append({})
            session.step(model.encode([frame_of(moving_picture(number), number)])[0], script.get(number, ()))
    return found


def run_oracle(seed: int, dtype: torch.dtype, script: Script, frames: int) -> list[dict[int, Found]]:
    oracle = Oracle(reference_tracker(calibrated_model(seed)).to(dtype))
    return [oracle.step(moving_picture(number), script.get(number, ())) for number in range(frames)]


def logits_difference(ours: Sequence[Mapping[int, Decoded | Found]], theirs: Sequence[Mapping[int, Found]]) -> float:
    """Largest difference between mask logits."""
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for object_id, found in other.items():
            logits = getattr(mine[object_id], "logits_nhw", None)
            logits = mine[object_id].logits if logits is None else logits
            worst = max(worst, float((logits - found.logits).abs().max()))
    return worst


def present_std(found: Sequence[Mapping[int, Found]]) -> float:
    """Spread of the mask logits of objects that are there."""
    return float(np.mean([float(one.logits.std()) for frame in found for one in frame.values() if one.score > 0]))


@pytest.mark.parametrize(("objects", "seed"), [(1, 1), (3, 4), (8, 9)])
def test_float64_logits_scores_and_choices_are_the_references(checkpoint: SaveCheckpoint, objects: int, seed: int):
    script = script_for(objects)
    theirs = run_oracle(seed, torch.float64, script, FRAMES)
    ours = run_ours(checkpoint(seed), "fp64", script, FRAMES)
    std = present_std(theirs)
    scores = [one.score for frame in theirs for one in frame.values()]
    assert min(scores) < 0 < max(scores)
    assert std >= 1
    print("parity", objects, seed, logits_difference(ours, theirs) / std)
    assert logits_difference(ours, theirs) < 1e-4 * std
    chosen = 0
    for mine, other in zip(ours, theirs, strict=True):
        for object_id, found in other.items():
            assert float(mine[object_id].scores_n) == pytest.approx(found.score, abs=1e-3)
            assert float(mine[object_id].ious_n) == pytest.approx(found.iou, abs=1e-4)
            if found.choice is not None:
                assert int(mine[object_id].choices_n) == found.choice
                chosen += 1
    assert chosen > FRAMES / 2
