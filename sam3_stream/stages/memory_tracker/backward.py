"""Carrying prompts to the frames before them: a pass over the frames in reverse, and its masks in the forward pass.

The backward pass writes its results to a masks file, last frame first. Read from its end it gives them in the order of
the forward pass, so neither pass holds more than a frame of masks in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sam3_stream.core.masks_format import MasksRow, row_from_line
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.prompts import Prompt
from sam3_stream.core.records import EncodedFrame, TrackedFrame
from sam3_stream.models.protocols import VideoModel
from sam3_stream.runtime.channel import Channel
from sam3_stream.stages.memory_tracker.prompt_schedule import PromptSchedule

_BLOCK_BYTES = 1 << 20


class BackwardTracker:
    """Tracks frames that come in reverse order, starting each object from its earliest prompts.

    Args:
        model: Opens the session.
        prompts: All prompts of the job in the user's order, so that objects get the ids of the forward pass. Phrases
            look for objects from their time on and have no backward part.
    """

    name = "backward_tracker"

    def __init__(self, model: VideoModel, prompts: Sequence[Prompt]) -> None:
        self._model = model
        self._ids = ObjectIds()
        self._starts = PromptSchedule(prompts, self._ids).earliest()

    def run(self, inbox: Channel[EncodedFrame], outbox: Channel[TrackedFrame]) -> None:
        """Track every frame of the inbox, which come from the last to the first."""
        session = self._model.open_session(self._ids.new)
        try:
            for encoded, before in _with_next(inbox):
                time_s = encoded.frame.time_s
                earlier_s = float("-inf") if before is None else before.frame.time_s
                # A prompt belongs to the first frame at or after its time, the same frame as in the forward pass.
                due = [prompt for at_s, prompt in self._starts if earlier_s < at_s <= time_s]
                outbox.put(session.step(encoded, due))
        finally:
            session.close()


class EarlierMasks:
    """The backward pass's masks, merged into the forward pass frame by frame.

    Args:
        path: The masks file of the backward pass.
    """

    def __init__(self, path: Path) -> None:
        self._rows = _rows_from_the_end(path)
        self._next = next(self._rows, None)

    def merge_into(self, tracked: TrackedFrame) -> TrackedFrame:
        """Add the objects that have no prompt yet; the forward pass has the word on all others."""
        sequence = tracked.frame.sequence
        while self._next is not None and self._next.sequence < sequence:  # frames that a resumed run passed over
            self._next = next(self._rows, None)
        row = self._next
        if row is None or row.sequence != sequence:
            return tracked
        known = {each.object_id for each in tracked.objects}
        added = tuple(each for each in row.objects if each.object_id not in known)
        return tracked.with_objects(tuple(sorted((*tracked.objects, *added), key=lambda each: each.object_id)))


def _with_next(inbox: Channel[EncodedFrame]) -> Iterator[tuple[EncodedFrame, EncodedFrame | None]]:
    """Each item with the one that comes after it; None after the last."""
    current: EncodedFrame | None = None
    for following in inbox:
        if current is not None:
            yield current, following
        current = following
    if current is not None:
        yield current, None


def _rows_from_the_end(path: Path) -> Iterator[MasksRow]:
    lines = _lines_from_the_end(path)
    following = next(lines, None)
    for line in lines:  # the line that comes last is the header
        if following is not None:
            yield row_from_line(following)
        following = line


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    """A file's lines from the last to the first, reading a block at a time."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        rest = b""
        while position > 0:
            size = min(_BLOCK_BYTES, position)
            position = file.seek(position - size)
            first, *lines = (file.read(size) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
            rest = first
        if rest:
            yield rest
