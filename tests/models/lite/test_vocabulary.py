import pytest

from sam3_stream.core.errors import PromptError
from sam3_stream.core.prompts import ExemplarPrompt, TextPrompt
from sam3_stream.models.lite.vocabulary import classes_of


@pytest.mark.parametrize(
    ("phrase", "some_class"),
    [
        ("rabbit", 330),  # wood rabbit
        ("dog", 207),  # golden retriever
        ("bird", 100),  # black swan
        ("car", 817),  # sports car
        ("black swan", 100),
        ("ox", 345),
        ("The  Camel", 354),
        ("dogs", 151),
        ("buses", 779),  # school bus
        ("butterflies", 323),  # monarch
    ],
)
def test_knows_words_synonyms_hypernyms_and_plurals(phrase, some_class):
    assert some_class in classes_of(phrase)


def test_a_word_means_all_of_its_kinds_and_nothing_else():
    assert classes_of("dog") == tuple(range(151, 269))
    assert set(classes_of("swan")) < set(classes_of("bird")) < set(classes_of("animal"))
    assert not set(classes_of("car")) & set(classes_of("bird"))


@pytest.mark.parametrize("phrase", ["person", "object", "entity"])
def test_refuses_what_the_classes_do_not_cover(phrase):
    with pytest.raises(PromptError, match="SAM 3 takes any phrase"):
        classes_of(phrase)


def test_an_unknown_phrase_names_the_nearest_words_and_the_way_out(model):
    with pytest.raises(PromptError, match=r"lite does not know 'red car': .*nearest: car.*SAM 3 takes any phrase"):
        model.check_prompt(TextPrompt(text="red car"))
    with pytest.raises(PromptError, match=r"nearest: .*elephant"):
        model.check_prompt(TextPrompt(text="elefant"))
    with pytest.raises(PromptError, match=r"nearest: dog, bird, car"):
        model.check_prompt(TextPrompt(text="qqqqqqqq"))


def test_exemplars_are_refused(model):
    with pytest.raises(PromptError, match="SAM 3 can"):
        model.check_prompt(ExemplarPrompt(boxes_xyxy=((0, 0, 5, 5),), positive=(True,)))


def test_a_known_phrase_is_accepted(model):
    model.check_prompt(TextPrompt(text="rabbit"))
