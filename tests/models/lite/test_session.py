from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import cv2
import numpy as np
import pytest

from sam3_stream.cli.demo import demo_clip
from sam3_stream.core.errors import CapacityError, PromptError
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import ConceptPrompt, ObjectPrompt
from sam3_stream.core.records import Frame
from sam3_stream.models.lite import load_lite
from sam3_stream.stages.decoder import VideoDecoder
from tests.models.lite.conftest import iou
from tests.support.clips import disc_center, disc_mask, draw_frame

SIZE = (320, 192)


def draw(number: int, size: tuple[int, int] = SIZE) -> Frame:
    return Frame("0", number, number, Fraction(1, 25), ArrayPicture(draw_frame(number, size)))


def mask_prompt(object_id: int, mask: np.ndarray) -> ObjectPrompt:
    return ObjectPrompt(object_id, f"p{object_id}", f"object {object_id}", mask=mask)


def click_prompt(*clicks: tuple[float, float, bool], object_id: int = 1) -> ObjectPrompt:
    points = np.array([click[:2] for click in clicks], np.float32)
    return ObjectPrompt(object_id, f"p{object_id}", "disc", points, np.array([click[2] for click in clicks]))


def box_of(mask: np.ndarray) -> tuple[float, float, float, float]:
    ys, xs = np.nonzero(mask)
    return float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1)


def prompts_for(number: int) -> list[ObjectPrompt]:
    return [mask_prompt(1, disc_mask(0, SIZE))] if number == 0 else []


def same(one, other) -> bool:
    return all(
        a.object_id == b.object_id and a.present == b.present and a.score == b.score and (a.mask == b.mask).all()
        for a, b in zip(one.objects, other.objects, strict=True)
    )


@pytest.mark.data
@pytest.mark.parametrize("sequence", ["blackswan", "car-roundabout"])
def test_a_mask_is_followed(model, read_davis, sequence):
    session = model.open_session(ObjectIds().new)
    overlaps = []
    for number in range(12):
        frame, truth = read_davis(sequence, number)
        tracked = session.step(model.encode([frame])[0], [mask_prompt(1, truth)] if number == 0 else [])
        overlaps.append(iou(tracked.objects[0].mask, truth))
    assert min(overlaps) > 0.85


@pytest.mark.data
def test_boxes_and_clicks_find_the_object(model, read_davis):
    frame, truth = read_davis("blackswan", 0)
    encoded = model.encode([frame])[0]
    deepest = np.unravel_index(np.argmax(cv2.distanceTransform(truth.astype(np.uint8), cv2.DIST_L2, 5)), truth.shape)
    for prompt, least in (
        (ObjectPrompt(1, "p1", "swan", box_xyxy=box_of(truth)), 0.6),
        (click_prompt((float(deepest[1]), float(deepest[0]), True)), 0.8),
    ):
        tracked = model.open_session(ObjectIds().new).step(encoded, [prompt])
        assert iou(tracked.objects[0].mask, truth) > least


def test_what_is_clicked_away_stays_away(model):
    """The face of the bunny in the demo clip looks much like its belly."""
    clip = list(itertools.islice(VideoDecoder(demo_clip()), 100, 125))
    session, face, shares = model.open_session(ObjectIds().new), (slice(180, 200), slice(490, 510)), []
    script = {0: [click_prompt((460, 400, True), (500, 190, True))], 8: [click_prompt((500, 190, False))]}
    for number, frame in enumerate(clip):
        tracked = session.step(model.encode([frame])[0], script.get(number, []))
        shares.append(tracked.objects[0].mask[face].mean())
        assert tracked.objects[0].mask[300:500, 400:520].mean() > 0.9, "the belly stays"
    assert min(shares[:8]) > 0.9
    assert max(shares[8:]) < 0.1


def test_clicks_correct_a_mask_that_comes_with_them(model):
    frame = next(iter(VideoDecoder(demo_clip(), start_s=4)))
    mask = np.zeros((720, 1280), np.bool_)
    mask[150:550, 400:560] = True
    clicked = dataclasses.replace(click_prompt((500, 190, False)), mask=mask)
    found = model.open_session(ObjectIds().new).step(model.encode([frame])[0], [clicked]).objects[0].mask
    assert found[300:500, 420:540].mean() > 0.9
    assert not found[188:192, 498:502].any()


@pytest.mark.data
def test_a_cut_makes_the_object_absent_and_it_comes_back_under_its_id(model, read_davis):
    session = model.open_session(ObjectIds().new)
    shots = (
        [("camel", n) for n in range(6)] + [("kite-surf", n) for n in range(6)] + [("camel", n) for n in range(6, 12)]
    )
    present, overlaps = [], []
    for step, (sequence, number) in enumerate(shots):
        frame, truth = read_davis(sequence, number)
        tracked = session.step(model.encode([frame])[0], [mask_prompt(7, truth)] if step == 0 else []).objects[0]
        assert tracked.object_id == 7
        assert tracked.present == bool(tracked.mask.any())
        present.append(tracked.present)
        overlaps.append(iou(tracked.mask, truth))
    assert present[:6] == [True] * 6
    assert present[6:12] == [False] * 6
    assert all(present[14:])
    assert min(overlaps[14:]) > 0.7


@pytest.mark.data
def test_a_phrase_finds_what_it_names_and_nothing_else(model, read_davis):
    frame, truth = read_davis("blackswan", 0)
    encoded = model.encode([frame])[0]
    found = model.open_session(ObjectIds().new).step(encoded, [ConceptPrompt("p1", "bird", "bird")])
    assert [tracked.label for tracked in found.objects] == ["bird"]
    assert iou(found.objects[0].mask, truth) > 0.5
    absent = model.open_session(ObjectIds().new).step(encoded, [ConceptPrompt("p1", "elephant", "elephant")])
    assert absent.objects == ()


@pytest.mark.data
def test_a_phrase_is_looked_for_until_it_shows(model, read_davis):
    session = model.open_session(ObjectIds().new)
    encoded = model.encode([read_davis("kite-surf", 0)[0]])[0]
    assert session.step(encoded, [ConceptPrompt("p1", "swan", "swan")]).objects == ()
    for number in range(10):
        tracked = session.step(model.encode([read_davis("blackswan", number)[0]])[0])
    assert [found.prompt_id for found in tracked.objects] == ["p1"]
    session.remove(tracked.objects[0].object_id)
    for number in range(10, 20):
        tracked = session.step(model.encode([read_davis("blackswan", number)[0]])[0])
    assert tracked.objects == ()


def test_every_step_lists_every_object_at_the_displayed_size(model):
    session = model.open_session(ObjectIds().new)
    assert session.step(model.encode([draw(0)])[0]).objects == ()
    corner = np.zeros(SIZE[::-1], np.bool_)
    corner[:24, :24] = True
    tracked = session.step(model.encode([draw(0)])[0], [mask_prompt(5, disc_mask(0, SIZE)), mask_prompt(2, corner)])
    assert [found.object_id for found in tracked.objects] == [2, 5]
    for number in range(1, 8):
        tracked = session.step(model.encode([draw(number)])[0])
        assert [found.object_id for found in tracked.objects] == [2, 5]
        assert not (tracked.objects[0].mask & tracked.objects[1].mask).any()
        assert all(found.mask.shape == SIZE[::-1] and found.mask.dtype == np.bool_ for found in tracked.objects)
    assert tracked.resolution is not None
    assert tracked.resolution[0] % 32 == 0
    assert iou(tracked.objects[1].mask, disc_mask(7, SIZE)) > 0.7


def test_the_same_input_gives_the_same_output(model):
    sessions = [model.open_session(ObjectIds().new), load_lite().open_session(ObjectIds().new)]
    for number in range(6):
        encoded = model.encode([draw(number)])[0]
        one, other = (session.step(encoded, prompts_for(number)) for session in sessions)
        assert same(one, other)


def test_a_batch_is_encoded_as_its_frames_are(model):
    frames = [draw(0), draw(1)]
    for together, frame in zip(model.encode(frames), frames, strict=True):
        alone = model.encode([frame])[0]
        for a, b in zip(together.features.levels_hwc, alone.features.levels_hwc, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_restored_session_goes_on_bit_for_bit(model):
    session = model.open_session(ObjectIds().new)
    concept = ConceptPrompt("p9", "swan", "swan", score_threshold=0.9)
    for number in range(5):
        session.step(model.encode([draw(number)])[0], [*prompts_for(number), concept] if number == 0 else [])
    state = session.snapshot()
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in state.values())
    copy = {name: array.copy() for name, array in state.items()}
    restored = model.open_session(ObjectIds().new)
    restored.restore(state)
    for number in range(5, 14):
        encoded = model.encode([draw(number)])[0]
        assert same(session.step(encoded), restored.step(encoded))
    for name, array in state.items():
        np.testing.assert_array_equal(array, copy[name])
    for name, array in session.snapshot().items():
        np.testing.assert_array_equal(array, restored.snapshot()[name])


def test_state_does_not_grow_with_the_number_of_frames(model):
    session = model.open_session(ObjectIds().new)
    sizes = []
    for number in range(40):
        session.step(model.encode([draw(number)])[0], prompts_for(number))
        sizes.append(sum(array.nbytes for array in session.snapshot().values()))
    assert len(set(sizes)) == 1


def test_more_clicks_refine_the_object_and_keep_its_id(model):
    session = model.open_session(ObjectIds().new)
    x, y = disc_center(0, SIZE)
    encoded = model.encode([draw(0)])[0]
    first = session.step(encoded, [click_prompt((x, y, True))]).objects[0]
    away = np.argwhere(first.mask & ~disc_mask(0, SIZE))
    wrong = (float(away[0][1]), float(away[0][0])) if len(away) else (2.0, 100.0)
    refined = session.step(encoded, [click_prompt((*wrong, False))]).objects
    assert [found.object_id for found in refined] == [1]
    assert not refined[0].mask[int(wrong[1]), int(wrong[0])]
    assert refined[0].mask[int(y), int(x)]


def test_negative_clicks_alone_say_nothing_of_a_new_object(model):
    session = model.open_session(ObjectIds().new)
    session.step(model.encode([draw(0)])[0], prompts_for(0))
    twin = model.open_session(ObjectIds().new)
    twin.restore(session.snapshot())
    encoded = model.encode([draw(1)])[0]
    with pytest.raises(PromptError, match="at least one click must be on the object"):
        session.step(encoded, [click_prompt((5, 5, False), object_id=2)])
    assert same(session.step(encoded), twin.step(encoded))


@pytest.mark.parametrize(
    "prompt",
    [
        mask_prompt(2, np.ones((7, 9), np.bool_)),
        ConceptPrompt("p2", "flying teapot", "teapot"),
        ConceptPrompt("p2", "", "like these", exemplar_boxes_xyxy=((0, 0, 9, 9),), exemplar_positive=(True,)),
    ],
    ids=["mask of another size", "unknown phrase", "exemplars"],
)
def test_a_prompt_that_cannot_be_used_changes_nothing(model, prompt):
    session = model.open_session(ObjectIds().new)
    before = session.step(model.encode([draw(0)])[0], prompts_for(0))
    state = session.snapshot()
    with pytest.raises(PromptError):
        session.step(model.encode([draw(1)])[0], [mask_prompt(1, disc_mask(1, SIZE)), prompt])
    for name, array in session.snapshot().items():
        np.testing.assert_array_equal(array, state[name])
    assert len(before.objects) == 1


def test_there_is_room_for_so_many_objects_and_no_more():
    model = load_lite(capacity=2)
    session = model.open_session(ObjectIds().new)
    encoded = model.encode([draw(0)])[0]
    session.step(encoded, [mask_prompt(1, disc_mask(0, SIZE)), mask_prompt(2, disc_mask(9, SIZE))])
    with pytest.raises(CapacityError, match="room for 2 objects"):
        session.step(encoded, [mask_prompt(3, disc_mask(0, SIZE))])
    session.remove(1)
    tracked = session.step(encoded, [mask_prompt(3, disc_mask(0, SIZE))])
    assert [found.object_id for found in tracked.objects] == [2, 3]


def test_removing_an_object_does_not_disturb_the_others(model):
    session = model.open_session(ObjectIds().new)
    corner = np.zeros(SIZE[::-1], np.bool_)
    corner[:24, :24] = True
    session.step(model.encode([draw(0)])[0], [mask_prompt(1, disc_mask(0, SIZE)), mask_prompt(2, corner)])
    session.remove(2)
    session.remove(99)
    tracked = session.step(model.encode([draw(1)])[0])
    assert [found.object_id for found in tracked.objects] == [1]
    assert iou(tracked.objects[0].mask, disc_mask(1, SIZE)) > 0.7


def test_the_resolution_may_change_from_frame_to_frame(model):
    session = model.open_session(ObjectIds().new)
    choices = model.resolutions(*SIZE)
    assert len(choices) > 1
    for number in range(12):
        encoded = model.encode([draw(number)], choices[number % len(choices)])[0]
        tracked = session.step(encoded, prompts_for(number))
        assert tracked.resolution == choices[number % len(choices)]
        assert iou(tracked.objects[0].mask, disc_mask(number, SIZE)) > 0.6


@pytest.mark.parametrize("size", [(64, 48), (97, 401), (641, 35), (32, 32)])
def test_odd_pictures_are_tracked_too(model, size):
    session = model.open_session(ObjectIds().new)
    random = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    frame = Frame("0", 0, 0, Fraction(1, 25), ArrayPicture(random))
    width, height = size
    for prompt in (
        click_prompt((0, 0, True), (width - 1, height - 1, False)),
        ObjectPrompt(1, "p1", "box", box_xyxy=(0, 0, width, height)),
        ObjectPrompt(1, "p1", "box", box_xyxy=(width - 1.5, height - 1.5, width, height)),
    ):
        tracked = session.step(model.encode([frame])[0], [dataclasses.replace(prompt, object_id=1)])
        assert tracked.objects[0].mask.shape == (height, width)
        session.step(model.encode([frame])[0])


def test_a_closed_session_can_be_closed_again(model):
    session = model.open_session(ObjectIds().new)
    session.step(model.encode([draw(0)])[0], prompts_for(0))
    session.close()
    session.close()
    assert session.step(model.encode([draw(1)])[0]).objects == ()
