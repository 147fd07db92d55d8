"""What may be asked of a memory tracker while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from sam3_stream.core.prompts import Prompt


@dataclass(frozen=True, slots=True, eq=False)
class AddPrompt:
    """Track something more, or correct what is tracked.

    Attributes:
        prompt: What is said.
        object_id: The object that it corrects, which a phrase may have found; None: that of the prompt's name, if it
            has one that is known, else a new one.
        replaces: Id of the prompt whose place it takes.
        seen: Number of the frame that the user was looking at; None for the newest.
    """

    prompt: Prompt
    object_id: int | None = None
    replaces: str | None = None
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveObject:
    """Track an object no more."""

    object_id: int


@dataclass(frozen=True, slots=True)
class RemovePrompt:
    """Take back a prompt: its object, or all objects of a phrase, end."""

    prompt_id: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Call an object something else."""

    object_id: int
    label: str


Request = AddPrompt | RemoveObject | RemovePrompt | Rename
