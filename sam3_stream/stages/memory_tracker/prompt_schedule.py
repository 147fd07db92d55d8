"""Which prompts take effect on which frame, and which object each of them speaks of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sam3_stream.core.errors import PromptError
from sam3_stream.core.object_ids import ObjectIds
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
class _Target:
    """The object (or, with id None, the phrase) that a prompt speaks of."""

    object_id: int | None
    prompt_id: str
    label: str


class PromptSchedule:
    """Turns a user's prompts into what a tracking session is given, frame by frame.

    Ids are given in the order of the prompts, whatever their times, so the same command always gives the same ids.
    Prompts with the same name speak of one object; one without a name makes an object of its own.

    Args:
        prompts: The prompts, in the order in which the user gave them.
        ids: Hands out the public object ids.
    """

    def __init__(self, prompts: Sequence[Prompt], ids: ObjectIds) -> None:
        self._ids = ids
        self._named: dict[str, _Target] = {}
        self._count = 0
        self._last_time_s = float("-inf")
        self._pending: list[tuple[float, Prompt, _Target]] = []
        for prompt in prompts:
            self._pending.append((prompt.time_s, prompt, self._target_of(prompt)))

    @property
    def pending(self) -> tuple[Prompt, ...]:
        """Prompts that have not taken effect yet, in the order given."""
        return tuple(prompt for _, prompt, _ in self._pending)

    def add_now(self, prompt: Prompt, time_s: float) -> None:
        """Add a prompt that takes effect at ``time_s``, whatever its own time."""
        self._pending.append((time_s, prompt, self._target_of(prompt)))

    def expects(self, time_s: float) -> bool:
        """Whether a prompt's time has come that has not taken effect."""
        return any(at_s <= time_s for at_s, _, _ in self._pending)

    def due(self, time_s: float) -> list[SessionPrompt]:
        """Take the prompts whose time has come, all that is said of one object in one `ObjectPrompt`."""
        self._last_time_s = time_s
        due = [(prompt, target) for at_s, prompt, target in self._pending if at_s <= time_s]
        if due:
            self._pending = [entry for entry in self._pending if entry[0] > time_s]
        return _combine(due)

    def snapshot(self) -> str:
        """Which prompts have taken effect, and what the names stand for, as text for `restore`."""
        named = {name: [target.object_id, target.prompt_id, target.label] for name, target in self._named.items()}
        return json.dumps({"last_time_s": self._last_time_s, "count": self._count, "named": named})

    def restore(self, snapshot: str) -> None:
        """Take up where the schedule of the same prompts was that gave this snapshot."""
        fields = json.loads(snapshot)
        self.due(fields["last_time_s"])
        self._count = fields["count"]
        self._named = {name: _Target(*target) for name, target in fields["named"].items()}

    def check(self) -> None:
        """Raise `PromptError` when an object's first prompts are only clicks that say where it is not."""
        for at_s, prompt in self.earliest():
            begins = isinstance(prompt, ObjectPrompt) and (
                prompt.positive_n.any() or prompt.box_xyxy is not None or prompt.mask is not None
            )
            if not begins:
                raise PromptError(
                    f"all clicks of {prompt.label!r} at {at_s:g} s are negative; an object begins with a click that is "
                    "on it, a box or a mask"
                )

    def earliest(self) -> list[tuple[float, SessionPrompt]]:
        """Take every object's earliest prompts with their time: what a backward pass starts from.

        Phrases are left out: they look for objects from their time on.
        """
        by_object: dict[int, list[tuple[float, Prompt, _Target]]] = {}
        for entry in self._pending:
            if entry[2].object_id is not None:
                by_object.setdefault(entry[2].object_id, []).append(entry)
        self._pending = []
        first: list[tuple[float, SessionPrompt]] = []
        for entries in by_object.values():
            time_s = min(entry[0] for entry in entries)
            first += [(time_s, prompt) for prompt in _combine([entry[1:] for entry in entries if entry[0] == time_s])]
        return first

    def _target_of(self, prompt: Prompt) -> _Target:
        if prompt.name is not None and prompt.name in self._named:
            target = self._named[prompt.name]
            if (target.object_id is None) != isinstance(prompt, TextPrompt | ExemplarPrompt):
                raise PromptError(
                    f"the name {prompt.name!r} belongs to a phrase, which finds objects by itself, and to a click, box "
                    "or mask; give them names of their own"
                )
            return target
        self._count += 1
        prompt_id = f"p{self._count}"
        if isinstance(prompt, TextPrompt | ExemplarPrompt):
            target = _Target(None, prompt_id, prompt.name or prompt.text or f"concept {prompt_id}")
        else:
            object_id = self._ids.new()
            target = _Target(object_id, prompt_id, prompt.name or f"object {object_id}")
        if prompt.name is not None:
            self._named[prompt.name] = target
        return target


def _combine(entries: Sequence[tuple[Prompt, _Target]]) -> list[SessionPrompt]:
    """One session prompt for each target, in the order in which the targets are first named."""
    by_target: dict[str, tuple[_Target, list[Prompt]]] = {}
    for prompt, target in entries:
        by_target.setdefault(target.prompt_id, (target, []))[1].append(prompt)
    return [_session_prompt(target, prompts) for target, prompts in by_target.values()]


def _concept_prompt(target: _Target, prompt: Prompt) -> ConceptPrompt:
    if isinstance(prompt, ExemplarPrompt):
        return ConceptPrompt(target.prompt_id, prompt.text, target.label, prompt.boxes_xyxy, prompt.positive)
    assert isinstance(prompt, TextPrompt)
    return ConceptPrompt(target.prompt_id, prompt.text, target.label)


def _session_prompt(target: _Target, prompts: Sequence[Prompt]) -> SessionPrompt:
    """A later box or mask of the same object replaces an earlier one; clicks add up."""
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
