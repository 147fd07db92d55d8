"""Exemplar boxes: what a user may say, and what the message tells when it cannot be used."""

import pytest

from sam3_stream.core.errors import PromptError
from sam3_stream.core.prompts import ConceptPrompt, ExemplarPrompt

BOX = (10.0, 10.0, 30.0, 40.0)


def test_exemplars_may_be_positive_and_negative_with_or_without_a_phrase():
    prompt = ExemplarPrompt(boxes_xyxy=(BOX, (50.0, 0.0, 60.0, 9.0)), positive=(True, False), text="forklift")
    prompt.check_size(64, 48)
    assert ExemplarPrompt(boxes_xyxy=(BOX,), positive=(True,)).text == ""


@pytest.mark.parametrize(
    ("boxes", "positive", "message"),
    [
        ((), (), "one box or more"),
        ((BOX,), (True, False), "a positive or negative mark for each"),
        (((5.0, 5.0, 5.0, 9.0),), (True,), "has no area"),
    ],
)
def test_unusable_exemplars_say_what_is_wrong(boxes, positive, message):
    with pytest.raises(PromptError, match=message):
        ExemplarPrompt(boxes_xyxy=boxes, positive=positive)


def test_an_exemplar_outside_the_picture_is_refused():
    with pytest.raises(PromptError, match="outside the picture"):
        ExemplarPrompt(boxes_xyxy=(BOX,), positive=(True,)).check_size(20, 20)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "  "}, "needs a phrase or an exemplar box"),
        ({"text": "dog", "exemplar_boxes_xyxy": (BOX,)}, "positive or negative mark"),
        ({"text": "dog", "score_threshold": 1.5}, "between 0 and 1"),
        ({"text": "dog", "max_objects": 0}, "1 or more"),
    ],
)
def test_an_unusable_concept_says_what_is_wrong(fields, message):
    with pytest.raises(PromptError, match=message):
        ConceptPrompt(prompt_id="p1", label="dog", **fields)


def test_boxes_alone_make_a_concept():
    concept = ConceptPrompt(
        prompt_id="p1", text="", label="like this", exemplar_boxes_xyxy=(BOX,), exemplar_positive=(True,)
    )
    assert concept.max_objects is None
