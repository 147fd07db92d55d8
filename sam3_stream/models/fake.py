"""A deterministic model for tests and pipeline benchmarks: it sees nothing, and what it does is plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sam3_stream.core.errors import CapacityError, PromptError
from sam3_stream.core.prompts import ConceptPrompt, ObjectPrompt, Prompt, SessionPrompt, TextPrompt
from sam3_stream.core.records import EncodedFrame, Frame, MaskArray, TrackedFrame, TrackedObject
from sam3_stream.models.protocols import FeatureArrays, Resolution, SessionState, TrackingSession

_DISC_RADIUS = 8


@dataclass
class _FakeObject:
    prompt_id: str
    label: str
    mask: MaskArray
    age: int = 0


class FakeModel:
    """A `VideoModel` whose objects move one pixel to the right a frame and come back in at the left.

    A box is a filled rectangle, a click a disc of 8 px radius, a mask itself; the last prompt of an object counts.
    """

    name = "fake"

    def check_prompt(self, prompt: Prompt) -> None:
        if isinstance(prompt, TextPrompt):
            raise PromptError("the fake model knows no phrases; give it a click, a box or a mask")

    def resolutions(self, width: int, height: int) -> Sequence[Resolution]:
        return [(max(1, width * part // 4), max(1, height * part // 4)) for part in (4, 3, 2)]

    def encode(self, frames: Sequence[Frame], resolution: Resolution | None = None) -> list[EncodedFrame]:
        return [EncodedFrame(frame, None, resolution or (frame.width, frame.height)) for frame in frames]

    def features_to_arrays(self, features: None) -> FeatureArrays:  # noqa: ARG002
        return {}

    def features_from_arrays(self, arrays: FeatureArrays) -> None:
        if arrays:
            raise ValueError("the fake model has no features")

    def open_session(self, new_object_id: Callable[[], int], max_objects: int | None = None) -> TrackingSession:
        del new_object_id  # it finds nothing
        return FakeSession(max_objects)

    def close(self) -> None:
        """Nothing to free."""


class FakeSession:
    """The `TrackingSession` of `FakeModel`."""

    def __init__(self, max_objects: int | None = None) -> None:
        self._max_objects = max_objects
        self._objects: dict[int, _FakeObject] = {}

    def step(self, encoded: EncodedFrame, prompts: Sequence[SessionPrompt] = ()) -> TrackedFrame:
        for tracked in self._objects.values():
            tracked.age += 1
        shape = (encoded.frame.height, encoded.frame.width)
        for prompt in prompts:
            if isinstance(prompt, ConceptPrompt):
                raise PromptError("the fake model knows no phrases")
            if prompt.object_id not in self._objects and len(self._objects) == self._max_objects:
                raise CapacityError(f"there is room for {self._max_objects} objects; remove one first")
            self._objects[prompt.object_id] = _FakeObject(prompt.prompt_id, prompt.label, _mask_of(prompt, shape))
        objects = tuple(
            TrackedObject(object_id, tracked.prompt_id, tracked.label, 1.0, np.roll(tracked.mask, tracked.age, axis=1))
            for object_id, tracked in sorted(self._objects.items())
        )
        return TrackedFrame(encoded.frame, objects, resolution=encoded.resolution)

    def remove(self, object_id: int) -> None:
        self._objects.pop(object_id, None)

    def remove_prompt(self, prompt_id: str) -> None:
        """There are no phrases."""

    def snapshot(self) -> SessionState:
        state: SessionState = {}
        for object_id, tracked in self._objects.items():
            state[f"{object_id}.mask"] = tracked.mask
            state[f"{object_id}.age"] = np.array(tracked.age)
            state[f"{object_id}.names"] = np.array([tracked.prompt_id, tracked.label])
        return state

    def restore(self, state: SessionState) -> None:
        ids = sorted({int(key.split(".")[0]) for key in state})
        self._objects = {
            object_id: _FakeObject(
                str(state[f"{object_id}.names"][0]),
                str(state[f"{object_id}.names"][1]),
                state[f"{object_id}.mask"].astype(np.bool_),
                int(state[f"{object_id}.age"]),
            )
            for object_id in ids
        }

    def close(self) -> None:
        self._objects.clear()


def _mask_of(prompt: ObjectPrompt, shape: tuple[int, int]) -> MaskArray:
    if prompt.mask is not None:
        return prompt.mask
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    if prompt.box_xyxy is not None:
        x0, y0, x1, y1 = prompt.box_xyxy
        return np.asarray((columns >= x0) & (columns < x1) & (rows >= y0) & (rows < y1), dtype=np.bool_)
    x, y = prompt.points_n2[-1]
    return np.asarray((columns - x) ** 2 + (rows - y) ** 2 <= _DISC_RADIUS**2, dtype=np.bool_)
