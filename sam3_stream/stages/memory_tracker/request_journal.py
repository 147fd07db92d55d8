"""What was asked of a running tracker, and on which frame it took effect.

With it a tracker that is started again from a checkpoint does the same on the same frames.
"""

from __future__ import annotations

import json
from pathlib import Path

from sam3_stream.core.errors import PromptError
from sam3_stream.core.masks_format import describe_prompt
from sam3_stream.core.prompt_description import prompt_from_description
from sam3_stream.core.prompts import Prompt


class RequestJournal:
    """Requests in a file, a line of JSON each, in the order in which they took effect.

    Args:
        path: The file.
        first_sequence: Requests that took effect before this frame are part of the checkpoint; others are due again.
    """

    def __init__(self, path: Path, first_sequence: int = 0) -> None:
        self._path = path
        self._due = [entry for entry in _read(path) if entry[0] >= first_sequence]

    def expects(self, sequence: int) -> bool:
        """Whether there is something to do again by this frame."""
        return any(at <= sequence for at, _ in self._due)

    def due(self, sequence: int) -> list[Prompt | int]:
        """Take the prompts to add, and the ids of objects to remove, again on this frame."""
        due = [what for at, what in self._due if at <= sequence]
        self._due = [entry for entry in self._due if entry[0] > sequence]
        return due

    def note(self, sequence: int, what: Prompt | int) -> None:
        """Note a request that has taken effect on this frame."""
        said = {"remove": what} if isinstance(what, int) else {"add": describe_prompt(what)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"sequence": sequence} | said) + "\n")


def _read(path: Path) -> list[tuple[int, Prompt | int]]:
    """The whole lines of the file."""
    entries: list[tuple[int, Prompt | int]] = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:
        return entries
    for line in lines:
        try:
            fields = json.loads(line)
            what = fields["remove"] if "remove" in fields else prompt_from_description(fields["add"])
            entries.append((fields["sequence"], what))
        except (ValueError, KeyError, PromptError):
            break
    return entries
