"""Which prompts take effect on which frame, and which object each of them speaks of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sam3_stream.core.errors import NotFoundError, PromptError
from sam3_stream.core.masks_format import describe_prompt
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.prompt_description import prompt_from_description
from sam3_stream.core.prompt_scaling import scale_prompt
from sam3_stream.core.prompts import (
    ExemplarPrompt,
    ObjectPrompt,
    Prompt,
    SessionPrompt,
    TextPrompt,
)
from sam3_stream.core.records import TrackedFrame
from sam3_stream.stages.memory_tracker.combining import Target, combine

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GivenPrompts:
    """All that has been said of one object, or a phrase, and still holds.

    Attributes:
        prompt_id: Its id.
        object_id: The object; None for a phrase or exemplars.
        label: What it is called.
        prompts: What has been said, in order.
    """

    prompt_id: str
    object_id: int | None
    label: str
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class _Given:
    prompt: Prompt
    prompt_id: str
    size: Size | None = None  # of the picture that it was said on; None until it has taken effect


@dataclass(frozen=True, slots=True)
class Mark:
    """What `PromptSchedule.undo` goes back to."""

    targets: dict[str, Target]
    named: dict[str, str]
    given: list[_Given]
    pending: list[tuple[float, Prompt, Target]]
    labels: dict[int, str]


class PromptSchedule:
    """Turns a user's prompts into what a tracking session is given, frame by frame, and remembers them.

    Ids are given in the order of the prompts, whatever their times, so the same command always gives the same ids.
    Prompts with the same name speak of one object; one without a name makes an object of its own.

    Args:
        prompts: The prompts, in the order in which the user gave them.
        ids: Hands out the public object ids.
    """

    def __init__(self, prompts: Sequence[Prompt], ids: ObjectIds) -> None:
        self._ids = ids
        self._targets: dict[str, Target] = {}
        self._named: dict[str, str] = {}
        self._count = 0
        self._last_time_s = float("-inf")
        self._given: list[_Given] = []
        self._pending: list[tuple[float, Prompt, Target]] = []
        self.labels: dict[int, str] = {}
        for prompt in prompts:
            target = self._target_of(prompt)
            self._given.append(_Given(prompt, target.prompt_id))
            self._pending.append((prompt.time_s, prompt, target))

    @property
    def pending(self) -> tuple[Prompt, ...]:
        """Prompts that have not taken effect yet, in the order given."""
        return tuple(prompt for _, prompt, _ in self._pending)

    @property
    def given(self) -> tuple[GivenPrompts, ...]:
        """What has been said and still holds. From any thread."""
        prompts: dict[str, list[Prompt]] = {}
        for given in list(self._given):
            prompts.setdefault(given.prompt_id, []).append(given.prompt)
        targets = dict(self._targets)
        return tuple(
            GivenPrompts(each, target.object_id, self.labels.get(target.object_id or 0, target.label), tuple(said))
            for each, said in prompts.items()
            if (target := targets.get(each)) is not None
        )

    def target_of_object(self, object_id: int) -> Target | None:
        """The target that is this object; None when no prompt made it."""
        return next((target for target in self._targets.values() if target.object_id == object_id), None)

    def target_of_name(self, name: str) -> Target | None:
        """The target that prompts of this name speak of; None when there are none."""
        return self._targets[self._named[name]] if name in self._named else None

    def relabelled(self, tracked: TrackedFrame) -> TrackedFrame:
        """The results, with the names that the user has given to objects."""
        if not self.labels:
            return tracked
        live = {each.object_id for each in tracked.objects}
        labels = self.labels = {key: label for key, label in self.labels.items() if key in live}
        return tracked.with_objects(
            tuple(replace(each, label=labels.get(each.object_id, each.label)) for each in tracked.objects)
        )

    def add_now(self, prompt: Prompt, time_s: float, size: Size) -> Target:
        """Add a prompt that takes effect at `time_s`, whatever its own time; what it speaks of."""
        target = self._target_of(prompt)
        self._given.append(_Given(replace(prompt, time_s=0.0), target.prompt_id, size))
        self._pending.append((time_s, prompt, target))
        return target

    def refine_now(self, prompt: Prompt, time_s: float, size: Size, target: Target) -> None:
        """Add a prompt that speaks of an object which is there already."""
        if self._targets.get(target.prompt_id) == target:  # and not one that a phrase has found
            self._given.append(_Given(replace(prompt, time_s=0.0), target.prompt_id, size))
        self._pending.append((time_s, prompt, target))

    def replace_now(self, prompt_id: str, prompt: Prompt, time_s: float, size: Size) -> Target:
        """Put a prompt in the place of another, of which the object, or the phrase, keeps the id.

        Raises:
            NotFoundError: There is no such prompt.
            PromptError: One speaks of an object and the other of a phrase.
        """
        target = self._known(prompt_id)
        is_concept = isinstance(prompt, TextPrompt | ExemplarPrompt)
        if (target.object_id is None) != is_concept:
            raise PromptError("a phrase is replaced by a phrase, and a click, box or mask by one of these")
        if is_concept:
            label = prompt.name or getattr(prompt, "text", "") or target.label
            target = self._targets[prompt_id] = replace(target, label=label)
        self._given = [given for given in self._given if given.prompt_id != prompt_id]
        self._given.append(_Given(replace(prompt, time_s=0.0), prompt_id, size))
        self._pending.append((time_s, prompt, target))
        return target

    def mark(self) -> Mark:
        """Where the schedule is, for `undo`."""
        return Mark(dict(self._targets), dict(self._named), list(self._given), list(self._pending), dict(self.labels))

    def undo(self, mark: Mark) -> None:
        """Be as the schedule was; ids that were given since are not given again."""
        self._targets, self._named = mark.targets, mark.named
        self._given, self._pending, self.labels = mark.given, mark.pending, mark.labels

    def remove(self, prompt_id: str) -> Target:
        """Forget a prompt; what it spoke of.

        Raises:
            NotFoundError: There is no such prompt.
        """
        target = self._known(prompt_id)
        del self._targets[prompt_id]
        self._given = [given for given in self._given if given.prompt_id != prompt_id]
        self._pending = [entry for entry in self._pending if entry[2].prompt_id != prompt_id]
        self._named = {name: each for name, each in self._named.items() if each != prompt_id}
        self.labels.pop(target.object_id or 0, None)
        return target

    def remove_object(self, object_id: int) -> None:
        """Forget what was said of an object. A phrase that found it stays: it speaks of others, too."""
        self.labels.pop(object_id, None)
        for target in list(self._targets.values()):
            if target.object_id == object_id:
                self.remove(target.prompt_id)

    def expects(self, time_s: float) -> bool:
        """Whether a prompt's time has come that has not taken effect."""
        return any(at_s <= time_s for at_s, _, _ in self._pending)

    def due(self, time_s: float, size: Size | None = None) -> list[SessionPrompt]:
        """Take the prompts whose time has come, all that is said of one object in one `ObjectPrompt`.

        Args:
            time_s: The frame's time.
            size: (width, height) of its picture.
        """
        self._last_time_s = time_s
        due = [(prompt, target) for at_s, prompt, target in self._pending if at_s <= time_s]
        if due:
            self._pending = [entry for entry in self._pending if entry[0] > time_s]
            self._given = [
                replace(given, size=size) if given.size is None and given.prompt.time_s <= time_s else given
                for given in self._given
            ]
        return combine(due)

    def begin_again(self, size: Size) -> None:
        """Let everything that has been said take effect once more, on pictures of this size, for new objects."""
        self._targets = {
            prompt_id: target if target.object_id is None else self._reborn(target)
            for prompt_id, target in self._targets.items()
        }
        self._pending = [
            (given.prompt.time_s, scale_prompt(given.prompt, given.size or size, size), self._targets[given.prompt_id])
            for given in self._given
        ]

    def check_size(self, width: int, height: int) -> None:
        """Raise `PromptError` unless every prompt that has not taken effect fits a picture of this size."""
        for prompt in self.pending:
            prompt.check_size(width, height)

    def snapshot(self) -> str:
        """What has been said and what has taken effect, as text for `restore`."""
        targets = [[target.object_id, target.prompt_id, target.label] for target in self._targets.values()]
        given: list[list[Any]] = [[describe_prompt(each.prompt), each.prompt_id, each.size] for each in self._given]
        return json.dumps(
            {
                "last_time_s": self._last_time_s,
                "count": self._count,
                "targets": targets,
                "named": self._named,
                "given": given,
                "labels": list(self.labels.items()),
            }
        )

    def restore(self, snapshot: str) -> None:
        """Take up where the schedule was that gave this snapshot; of prompts that it did not know, nothing changes."""
        fields = json.loads(snapshot)
        self._last_time_s = fields["last_time_s"]
        self._count = fields["count"]
        self._targets = {prompt_id: Target(key, prompt_id, label) for key, prompt_id, label in fields["targets"]}
        self._named = fields["named"]
        self._given = [
            _Given(prompt_from_description(prompt), prompt_id, None if size is None else (size[0], size[1]))
            for prompt, prompt_id, size in fields["given"]
        ]
        self._pending = [
            (given.prompt.time_s, given.prompt, self._targets[given.prompt_id])
            for given in self._given
            if given.prompt.time_s > self._last_time_s
        ]
        self.labels = dict(fields["labels"])

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
        by_object: dict[int, list[tuple[float, Prompt, Target]]] = {}
        for entry in self._pending:
            if entry[2].object_id is not None:
                by_object.setdefault(entry[2].object_id, []).append(entry)
        self._pending = []
        first: list[tuple[float, SessionPrompt]] = []
        for entries in by_object.values():
            time_s = min(entry[0] for entry in entries)
            first += [(time_s, prompt) for prompt in combine([entry[1:] for entry in entries if entry[0] == time_s])]
        return first

    def _known(self, prompt_id: str) -> Target:
        if prompt_id not in self._targets:
            raise NotFoundError(f"there is no prompt {prompt_id!r}; it may have been removed")
        return self._targets[prompt_id]

    def _reborn(self, target: Target) -> Target:
        object_id = self._ids.new()
        label = f"object {object_id}" if target.label == f"object {target.object_id}" else target.label
        if target.object_id in self.labels:
            self.labels[object_id] = self.labels.pop(target.object_id)
        return Target(object_id, target.prompt_id, label)

    def _target_of(self, prompt: Prompt) -> Target:
        is_concept = isinstance(prompt, TextPrompt | ExemplarPrompt)
        if prompt.name is not None and prompt.name in self._named:
            target = self._targets[self._named[prompt.name]]
            if (target.object_id is None) != is_concept:
                raise PromptError(
                    f"the name {prompt.name!r} belongs to a phrase, which finds objects by itself, and to a click, box "
                    "or mask; give them names of their own"
                )
            return target
        self._count += 1
        prompt_id = f"p{self._count}"
        if isinstance(prompt, TextPrompt | ExemplarPrompt):
            target = Target(None, prompt_id, prompt.name or prompt.text or f"concept {prompt_id}")
        else:
            object_id = self._ids.new()
            target = Target(object_id, prompt_id, prompt.name or f"object {object_id}")
        self._targets[prompt_id] = target
        if prompt.name is not None:
            self._named[prompt.name] = prompt_id
        return target
