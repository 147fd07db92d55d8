"""A memory tracker that holds a frame rate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from sam3_stream.core.prompts import Prompt, PromptEffect
from sam3_stream.core.records import Frame, TrackedFrame
from sam3_stream.stages.memory_tracker.memory_tracker import MemoryTracker, Outbox
from sam3_stream.stages.memory_tracker.rate_gate import RateGate


class RateControlledTracker:
    """Encodes and tracks the frames that its gate selects; the others come out with carried masks.

    Args:
        tracker: Tracks the frames that the model sees.
        gate: Decides which, and at what resolution.
    """

    name = "memory_tracker"

    def __init__(self, tracker: MemoryTracker, gate: RateGate) -> None:
        self._tracker = tracker
        self._gate = gate

    def add(self, prompt: Prompt, *, object_id: int | None = None, replaces: str | None = None) -> Future[PromptEffect]:
        """See `MemoryTracker.add`."""
        return self._tracker.add(prompt, object_id=object_id, replaces=replaces)

    def remove(self, object_id: int) -> Future[int]:
        """See `MemoryTracker.remove`."""
        return self._tracker.remove(object_id)

    def remove_prompt(self, prompt_id: str) -> Future[int]:
        """See `MemoryTracker.remove_prompt`."""
        return self._tracker.remove_prompt(prompt_id)

    def status(self) -> dict[str, Any]:
        """See `MemoryTracker.status`."""
        return self._tracker.status()

    def run(self, inbox: Iterable[Frame], outbox: Outbox) -> None:
        """Handle frames until there are no more.

        Raises:
            PromptNotReachedError: The stream ended before the time of a prompt.
        """
        with contextlib.closing(self._gate.take_in(inbox)) as frames:
            run_gated(self._tracker, self._gate, frames, outbox)


def run_gated(tracker: MemoryTracker, gate: RateGate, frames: Iterable[Frame], outbox: Outbox) -> None:
    """Run a tracker's session over those of the frames (from `RateGate.take_in`) that the gate selects."""
    tracker.run(gate.select(frames, tracker, outbox), _Outlet(tracker, gate, outbox))


class _Outlet:
    """Where the tracker puts its frames."""

    def __init__(self, tracker: MemoryTracker, gate: RateGate, outbox: Outbox) -> None:
        self._tracker = tracker
        self._gate = gate
        self._outbox = outbox

    def put(self, tracked: TrackedFrame) -> None:
        self._gate.put(tracked, self._tracker, self._outbox)
