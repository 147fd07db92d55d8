"""The fake model, made slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sam3_stream.core.prompts import SessionPrompt
from sam3_stream.core.records import EncodedFrame, Frame, TrackedFrame
from sam3_stream.models.fake import FakeModel, FakeSession


class SlowModel(FakeModel):
    """Takes this long for a batch and this long for a step; as a GPU would, it keeps no core busy meanwhile."""

    def __init__(self, encode_s: float, step_s: float) -> None:
        self.encode_s = encode_s
        self.step_s = step_s

    def encode(self, frames: Sequence[Frame], resolution: tuple[int, int] | None = None) -> list[EncodedFrame]:
        time.sleep(self.encode_s)
        return super().encode(frames, resolution)

    def open_session(self, new_object_id: Callable[[], int], max_objects: int | None = None) -> SlowSession:
        return SlowSession(self.step_s)


class SlowSession(FakeSession):
    """The session of a `SlowModel`."""

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self._step_s = step_s

    def step(self, encoded: EncodedFrame, prompts: Sequence[SessionPrompt] = ()) -> TrackedFrame:
        time.sleep(self._step_s)
        return super().step(encoded, prompts)
