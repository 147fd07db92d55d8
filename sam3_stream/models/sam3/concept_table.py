"""Which concepts a session looks for: phrases and exemplars added, replaced and removed while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sam3_stream.core.errors import PromptError
from sam3_stream.core.prompts import BoxPrompt, ConceptPrompt
from sam3_stream.core.records import Frame
from sam3_stream.models.sam3.detector import Detector, DetectorFeatures, PromptFeatures
from sam3_stream.models.sam3.text_encoder import VISUAL_PHRASE, TextFeatures, normalize_phrase

PhraseBank = Callable[[Sequence[str]], list[TextFeatures]]
"""Gives the text features of phrases, as `PromptBank` does."""


@dataclass(frozen=True, slots=True, eq=False)
class Concept:
    """A concept that a session looks for.

    Attributes:
        prompt: What was said.
        number: Tells it from the session's other concepts; it keeps it while its phrase stays the same.
        text: Features of the phrase.
        features: What the detector reads; None until it has seen the frame that the exemplars are on.
    """

    prompt: ConceptPrompt
    number: int
    text: TextFeatures
    features: PromptFeatures | None = None

    @property
    def phrase(self) -> str:
        """The phrase as the text encoder reads it."""
        return _phrase(self.prompt)


class ConceptTable:
    """The concepts of one session, in the order in which they were added.

    Args:
        phrases: Gives the text features of phrases.
        max_concepts: How many there may be.
    """

    def __init__(self, phrases: PhraseBank, max_concepts: int) -> None:
        self._phrases = phrases
        self._max_concepts = max_concepts
        self._concepts: dict[str, Concept] = {}
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._concepts)

    def __contains__(self, prompt_id: object) -> bool:
        return prompt_id in self._concepts

    def __getitem__(self, prompt_id: str) -> Concept:
        return self._concepts[prompt_id]

    def __iter__(self) -> Iterator[Concept]:
        return iter(tuple(self._concepts.values()))

    def check(self, prompts: Sequence[ConceptPrompt], frame: Frame) -> list[Concept]:
        """Make concepts of prompts, phrases encoded, without changing anything yet.

        Raises:
            PromptError: A phrase is too long, a box is outside the picture, or there are too many concepts.
        """
        for prompt in prompts:
            for x0, y0, x1, y1 in prompt.exemplar_boxes_xyxy:
                BoxPrompt(x0=x0, y0=y0, x1=x1, y1=y1).check_size(frame.width, frame.height)
        total = len({*self._concepts, *(prompt.prompt_id for prompt in prompts)})
        if total > self._max_concepts:
            raise PromptError(
                f"{total} phrases and exemplars are more than one session looks for at a time ({self._max_concepts}): "
                "remove some, or raise max_concepts"
            )
        texts = self._phrases([_phrase(prompt) for prompt in prompts]) if prompts else []
        return [Concept(prompt, 0, text) for prompt, text in zip(prompts, texts, strict=True)]

    def accept(self, checked: Concept) -> tuple[bool, bool]:
        """Look for this concept from now on.

        Under an id that is known it replaces what was there: with the same phrase its objects stay, with another they
        end. A phrase that is looked for already under another id, without exemplars on either side, is not looked for
        twice: the first one stands.

        Returns:
            Whether it was taken, and whether the objects of its id end.
        """
        prompt = checked.prompt
        known = self._concepts.get(prompt.prompt_id)
        if known is None and self._is_looked_for(prompt):
            return False, False
        same_phrase = known is not None and known.phrase == checked.phrase
        if known is not None and same_phrase:
            number = known.number
        else:
            self._last_number += 1
            number = self._last_number
        self._concepts[prompt.prompt_id] = replace(checked, number=number)
        return True, known is not None and not same_phrase

    def remove(self, prompt_id: str) -> bool:
        """Stop looking for a concept; whether there was such a one."""
        return self._concepts.pop(prompt_id, None) is not None

    def read(self, concept: Concept, detector: Detector, features: DetectorFeatures, frame: Frame) -> PromptFeatures:
        """The concept as the detector reads it; exemplars are read off the frame they came with, once."""
        if concept.features is not None:
            return concept.features
        prompt = concept.prompt
        boxes = [
            (x0 / frame.width, y0 / frame.height, x1 / frame.width, y1 / frame.height)
            for x0, y0, x1, y1 in prompt.exemplar_boxes_xyxy
        ]
        read = detector.prompt(concept.text, features, boxes, prompt.exemplar_positive)
        self._concepts[prompt.prompt_id] = replace(concept, features=read)
        return read

    def restore(self, concepts: Sequence[Concept]) -> None:
        """Take the concepts of a snapshot in place of these."""
        self._concepts = {concept.prompt.prompt_id: concept for concept in concepts}
        self._last_number = max((concept.number for concept in concepts), default=0)

    def _is_looked_for(self, prompt: ConceptPrompt) -> bool:
        return not prompt.exemplar_boxes_xyxy and any(
            concept.phrase == _phrase(prompt) and not concept.prompt.exemplar_boxes_xyxy for concept in self
        )


def _phrase(prompt: ConceptPrompt) -> str:
    return normalize_phrase(prompt.text) if prompt.text.strip() else VISUAL_PHRASE
