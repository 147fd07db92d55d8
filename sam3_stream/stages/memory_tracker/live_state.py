"""What a live stream needs to go on after a restart of the process: its objects and what was said of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.stages.memory_tracker.checkpoints import Checkpoint, ResumePoint, load_checkpoint, save_checkpoint

_log = logging.getLogger(__name__)

_KIND_KEY = "__model_and_size__"


class LiveState:
    """Keeps the newest state of one stream in a file.

    It is written when what has been said changes, every `interval_s` seconds besides, and at the end. A file that
    cannot be read, or is of another model or of pictures of another size, is set aside: the stream then begins anew.

    Args:
        path: The file.
        model: Name of the model, whose sessions' states mean nothing to another's.
        interval_s: Seconds from one writing to the next.
        clock: The machine's own when None.
    """

    def __init__(self, path: Path, model: str, interval_s: float = 30.0, clock: Clock | None = None) -> None:
        self._path = path
        self._model = model
        self._kind = ""
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._saved_s = float("-inf")

    def begin(self, size: tuple[int, int]) -> None:
        """Say of which size, (width, height), the pictures are that follow."""
        self._kind = f"{self._model}, {size[0]}x{size[1]}"

    def load(self) -> ResumePoint | None:
        """Where the stream was; None to begin anew."""
        if not self._path.exists():
            return None
        checkpoint = load_checkpoint(self._path)
        kind = "" if checkpoint is None else str(checkpoint.state.pop(_KIND_KEY, ""))
        if checkpoint is not None and kind == self._kind:
            self._saved_s = self._clock.monotonic_s()
            return ResumePoint(checkpoint)
        aside = self._path.with_name(self._path.name + ".unusable")
        self._path.replace(aside)
        why = "cannot be read" if checkpoint is None else f"is of {kind or 'something else'}, not of {self._kind}"
        _log.warning("the kept state %s %s; the stream begins anew, and the file is now %s", self._path, why, aside)
        return None

    def offer(self, next_sequence: int, take: Callable[[], Checkpoint], *, now: bool = False) -> None:
        """Save what `take` gives, once in every interval of time, and `now`."""
        del next_sequence
        now_s = self._clock.monotonic_s()
        if not now and now_s - self._saved_s < self._interval_s:
            return
        self._saved_s = now_s
        checkpoint = take()
        save_checkpoint(self._path, replace(checkpoint, state={**checkpoint.state, _KIND_KEY: np.array(self._kind)}))
