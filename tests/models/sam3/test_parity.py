"""Our tracker against `transformers`' own, fed the same pictures and prompts on the same weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.models.sam3 import load_sam3, preprocess
from sam3_stream.models.sam3.mask_decoder import Decoded
from sam3_stream.models.sam3.tracker import ObjectTracker, Tracked
from tests.models.sam3.conftest import SaveCheckpoint, box, clicks, disc, frame_of, mask
from tests.support.sam3_checkpoints import calibrated_model, moving_picture, reference_tracker, to_pixels
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


@pytest.mark.parametrize(("objects", "seed"), [(1, 14), (3, 4), (8, 9)])
def test_float64_logits_scores_and_choices_are_the_references(checkpoint: SaveCheckpoint, objects: int, seed: int):
    script = script_for(objects)
    theirs = run_oracle(seed, torch.float64, script, FRAMES)
    ours = run_ours(checkpoint(seed), "fp64", script, FRAMES)
    std = present_std(theirs)
    scores = [one.score for frame in theirs for one in frame.values()]
    assert min(scores) < 0 < max(scores)
    assert std >= 1
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


def test_float32_is_as_close_to_the_reference_as_the_reference_is_to_itself(checkpoint: SaveCheckpoint):
    script = script_for(3)
    one_thread = run_oracle(9, torch.float32, script, FRAMES)
    torch.set_num_threads(2)
    two_threads = run_oracle(9, torch.float32, script, FRAMES)
    torch.set_num_threads(1)
    noise = logits_difference(two_threads, one_thread)
    assert noise > 0
    ours = run_ours(checkpoint(9), "fp32", script, FRAMES)
    assert logits_difference(ours, one_thread) < 10 * noise


def conditioning_script(frames: Sequence[int]) -> Script:
    """A box on one object on each of these frames, so that each conditions it."""
    return {number: [box(1, 20 + number, 20, 60 + number, 55)] for number in frames}


def test_more_than_four_conditioning_frames_are_the_references_while_all_are_recent(checkpoint: SaveCheckpoint):
    """Five to eight conditioning frames within 15: what is pushed out goes on as a recent memory and pointer."""
    script = conditioning_script([0, 2, 3, 4, 6, 7, 9, 10])
    theirs = run_oracle(9, torch.float64, script, 15)
    ours = run_ours(checkpoint(9), "fp64", script, 15)
    assert logits_difference(ours, theirs) < 1e-4 * present_std(theirs)


def test_pointers_of_old_conditioning_frames_beyond_the_fourth_are_what_we_leave_out(checkpoint: SaveCheckpoint):
    """With six conditioning frames over 40 the reference attends to all six pointers, for ever; we to the last four.

    Taking the pointers of the two oldest away from the reference, once 15 frames have passed, makes it the same.
    """
    script = conditioning_script([0, 4, 8, 12, 16, 20])
    ours = run_ours(checkpoint(9), "fp64", script, FRAMES)
    theirs = run_oracle(9, torch.float64, script, FRAMES)
    std = present_std(theirs)
    assert logits_difference(ours[:16], theirs[:16]) < 1e-4 * std
    assert logits_difference(ours, theirs) > 1e-4 * std

    pruned = Oracle(reference_tracker(calibrated_model(9)).double())
    found = []
    for number in range(FRAMES):
        if pruned.session.obj_ids:
            conditioning = pruned.session.output_dict_per_obj[0]["cond_frame_outputs"]
            for old in sorted(conditioning)[:-4]:
                if number - old > 15:
                    del conditioning[old]
        found.append(pruned.step(moving_picture(number), script.get(number, ())))
    assert logits_difference(ours, found) < 1e-4 * std


@pytest.mark.parametrize("resolution", [56, 168])
def test_another_resolution_is_the_reference_made_for_it(checkpoint: SaveCheckpoint, resolution: int):
    """Positional tables for other sizes: a reference whose config says this size gives the same logits."""
    script = script_for(2)
    ours = run_ours(checkpoint(9), "fp64", script, 12, resolution=resolution)
    oracle = Oracle(reference_tracker(calibrated_model(9), resolution=resolution).double())
    theirs = [oracle.step(moving_picture(number), script.get(number, ())) for number in range(12)]
    assert logits_difference(ours, theirs) < 1e-4 * present_std(theirs)


def test_pixels_are_those_of_the_references_image_processor():
    picture = moving_picture(3, 213, 120)
    expected = to_pixels([picture], 112)[0]
    found = preprocess.to_pixels(ArrayPicture(picture), 112, torch.device("cpu"))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
