"""What a live stream needs to go on after a restart of the process: its objects and what was said of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.models.protocols import TrackingSession
from sam3_stream.stages.memory_tracker.checkpoints import Checkpoint, ResumePoint, load_checkpoint, save_checkpoint

_log = logging.getLogger(__name__)

_SIZE_KEY = "__width_and_height__"


class LiveState:
    """Keeps the newest state of one stream in a file.

    It is written when what has been said changes, every `interval_s` seconds besides, and at the end. A file that
    cannot be read, or is of pictures of another size, is set aside: the stream then begins anew.

    Args:
        path: The file.
        interval_s: Seconds from one writing to the next.
        clock: The machine's own when None.

    Attributes:
        size: (width, height) of the stream's pictures.
    """

    def __init__(self, path: Path, interval_s: float = 30.0, clock: Clock | None = None) -> None:
        self.size = (0, 0)
        self._path = path
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._saved_s = float("-inf")

    def load(self, size: tuple[int, int]) -> ResumePoint | None:
        """Where the stream was, for pictures of this size; None to begin anew."""
        if not self._path.exists():
            return None
        checkpoint = load_checkpoint(self._path)
        known = None if checkpoint is None else tuple(checkpoint.state.pop(_SIZE_KEY, np.zeros(2)).tolist())
        if checkpoint is not None and known == size:
            self._saved_s = self._clock.monotonic_s()
            return ResumePoint(checkpoint)
        aside = self._path.with_name(self._path.name + ".unusable")
        self._path.replace(aside)
        why = "cannot be read" if known is None else "is of pictures of another size"
        _log.warning("the kept state %s %s; the stream begins anew, and the file is now %s", self._path, why, aside)
        return None

    def offer(
        self,
        next_sequence: int,
        session: TrackingSession,
        last_object_id: int,
        schedule: Callable[[], str],
        *,
        now: bool,
    ) -> None:
        """See `memory_tracker.Checkpoints`."""
        now_s = self._clock.monotonic_s()
        if not now and now_s - self._saved_s < self._interval_s:
            return
        self._saved_s = now_s
        state = {**session.snapshot(), _SIZE_KEY: np.array(self.size)}
        save_checkpoint(self._path, Checkpoint(next_sequence, last_object_id, state, schedule()))
