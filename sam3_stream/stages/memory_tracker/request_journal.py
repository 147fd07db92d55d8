"""What was asked of a running tracker, and on which frame it took effect.

With it a tracker that is started again from a checkpoint does the same on the same frames.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sam3_stream.core.errors import PromptError
from sam3_stream.core.masks_format import describe_prompt
from sam3_stream.core.prompt_description import prompt_from_description
from sam3_stream.stages.memory_tracker.requests import AddPrompt, RemoveObject, RemovePrompt, Rename, Request


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

    def due(self, sequence: int) -> list[Request]:
        """Take what is to be done again on this frame."""
        due = [what for at, what in self._due if at <= sequence]
        self._due = [entry for entry in self._due if entry[0] > sequence]
        return due

    def note(self, sequence: int, what: Request) -> None:
        """Note a request that has taken effect on this frame."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"sequence": sequence} | _described(what)) + "\n")


def _read(path: Path) -> list[tuple[int, Request]]:
    """The whole lines of the file."""
    entries: list[tuple[int, Request]] = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:
        return entries
    for line in lines:
        try:
            fields = json.loads(line)
            entries.append((fields["sequence"], _request(fields)))
        except (ValueError, KeyError, PromptError):
            break
    return entries


def _described(what: Request) -> dict[str, Any]:
    match what:
        case AddPrompt():
            return {"add": describe_prompt(what.prompt), "object": what.object_id, "replaces": what.replaces}
        case RemoveObject():
            return {"remove": what.object_id}
        case RemovePrompt():
            return {"remove_prompt": what.prompt_id}
        case Rename():
            return {"rename": what.object_id, "label": what.label}


def _request(fields: dict[str, Any]) -> Request:
    if "remove" in fields:
        return RemoveObject(fields["remove"])
    if "remove_prompt" in fields:
        return RemovePrompt(fields["remove_prompt"])
    if "rename" in fields:
        return Rename(fields["rename"], fields["label"])
    return AddPrompt(prompt_from_description(fields["add"]), fields.get("object"), fields.get("replaces"))
