"""What a phrase means to a network that knows the 1000 ImageNet classes."""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path

from sam3_stream.core.errors import PromptError

_PATH = Path(__file__).with_name("vocabulary.json")
_ARTICLES = ("a ", "an ", "the ")
_EXAMPLES = ("dog", "bird", "car")
# Words that people use for more than WordNet does: to them a hare is a rabbit, and a bunny either.
_EVERYDAY = {
    "rabbit": (330, 331, 332),
    "bunny": (330, 331, 332),
    "bunny rabbit": (330, 331, 332),
    "cow": (345,),
}


def classes_of(phrase: str) -> tuple[int, ...]:
    """The ImageNet classes that a phrase names, through WordNet's synonyms and hypernyms.

    Raises:
        PromptError: No class is called so; names the nearest words that are known.
    """
    wanted = " ".join(phrase.lower().split())
    for article in _ARTICLES:
        wanted = wanted.removeprefix(article)
    words = _load_words()
    for form in _singular_forms(wanted):
        if form in words:
            return words[form]
    raise PromptError(
        f"lite does not know {phrase!r}: it knows the words of the ImageNet classes; "
        f"nearest: {', '.join(_nearest(wanted, words))}; SAM 3 takes any phrase (--model sam3)"
    )


def check_concept(text: str, *, exemplars: bool = False) -> None:
    """Raise `PromptError` when lite can never look for this."""
    if exemplars:
        raise PromptError("lite cannot look for things like those in a box; SAM 3 can (--model sam3)")
    classes_of(text)


def _singular_forms(word: str) -> list[str]:
    forms = [word]
    if word.endswith("ies"):
        forms.append(word[:-3] + "y")
    if word.endswith("es"):
        forms.append(word[:-2])
    if word.endswith("s"):
        forms.append(word[:-1])
    return forms


def _nearest(wanted: str, words: dict[str, tuple[int, ...]]) -> list[str]:
    """Words inside the phrase that are known ("red car" -> "car"), then those spelt alike."""
    inside = [form for part in reversed(wanted.split()) for form in _singular_forms(part) if form in words]
    alike = difflib.get_close_matches(wanted, words, n=3, cutoff=0.7)
    return list(dict.fromkeys(inside + alike))[:3] or list(_EXAMPLES)


@cache
def _load_words() -> dict[str, tuple[int, ...]]:
    ranges: dict[str, str] = json.loads(_PATH.read_text(encoding="ascii"))["words"]
    return {word: _parse_ranges(text) for word, text in ranges.items()} | _EVERYDAY


def _parse_ranges(text: str) -> tuple[int, ...]:
    """ "1-3,7" -> (1, 2, 3, 7)."""
    classes: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        classes.extend(range(int(first), int(last or first) + 1))
    return tuple(classes)
