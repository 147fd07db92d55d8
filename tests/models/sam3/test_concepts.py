"""Phrases, exemplars and clicks in one live session: what a user sees happen."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import itertools

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.core.clock import SimulatedClock
from sam3_stream.core.errors import PromptError
from sam3_stream.core.prompts import ConceptPrompt, ExemplarPrompt, TextPrompt
from sam3_stream.models.sam3 import TrackerOptions, load_sam3
from sam3_stream.models.sam3.concept_memory import ConceptMemory
from sam3_stream.models.sam3.concept_options import ConceptOptions
from sam3_stream.models.sam3.detect_interval import DetectInterval
from tests.models.sam3.conftest import box, clicks
from tests.support.sam3_concepts import id_counter, moving_frame, phrases, save_concept_model

STEADY = AssociationConfig(score_threshold=0.7, new_score=0.7, hot_start_ticks=0, recondition_ticks=0)
EXEMPLAR = ConceptPrompt(
    prompt_id="like this",
    text="",
    label="like this",
    exemplar_boxes_xyxy=((10.0, 10.0, 60.0, 50.0), (100.0, 40.0, 150.0, 90.0)),
    exemplar_positive=(True, False),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_concept_model(tmp_path_factory.mktemp("concepts"))


class Live:
    """A session on the moving picture; remembers the ids and masks that each frame showed."""

    def __init__(self, folder, *, association=STEADY, every=1, max_objects=32, bank=None, **options):
        interval = every if isinstance(every, DetectInterval) else DetectInterval(frames=every)
        self.model = load_sam3(
            folder,
            device="cpu",
            dtype="fp32",
            options=TrackerOptions(max_objects=max_objects, hole_area=0, sprinkle_area=0, **options),
            concepts=ConceptOptions(association=association, detect_interval=interval, prompt_bank=bank),
        )
        self.ids = id_counter()
        self.session = self.model.open_session(lambda: next(self.ids))
        self.number = -1
        self.frames = []

    def step(self, *prompts, again=False):
        self.number += not again
        self.result = self.session.step(self.model.encode([moving_frame(self.number)])[0], list(prompts))
        self.frames.append({tracked.object_id: tracked for tracked in self.result.objects})
        return self.result

    def run(self, frames):
        for _ in range(frames):
            self.step()
        return self.result

    def of(self, prompt_id):
        """Ids of the objects of a prompt on the latest frame."""
        return [tracked.object_id for tracked in self.result.objects if tracked.prompt_id == prompt_id]

    def new_id(self):
        return next(self.ids)


def iou(one, other):
    union = (one | other).sum()
    return 1.0 if union == 0 else (one & other).sum() / union


def same_state(one, other):
    """Whether two snapshots are equal, NaN being equal to itself."""
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name], equal_nan=value.dtype.kind == "f") for name, value in one.items()
    )


# --- everything at once


def test_two_phrases_an_exemplar_and_two_clicks_live_together_and_change_without_disturbing_each_other(folder):
    def play(changes):
        live = Live(folder, association=replace(STEADY, new_score=0.8), non_overlapping=False)
        first, second = live.new_id(), live.new_id()
        live.step(*phrases("dog", "red cat"), EXEMPLAR, clicks(first, (20, 20)), clicks(second, (100, 70)))
        live.run(9)
        before = {prompt: live.of(prompt) for prompt in ("dog", "red cat", "like this", "prompt 1", "prompt 2")}
        if changes:
            live.step(ConceptPrompt(prompt_id="red cat", text="狗", label="狗", score_threshold=0.2))
            live.run(4)
            live.session.remove(second)
        else:
            live.run(5)
        live.run(10)
        return live, before

    changed, before = play(changes=True)
    undisturbed, same = play(changes=False)
    assert before == same
    assert all(len(ids) >= 1 for ids in before.values())
    assert before["prompt 1"] == [1]
    assert before["prompt 2"] == [2]
    kept = before["dog"] + before["like this"] + before["prompt 1"]
    assert set(kept) <= set(changed.frames[-1]), "the others keep their ids"
    for mine, theirs in zip(changed.frames[9:], undisturbed.frames[9:], strict=True):
        for object_id in kept:
            assert iou(mine[object_id].mask, theirs[object_id].mask) > 0.98, "and their masks"
    gone = set(before["red cat"])
    assert not gone & set(changed.frames[10]), "the replaced phrase's objects end on that frame"
    assert changed.of("prompt 2") == []
    assert changed.of("red cat"), "and the new phrase finds its own"
    assert {tracked.label for tracked in changed.result.objects if tracked.prompt_id == "red cat"} == {"狗"}
    everyone = set().union(*changed.frames)
    assert min(changed.of("red cat")) > max(set().union(*changed.frames[:10])), "ids are never used again"
    assert everyone >= gone


def test_a_phrase_that_is_removed_takes_its_objects_and_no_others(folder):
    live = Live(folder)
    live.step(*phrases("dog", "red cat"))
    live.run(4)
    dogs, cats = live.of("dog"), live.of("red cat")
    live.session.remove_prompt("dog")
    live.session.remove_prompt("nobody asked for this")
    live.run(4)
    assert dogs
    assert set(cats) <= set(live.of("red cat"))
    assert live.of("dog") == []
    live.session.remove_prompt("red cat")
    assert live.step().objects == ()
    assert live.session.looked is None
    live.step(*phrases("dog"))
    assert min(live.of("dog")) > max(dogs + cats)


# --- corrections


def test_a_click_on_an_object_that_a_phrase_found_refines_it_and_keeps_it(folder):
    association = AssociationConfig(score_threshold=0.7, new_score=0.7, hot_start_unmatched_ticks=2)
    live = Live(folder, association=association)
    live.step(*phrases("dog"))
    dogs = live.of("dog")
    target = next(tracked for tracked in live.result.objects if tracked.mask.any())
    y, x = (int(value[len(value) // 2]) for value in np.nonzero(target.mask))
    before = target.mask
    live.step(clicks(target.object_id, (x, y)), again=True)
    assert live.of("dog") == dogs
    assert iou(live.frames[-1][target.object_id].mask, before) < 0.999, "the click has a say"
    # from now on the phrase finds nothing: what nothing confirms is taken back, but not what the user confirmed
    live.step(replace(phrases("dog")[0], score_threshold=1.0))
    live.run(12)
    assert live.of("dog") == [target.object_id]
    live.session.remove(target.object_id)
    assert live.step().objects == ()


def test_a_box_around_a_found_object_restarts_it_under_its_id(folder):
    live = Live(folder)
    live.step(*phrases("dog"))
    live.run(2)
    target = live.of("dog")[0]
    count = len(live.result.objects)
    live.step(replace(box(target, 30, 20, 90, 70), prompt_id="dog", label="dog"))
    assert target in live.of("dog")
    assert len(live.result.objects) <= count + 1
    live.run(3)
    assert target in live.of("dog")


# --- limits and thresholds


def test_each_phrase_has_its_own_limit_and_threshold(folder):
    dog, cat = phrases("dog", "red cat")
    crowded = replace(STEADY, nms_iou=0.0)
    free = Live(folder, association=crowded)
    free.step(dog, cat)
    limited = Live(folder, association=crowded)
    limited.step(replace(dog, max_objects=1), replace(cat, score_threshold=0.99))
    assert len(free.of("dog")) > 1
    assert len(limited.of("dog")) == 1
    best = max(tracked.score for tracked in free.result.objects if tracked.prompt_id == "dog")
    assert [tracked.score for tracked in limited.result.objects if tracked.prompt_id == "dog"] == [best]
    assert len(limited.of("red cat")) < len(free.of("red cat"))
    limited.run(8)
    assert len(limited.of("dog")) <= 1
    eager = Live(folder, association=crowded)
    eager.step(replace(cat, score_threshold=0.3))
    assert len(eager.of("red cat")) > len(free.of("red cat")), "a lower threshold finds more"


def test_a_session_may_have_less_room_than_the_model(folder):
    def most(max_objects):
        live = Live(folder)
        live.session = live.model.open_session(live.new_id, max_objects)
        live.step(*phrases("dog", "red cat"))
        live.run(5)
        return max(len(frame) for frame in live.frames)

    assert most(None) > 1, "else this shows nothing"
    assert most(1) == 1


def test_when_the_session_is_full_clicks_and_objects_stay_and_the_rest_is_left_out(folder):
    live = Live(folder, max_objects=3)
    live.step(clicks(live.new_id(), (20, 20)), *phrases("dog", "red cat", "x"))
    assert len(live.result.objects) == 3
    assert 1 in live.frames[-1]
    live.run(5)
    assert len(live.result.objects) <= 3


# --- when the detector looks


@pytest.mark.parametrize("interval", [DetectInterval(frames=10), DetectInterval(ms=400)])
def test_the_detector_looks_at_its_interval_and_when_prompts_change(folder, interval):
    live = Live(folder, every=interval)
    looked = []
    for number in range(26):
        live.step(*(phrases("dog") if number == 0 else phrases("red cat") if number == 13 else ()))
        looked.append(live.session.looked)
    assert [number for number, look in enumerate(looked) if look] == [0, 10, 13, 23]
    assert live.of("red cat")
    live.session.detect_interval = DetectInterval(frames=1)
    live.step()
    assert live.session.looked


def test_between_looks_objects_are_tracked_and_keep_their_ids(folder):
    live = Live(folder, every=10)
    live.step(*phrases("dog"))
    dogs = live.of("dog")
    seen = []
    for _ in range(9):
        live.step()
        assert live.of("dog") == dogs
        assert not live.session.looked
        seen.append(live.result.objects[0].mask)
    assert any((one != other).any() for one, other in itertools.pairwise(seen)), "masks move with the picture"


def test_a_phrase_on_the_frame_that_was_stepped_last_is_looked_for_on_it_at_once(folder):
    live = Live(folder, every=5)
    live.step(*phrases("dog"))
    dogs = live.frames[-1]
    live.step(*phrases("red cat"), again=True)
    assert live.of("red cat")
    for object_id in dogs:
        assert (live.frames[-1][object_id].mask == dogs[object_id].mask).all(), "nothing else happens on that frame"
    cats = live.of("red cat")
    live.step()
    assert live.of("red cat") == cats


# --- exemplars


def test_exemplars_find_objects_on_later_frames_without_their_boxes(folder):
    live = Live(folder)
    live.step()
    live.step(EXEMPLAR)
    found = live.of("like this")
    assert found
    live.run(5)
    assert set(found) & set(live.of("like this"))
    with_other_sign = Live(folder)
    with_other_sign.step()
    with_other_sign.step(replace(EXEMPLAR, exemplar_positive=(False, True)))
    masks = [[tracked.mask for tracked in one.frames[1].values()] for one in (live, with_other_sign)]
    assert len(masks[0]) != len(masks[1]) or any((a != b).any() for a, b in zip(*masks, strict=True))


def test_more_exemplars_of_the_same_concept_keep_its_objects(folder):
    live = Live(folder)
    live.step(replace(EXEMPLAR, text="dog"))
    found = live.of("like this")
    more = replace(EXEMPLAR, text="dog", exemplar_boxes_xyxy=((50.0, 5.0, 90.0, 60.0),), exemplar_positive=(True,))
    live.step(more)
    assert set(found) <= set(live.of("like this"))


# --- phrases of every kind


def test_the_same_phrase_twice_is_looked_for_once(folder):
    once, twice = Live(folder), Live(folder)
    once.step(*phrases("dog"))
    twice.step(*phrases("dog"), ConceptPrompt(prompt_id="again", text=" DOG", label="again"))
    twice.step(ConceptPrompt(prompt_id="again", text="Dog", label="again"))
    assert len(once.of("dog")) == len(list(twice.frames[0].values()))
    assert twice.of("again") == []


@pytest.mark.parametrize("text", ["🐕‍🦺", "собака", "狗", "ὁ κύων", "a person, on a bicycle!"])
def test_emoji_and_every_script_are_phrases_like_others(folder, text):
    live = Live(folder)
    live.model.check_prompt(TextPrompt(text=text))
    live.step(replace(phrases(text)[0], score_threshold=0.01))
    assert live.of(text)
    assert {tracked.label for tracked in live.result.objects} == {text}


def test_unusable_prompts_are_refused_at_once_and_nothing_changes(folder):
    live = Live(folder)
    live.step(*phrases("dog"))
    state = live.session.snapshot()
    frame = live.model.encode([moving_frame(1)])[0]
    with pytest.raises(PromptError, match="is too long: SAM 3 reads 30 tokens"):
        live.model.check_prompt(TextPrompt(text="dog " * 200))
    for prompt, message in (
        (ConceptPrompt(prompt_id="long", text="dog " * 200, label="long"), "is too long"),
        (replace(EXEMPLAR, exemplar_boxes_xyxy=((0.0, 0.0, 500.0, 50.0),) * 2), "reaches outside the picture"),
    ):
        with pytest.raises(PromptError, match=message):
            live.session.step(frame, [clicks(99, (20, 20)), prompt])
    with pytest.raises(PromptError, match="the phrase is empty"):
        TextPrompt(text=" \n")
    after = live.session.snapshot()
    assert same_state(state, after)
    live.model.check_prompt(ExemplarPrompt(boxes_xyxy=((0, 0, 9, 9),), positive=(True,)))


def test_more_phrases_than_one_pass_takes_are_refused(folder):
    live = Live(folder)
    many = phrases(*(f"thing {number}" for number in range(33)))
    with pytest.raises(PromptError, match="33 phrases and exemplars are more than one session looks for"):
        live.step(*many)


# --- what is loaded


def test_only_what_is_used_is_loaded(folder, tmp_path):
    live = Live(folder, bank=tmp_path)
    live.step(clicks(live.new_id(), (20, 20)))
    with live.model.engine() as engine:
        assert engine._detector is None, "no detector without phrases"
    assert not live.model._text_encoder.is_loaded
    live.step(*phrases("dog"))
    assert live.model._text_encoder.is_loaded
    with live.model.engine() as engine:
        assert engine._detector is not None
    again = Live(folder, bank=tmp_path)
    again.step(*phrases("Dog"))
    assert again.of("Dog")
    assert not again.model._text_encoder.is_loaded, "the phrase is in the bank"
    again.model.check_prompt(TextPrompt(text="red cat"))
    assert again.model._text_encoder.is_loaded, "encoded where the prompt is checked, not where frames are stepped"
    again.model.close()
    assert not again.model._text_encoder.is_loaded


# --- corrections in hindsight


def test_what_hot_start_rejects_is_retracted_with_the_frames_that_showed_it(folder):
    association = AssociationConfig(score_threshold=0.7, new_score=0.7, hot_start_unmatched_ticks=2)
    live = Live(folder, association=association)
    live.step(*phrases("dog", "red cat"))
    retracted = []
    for _ in range(12):
        for retraction in live.step().retracted:
            frames = [number for number, shown in enumerate(live.frames) if retraction.object_id in shown]
            assert (retraction.first_sequence, retraction.last_sequence) == (frames[0], frames[-1])
            assert retraction.last_sequence == live.number - 1
            retracted.append(retraction.object_id)
    assert retracted
    assert len(retracted) == len(set(retracted))
    assert not set(retracted) & set(live.frames[-1])


def test_shown_after_hot_start_nothing_is_ever_retracted(folder):
    association = AssociationConfig(
        score_threshold=0.7, new_score=0.7, hot_start_unmatched_ticks=2, hot_start_ticks=6, show="after_hot_start"
    )
    live = Live(folder, association=association)
    live.step(*phrases("dog", "red cat"))
    for _ in range(16):
        assert live.step().retracted == ()
        assert all(not live.frames[number] for number in range(min(6, len(live.frames))))
    assert live.frames[-1], "what passes its probation is shown"


# --- the rest of part one, with concepts


def test_a_restored_session_goes_on_bit_for_bit(folder):
    live = Live(folder, every=3)
    live.step(*phrases("dog"), EXEMPLAR, clicks(live.new_id(), (20, 20)))
    live.run(7)
    state = live.session.snapshot()
    other = Live(folder, every=3)
    other.session.restore(state)
    other.ids, other.number = live.ids, live.number
    ids = [live.new_id() for _ in range(40)]
    for run in (live, other):
        run.ids = iter(ids)
        for _ in range(8):
            run.step()
    assert len(other.frames) == 8
    for mine, theirs in zip(other.frames, live.frames[-8:], strict=True):
        assert mine.keys() == theirs.keys()
        for object_id, tracked in mine.items():
            assert (tracked.mask == theirs[object_id].mask).all()
            assert tracked.score == theirs[object_id].score
    assert same_state(live.session.snapshot(), other.session.snapshot())


def test_a_change_of_resolution_keeps_every_id(folder):
    live = Live(folder, association=replace(STEADY, new_score=1.0))
    live.step(replace(phrases("dog")[0], score_threshold=0.7))
    live.step(replace(phrases("dog")[0], score_threshold=1.0))  # none are added any more
    dogs = live.of("dog")
    for resolution in (168, 112, 224):
        live.model.resolution = resolution
        for _ in range(3):
            live.step()
            assert live.of("dog") == dogs
            assert live.result.resolution == (resolution, resolution)
    live.step(replace(phrases("dog")[0], score_threshold=0.3))
    assert len(live.of("dog")) >= len(dogs), "and the detector looks at the new resolution"


def test_when_memory_runs_out_in_a_look_the_frame_is_done_again_and_nothing_is_born_twice(folder, monkeypatch, caplog):
    live = Live(folder, every=2)
    live.step(*phrases("dog"))
    begin = ConceptMemory.begin
    failures = iter([True])

    def fails_once(self, slots, masks_nhw):
        if next(failures, False):
            raise torch.OutOfMemoryError("out of memory")
        return begin(self, slots, masks_nhw)

    monkeypatch.setattr(ConceptMemory, "begin", fails_once)
    live.model.resolution = 224
    dogs = live.of("dog")
    with caplog.at_level(logging.WARNING):
        live.step(*phrases("red cat"))
    assert live.result.resolution[0] < 224
    assert "GPU memory ran out" in caplog.text
    assert live.of("dog")[: len(dogs)] == dogs
    cats = live.of("red cat")
    assert cats
    fresh = Live(folder, every=2)
    fresh.model.resolution = live.result.resolution[0]
    fresh.step()
    fresh.step(*phrases("red cat"))
    assert len(cats) == len(fresh.of("red cat")), "as many as without the failure"


def test_the_detector_and_the_text_encoder_go_with_the_weights_and_come_back(folder):
    clock = SimulatedClock()
    model = load_sam3(
        folder, device="cpu", dtype="fp32", idle_unload_s=600.0, clock=clock, concepts=ConceptOptions(prompt_bank=None)
    )
    session = model.open_session(id_counter().__next__)
    first = session.step(model.encode([moving_frame(0)])[0], phrases("dog"))
    assert model._text_encoder.is_loaded
    clock.sleep(601.0)
    assert model.unload_if_idle()
    assert not model.loaded
    assert not model._text_encoder.is_loaded
    second = session.step(model.encode([moving_frame(1)])[0], phrases("red cat"))
    assert session.looked
    assert {tracked.object_id for tracked in first.objects} <= {tracked.object_id for tracked in second.objects}
    model.close()
