"""What a killed run needs to go on: the session's state from time to time, beside the masks file.

A run that resumes passes on the results recorded before the checkpoint and tracks from there, with the state the
session had: the results are those of a run that was never killed.
"""

from __future__ import annotations

import contextlib
import logging
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sam3_stream.core.masks_format import MasksRow
from sam3_stream.models.protocols import SessionState

_log = logging.getLogger(__name__)

_POSITION_KEY = "__next_sequence_and_last_object_id__"
_SCHEDULE_KEY = "__prompt_schedule__"


@dataclass(frozen=True)
class Checkpoint:
    """The session's state before the frame `first_sequence`, and that of the prompts (`PromptSchedule.snapshot`)."""

    first_sequence: int
    last_object_id: int
    state: SessionState
    schedule: str


@dataclass(frozen=True)
class ResumePoint:
    """Where to go on, and the results of the frames before.

    Attributes:
        checkpoint: The state to go on with.
        recorded: The masks file's rows of the frames before the checkpoint that come again, in order.
    """

    checkpoint: Checkpoint
    recorded: Sequence[MasksRow] | Iterator[MasksRow] = ()


class CheckpointStore:
    """Keeps the newest few checkpoints in files beside an output.

    At least two, because the results of the newest may not have been written yet when the process is killed: sinks run
    a few frames behind.

    Args:
        beside: The masks file; the checkpoints are ``<name>.resume0``, ``<name>.resume1``, ….
        interval_frames: Frames from one checkpoint to the next; more than all channels together can hold.
        kept: How many checkpoints are kept.
    """

    def __init__(self, beside: Path, interval_frames: int = 100, kept: int = 2) -> None:
        self._paths = [beside.with_name(f"{beside.name}.resume{number}") for number in range(kept)]
        self._interval_frames = interval_frames
        self._last_sequence = -1

    def offer(self, next_sequence: int, take: Callable[[], Checkpoint], *, now: bool = False) -> None:
        """Save what `take` gives, once in every interval.

        `now` makes no difference: what is asked in between is in a `RequestJournal`.
        """
        del now
        interval = next_sequence // self._interval_frames
        if interval == self._last_sequence // self._interval_frames:
            return
        self._last_sequence = next_sequence
        path = self._paths[interval % len(self._paths)]
        save_checkpoint(path, take())

    def newest(self, recorded_frames: int) -> Checkpoint | None:
        """The newest checkpoint that lies within the first ``recorded_frames`` frames; None when there is none."""
        found = [checkpoint for path in self._paths if (checkpoint := load_checkpoint(path)) is not None]
        usable = [checkpoint for checkpoint in found if checkpoint.first_sequence <= recorded_frames]
        newest = max(usable, key=lambda checkpoint: checkpoint.first_sequence, default=None)
        self._last_sequence = -1 if newest is None else newest.first_sequence
        return newest

    def discard(self) -> None:
        """Delete the files: the run is complete."""
        for path in self._paths:
            for leftover in (path, path.with_name(path.name + ".part")):
                with contextlib.suppress(FileNotFoundError):
                    leftover.unlink()


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, whole or not at all.

    The outputs may well be on another disk; they go on when it cannot be written, and an older checkpoint still serves.
    """
    state = dict(checkpoint.state)
    state[_POSITION_KEY] = np.array([checkpoint.first_sequence, checkpoint.last_object_id], dtype=np.int64)
    state[_SCHEDULE_KEY] = np.array(checkpoint.schedule)
    growing = path.with_name(path.name + ".part")
    try:
        with growing.open("wb") as file:
            np.savez(file, allow_pickle=False, **state)
        growing.replace(path)
    except OSError as error:
        growing.unlink(missing_ok=True)
        _log.warning("cannot keep a checkpoint in %s: %s", path, error.strerror)


def load_checkpoint(path: Path) -> Checkpoint | None:
    """Read a checkpoint; None when it is missing or was cut short."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            state = {key: arrays[key] for key in arrays.files}
        next_sequence, last_object_id = (int(value) for value in state.pop(_POSITION_KEY))
        return Checkpoint(next_sequence, last_object_id, state, str(state.pop(_SCHEDULE_KEY)))
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None
