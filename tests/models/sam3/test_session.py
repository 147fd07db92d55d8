"""A live session as a user sees it: prompts at any time, ids that last, absence, room, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from sam3_stream.core.errors import CapacityError, PromptError
from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.core.records import EncodedFrame, TrackedFrame
from sam3_stream.models.sam3 import Sam3Model, TrackerOptions, load_sam3
from sam3_stream.models.sam3.mask_decoder import MaskDecoder
from sam3_stream.models.sam3.session import Sam3Session
from tests.models.sam3.conftest import SaveCheckpoint, box, clicks, disc, frame_of, mask
from tests.support.sam3_checkpoints import moving_picture

RAW = TrackerOptions(max_objects=4, hole_area=0, sprinkle_area=0, non_overlapping=False)


@pytest.fixture(scope="module")
def model(checkpoint: SaveCheckpoint) -> Iterator[Sam3Model]:
    opened = load_sam3(checkpoint(), device="cpu", options=RAW)
    yield opened
    opened.close()


def encode(model: Sam3Model, number: int) -> EncodedFrame:
    return model.encode([frame_of(moving_picture(number), number)])[0]


def run(model: Sam3Model, session: Sam3Session, first: int, count: int, *prompts: ObjectPrompt) -> list[TrackedFrame]:
    """Step over frames; the prompts come with the first."""
    return [
        session.step(encode(model, number), prompts if number == first else ())
        for number in range(first, first + count)
    ]


def masks_of(frames: list[TrackedFrame], object_id: int) -> list[np.ndarray]:
    return [one.mask for frame in frames for one in frame.objects if one.object_id == object_id]


def test_every_prompt_form_starts_an_object_that_is_tracked_under_its_id(model: Sam3Model):
    session = model.open_session(lambda: 1)
    prompts = [clicks(3, (20, 20)), box(5, 40, 30, 80, 60), mask(9, disc((100, 70), 14))]
    frames = run(model, session, 0, 5, *prompts)
    for frame in frames:
        assert [one.object_id for one in frame.objects] == [3, 5, 9]
        assert [one.label for one in frame.objects] == ["object 3", "object 5", "object 9"]
        assert all(one.mask.shape == (96, 160) for one in frame.objects)
    assert any(one.present for one in frames[-1].objects)


def test_a_mask_is_taken_as_it_is(model: Sam3Model):
    wanted = disc((100, 60), 20)
    (frame,) = run(model, model.open_session(lambda: 1), 0, 1, mask(1, wanted))
    found = frame.objects[0].mask
    assert (found & wanted).sum() / (found | wanted).sum() > 0.9
    assert frame.objects[0].score > 0.99


def test_coordinates_are_those_of_the_displayed_picture(model: Sam3Model):
    """The same scene at another size and shape, prompted at the same place of it, gives the same mask."""
    picture = moving_picture(0)
    wide = np.repeat(picture, 2, axis=1)
    session, other = model.open_session(lambda: 1), model.open_session(lambda: 1)
    found = session.step(model.encode([frame_of(picture, 0)])[0], [clicks(1, (20.0, 20.0))]).objects[0].mask
    doubled = other.step(model.encode([frame_of(wide, 0)])[0], [clicks(1, (40.0, 20.0))]).objects[0].mask
    agreement = np.repeat(found, 2, axis=1) == doubled
    assert agreement.mean() > 0.97


def test_objects_may_be_added_at_any_time_without_touching_the_others(model: Sam3Model):
    alone = run(model, model.open_session(lambda: 1), 0, 12, mask(1, disc((60, 45), 15)))
    session = model.open_session(lambda: 1)
    together = run(model, session, 0, 6, mask(1, disc((60, 45), 15)))
    together += run(model, session, 6, 6, clicks(2, (120, 30)))
    assert [one.object_id for one in together[-1].objects] == [1, 2]
    for before, after in zip(masks_of(alone, 1), masks_of(together, 1), strict=True):
        assert (before == after).mean() > 0.99


def test_clicks_refine_an_object_and_keep_its_id(model: Sam3Model):
    session = model.open_session(lambda: 1)
    frames = run(model, session, 0, 5, mask(7, disc((60, 45), 15)))
    untouched = session.snapshot()
    refined = session.step(encode(model, 5), [clicks(7, (150, 90), negative=((60, 45),))])
    session.restore(untouched)
    as_it_was = session.step(encode(model, 5))
    assert [one.object_id for one in refined.objects] == [7]
    assert frames[0].objects[0].prompt_id == refined.objects[0].prompt_id
    assert (refined.objects[0].mask != as_it_was.objects[0].mask).any()


def test_refinement_starts_from_the_mask_that_is_there(model: Sam3Model):
    """The same click on top of two different masks gives two different results."""
    results = []
    for center in ((60, 45), (110, 60)):
        session = model.open_session(lambda: 1)
        session.step(encode(model, 0), [mask(1, disc(center, 15))])
        results.append(session.step(encode(model, 0), [clicks(1, (80, 50))]).objects[0].mask)
    assert (results[0] != results[1]).any()


def test_a_click_on_the_frame_that_is_there_runs_neither_trunk_nor_memory_attention(
    model: Sam3Model, monkeypatch: pytest.MonkeyPatch
):
    session = model.open_session(lambda: 1)
    run(model, session, 0, 3, clicks(1, (20, 20)), clicks(2, (60, 45)))
    ran: list[str] = []
    with model.engine() as engine:
        network = engine.network
        watched = {
            "trunk": network.trunk.layers[0],
            "memory attention": network.tracker.memory_attention.layers[0].cross_attn_image.k_proj,
            "decoder": network.tracker.mask_decoder.transformer,
        }
        hooks = [
            module.register_forward_hook(lambda *_, name=name: ran.append(name)) for name, module in watched.items()
        ]
        encoded = encode(model, 3)
        first = session.step(encoded)
        assert ran == ["trunk", "memory attention", "decoder"]
        ran.clear()
        second = session.step(encoded, [clicks(1, (30, 25))])
        for hook in hooks:
            hook.remove()
    assert ran == ["decoder"]
    np.testing.assert_array_equal(first.objects[1].mask, second.objects[1].mask)


def test_clicks_on_the_same_frame_add_up(model: Sam3Model):
    encoded = encode(model, 0)
    step_by_step, at_once = model.open_session(lambda: 1), model.open_session(lambda: 1)
    step_by_step.step(encoded, [clicks(1, (20, 20))])
    step_by_step.step(encoded, [clicks(1, (25, 22))])
    step_by_step.step(encoded, [clicks(1, (20, 20), (25, 22))])  # said twice, counted once
    assert len(step_by_step._current.clicks[1].points_n2) == 2
    at_once.step(encoded, [clicks(1, (20, 20)), clicks(1, (25, 22))])
    assert len(at_once._current.clicks[1].points_n2) == 2


def test_a_removed_object_is_gone_and_its_room_is_free(model: Sam3Model):
    session = model.open_session(lambda: 1)
    run(model, session, 0, 2, *(clicks(number, (10.0 * number, 20)) for number in (1, 2, 3, 4)))
    with pytest.raises(CapacityError, match=r"no room for 1 more object: 4 of 4 .*max_objects"):
        session.step(encode(model, 2), [clicks(5, (50, 50))])
    session.remove(2)
    session.remove(2)
    session.remove(77)
    (frame,) = run(model, session, 2, 1, clicks(5, (50, 50)))
    assert [one.object_id for one in frame.objects] == [1, 3, 4, 5]


def test_a_new_object_in_a_freed_slot_knows_nothing_of_the_one_before(model: Sam3Model):
    used, fresh = model.open_session(lambda: 1), model.open_session(lambda: 1)
    run(model, used, 0, 6, clicks(1, (20, 20)))
    used.remove(1)
    wanted = masks_of(run(model, fresh, 6, 5, clicks(2, (100, 60))), 2)
    found = masks_of(run(model, used, 6, 5, clicks(2, (100, 60))), 2)
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_object_that_is_hidden_is_reported_absent_and_comes_back_with_its_id(model: Sam3Model):
    session = model.open_session(lambda: 1)
    frames = run(model, session, 0, 40, clicks(1, (20, 20)), clicks(2, (60, 45)), clicks(3, (100, 70)))
    presence = np.array([[one.present for one in frame.objects] for frame in frames])
    gone_then_back = [
        row for row in presence.T if row[0] and any(not before and after for before, after in itertools.pairwise(row))
    ]
    assert gone_then_back, "no object left and came back; choose another checkpoint"
    for frame in frames:
        for one in frame.objects:
            assert one.present == (one.score > 0.5)
            assert one.present == one.mask.any()


def test_frames_without_objects_give_empty_results(model: Sam3Model):
    frames = run(model, model.open_session(lambda: 1), 0, 2)
    assert [frame.objects for frame in frames] == [(), ()]
    assert frames[0].resolution == (112, 112)
    assert frames[0].state == "tracked"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (clicks(1, (160, 20)), "outside the picture, which is 160x96"),
        (clicks(1, negative=((20, 20),)), "every click on it is negative"),
        (box(1, 10, 10, 200, 50), "reaches outside the picture"),
        (box(1, 10, 10, 10, 50), "has no area"),
        (mask(1, np.ones((96, 96), np.bool_)), "the mask is 96x96, the picture is 160x96"),
        (mask(1, np.zeros((96, 160), np.bool_)), "mask is empty"),
        (ObjectPrompt(1, "p", "l"), "no click, box or mask"),
        (replace(clicks(1, (20, 20)), mask=disc((20, 20), 5)), "give it alone"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_refused_and_changes_nothing(
    model: Sam3Model, prompt: ObjectPrompt, message: str
):
    session = model.open_session(lambda: 1)
    run(model, session, 0, 2, clicks(8, (60, 45)))
    before = session.snapshot()
    with pytest.raises(PromptError, match=message):
        session.step(encode(model, 2), [clicks(9, (20, 20)), prompt])
    after = session.snapshot()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])


def test_negative_clicks_alone_may_refine(model: Sam3Model):
    session = model.open_session(lambda: 1)
    run(model, session, 0, 2, mask(1, disc((60, 45), 15)))
    frame = session.step(encode(model, 2), [clicks(1, negative=((20, 80),))])
    assert [one.object_id for one in frame.objects] == [1]


def test_a_tiny_mask_still_starts_an_object(model: Sam3Model):
    dot = np.zeros((960, 1600), np.bool_)
    dot[500, 700] = True
    frame = frame_of(np.zeros((960, 1600, 3), np.uint8), 0)
    session = model.open_session(lambda: 1)
    tracked = session.step(model.encode([frame])[0], [mask(1, dot)])
    assert tracked.objects[0].score > 0.99  # there, if too small for the mask grid
    assert len(session.step(model.encode([frame_of(np.zeros((960, 1600, 3), np.uint8), 1)])[0]).objects) == 1


def test_multimask_follows_the_number_of_points(model: Sam3Model, checkpoint: SaveCheckpoint):
    """One click chooses among three proposals, more give the single mask; how many is configurable."""
    asked: list[bool] = []
    original = MaskDecoder.decode

    def watched(self: MaskDecoder, *inputs: object, multimask: bool, **options: object) -> object:
        asked.append(multimask)
        return original(self, *inputs, multimask=multimask, **options)

    def decode(options: TrackerOptions, prompt: ObjectPrompt) -> bool:
        other = load_sam3(checkpoint(), device="cpu", options=options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MaskDecoder, "decode", watched)
            other.open_session(lambda: 1).step(encode(other, 0), [prompt])
        return asked[-1]

    assert decode(RAW, clicks(1, (20, 20)))
    assert not decode(RAW, clicks(1, (20, 20), (25, 25)))
    assert not decode(RAW, box(1, 10, 10, 40, 40))
    assert decode(replace(RAW, multimask_max_points=2), box(1, 10, 10, 40, 40))
    assert not decode(replace(RAW, multimask_max_points=0), clicks(1, (20, 20)))


def test_batches_of_several_streams_are_encoded_as_each_alone(model: Sam3Model):
    frames = [
        frame_of(moving_picture(0), 0, "a"),
        frame_of(moving_picture(5, 100, 180), 0, "b"),
        frame_of(moving_picture(9), 4, "a"),
    ]
    together = model.encode(frames)
    assert [encoded.frame for encoded in together] == frames
    for encoded in together:
        (alone,) = model.encode([encoded.frame])
        torch.testing.assert_close(alone.features.embedding_1chw, encoded.features.embedding_1chw)
        assert encoded.resolution == (112, 112)
        assert encoded.dtype == "float32"


def test_the_trunk_runs_once_a_batch(model: Sam3Model):
    runs: list[int] = []
    with model.engine() as engine:
        hook = engine.network.trunk.layers[0].register_forward_hook(lambda _, inputs, __: runs.append(len(inputs[0])))
        model.encode([frame_of(moving_picture(number), number) for number in range(3)])
        hook.remove()
    assert len(runs) == 1


def test_closing_twice_is_fine(model: Sam3Model):
    session = model.open_session(lambda: 1)
    run(model, session, 0, 1, clicks(1, (20, 20)))
    session.close()
    session.close()
