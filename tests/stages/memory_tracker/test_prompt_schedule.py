"""Which prompt reaches which object on which frame."""

from __future__ import annotations

import numpy as np
import pytest

from sam3_stream.core.errors import PromptError
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.prompts import BoxPrompt, ConceptPrompt, MaskPrompt, ObjectPrompt, PointPrompt, TextPrompt
from sam3_stream.stages.memory_tracker.prompt_schedule import PromptSchedule


def schedule(*prompts) -> PromptSchedule:
    return PromptSchedule(prompts, ObjectIds())


def test_each_unnamed_click_is_an_object_of_its_own():
    due = schedule(PointPrompt(x=1, y=2), PointPrompt(x=3, y=4)).due(0.0)
    assert [(each.object_id, each.label, each.points_n2.tolist()) for each in due] == [
        (1, "object 1", [[1, 2]]),
        (2, "object 2", [[3, 4]]),
    ]


def test_a_name_groups_clicks_box_and_mask_on_one_labelled_object():
    mask = np.ones((4, 4), np.bool_)
    due = schedule(
        PointPrompt(x=1, y=2, name="dog"),
        PointPrompt(x=3, y=4, positive=False, name="dog"),
        BoxPrompt(x0=0, y0=0, x1=5, y1=6, name="dog"),
        MaskPrompt(mask=mask, name="dog"),
    ).due(0.0)
    (dog,) = due
    assert isinstance(dog, ObjectPrompt)
    assert (dog.object_id, dog.label, dog.prompt_id) == (1, "dog", "p1")
    assert dog.positive_n.tolist() == [True, False]
    assert dog.box_xyxy == (0, 0, 5, 6)
    assert dog.mask is mask


def test_a_prompt_waits_for_its_time_and_comes_once():
    plan = schedule(PointPrompt(x=1, y=1), PointPrompt(x=2, y=2, time_s=1.0))
    assert [each.object_id for each in plan.due(0.0)] == [1]
    assert plan.due(0.96) == []
    assert [each.object_id for each in plan.due(1.04)] == [2]
    assert plan.due(1.08) == []
    assert plan.pending == ()


def test_a_later_click_of_the_same_name_refines_the_same_object():
    plan = schedule(PointPrompt(x=1, y=1, name="car"), PointPrompt(x=9, y=9, time_s=2, name="car"))
    assert [each.object_id for each in plan.due(0)] == [1]
    (refined,) = plan.due(2)
    assert (refined.object_id, refined.points_n2.tolist()) == (1, [[9, 9]])


def test_ids_follow_the_order_of_the_prompts_not_of_their_times():
    plan = schedule(PointPrompt(x=1, y=1, time_s=5), PointPrompt(x=2, y=2))
    assert [each.object_id for each in plan.due(0)] == [2]


def test_a_phrase_is_a_concept_that_finds_its_own_ids():
    (concept,) = schedule(TextPrompt(text="forklift")).due(0)
    assert isinstance(concept, ConceptPrompt)
    assert (concept.text, concept.label) == ("forklift", "forklift")


def test_a_click_cannot_take_the_name_of_a_phrase():
    with pytest.raises(PromptError, match="'pet' belongs to a phrase"):
        schedule(TextPrompt(text="dog", name="pet"), PointPrompt(x=1, y=1, name="pet"))


def test_an_object_does_not_begin_with_where_it_is_not():
    schedule(PointPrompt(x=1, y=1, name="a"), PointPrompt(x=2, y=2, positive=False, name="a")).check()
    with pytest.raises(PromptError, match="all clicks of 'a' at 0 s are negative"):
        schedule(PointPrompt(x=1, y=1, name="a", time_s=1), PointPrompt(x=2, y=2, positive=False, name="a")).check()


def test_a_backward_pass_starts_each_object_from_its_earliest_prompts():
    plan = schedule(
        PointPrompt(x=1, y=1, time_s=3, name="a"),
        PointPrompt(x=2, y=2, time_s=5, name="a"),
        PointPrompt(x=7, y=7, time_s=4),
        TextPrompt(text="dog", time_s=1),
    )
    starts = {prompt.object_id: (at_s, prompt.points_n2.tolist()) for at_s, prompt in plan.earliest()}
    assert starts == {1: (3, [[1, 1]]), 2: (4, [[7, 7]])}
