"""All that is said of one object on one frame, in one prompt for the tracking session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sam3_stream.core.prompts import (
    BoxPrompt,
    ConceptPrompt,
    ExemplarPrompt,
    MaskPrompt,
    ObjectPrompt,
    PointPrompt,
    Prompt,
    SessionPrompt,
    TextPrompt,
)


@dataclass(frozen=True, slots=True)
class Target:
    """The object (or, with id None, the phrase) that a prompt speaks of."""

    object_id: int | None
    prompt_id: str
    label: str


def combine(entries: Sequence[tuple[Prompt, Target]]) -> list[SessionPrompt]:
    """One session prompt for each target, in the order in which the targets are first named."""
    by_target: dict[tuple[str, int | None], tuple[Target, list[Prompt]]] = {}
    for prompt, target in entries:
        by_target.setdefault((target.prompt_id, target.object_id), (target, []))[1].append(prompt)
    return [session_prompt(target, prompts) for target, prompts in by_target.values()]


def session_prompt(target: Target, prompts: Sequence[Prompt]) -> SessionPrompt:
    """What the prompts say of their target. A later box or mask replaces an earlier one; clicks add up."""
    if target.object_id is None:
        return _concept_prompt(target, prompts[-1])
    clicks = [prompt for prompt in prompts if isinstance(prompt, PointPrompt)]
    boxes = [prompt for prompt in prompts if isinstance(prompt, BoxPrompt)]
    masks = [prompt for prompt in prompts if isinstance(prompt, MaskPrompt)]
    return ObjectPrompt(
        object_id=target.object_id,
        prompt_id=target.prompt_id,
        label=target.label,
        points_n2=np.array([(click.x, click.y) for click in clicks], dtype=np.float32).reshape(-1, 2),
        positive_n=np.array([click.positive for click in clicks], dtype=np.bool_),
        box_xyxy=(boxes[-1].x0, boxes[-1].y0, boxes[-1].x1, boxes[-1].y1) if boxes else None,
        mask=masks[-1].mask if masks else None,
    )


def _concept_prompt(target: Target, prompt: Prompt) -> ConceptPrompt:
    assert isinstance(prompt, TextPrompt | ExemplarPrompt)
    boxes, positive = (prompt.boxes_xyxy, prompt.positive) if isinstance(prompt, ExemplarPrompt) else ((), ())
    return ConceptPrompt(
        target.prompt_id,
        prompt.text,
        target.label,
        boxes,
        positive,
        score_threshold=prompt.score_threshold,
        max_objects=prompt.max_objects,
    )
