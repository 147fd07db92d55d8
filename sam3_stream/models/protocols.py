"""What a stage may ask of a model, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from sam3_stream.core.prompts import Prompt, SessionPrompt
from sam3_stream.core.records import EncodedFrame, Frame, TrackedFrame

SessionState = dict[str, npt.NDArray[np.generic]]
FeatureArrays = dict[str, npt.NDArray[np.generic]]
Resolution = tuple[int, int]


class TrackingSession(Protocol):
    """The memory of one stream. Not thread-safe; owned by the memory tracker stage.

    Sizes of all state are fixed by the number of objects: nothing grows with the number of frames.
    """

    def step(self, encoded: EncodedFrame, prompts: Sequence[SessionPrompt] = ()) -> TrackedFrame:
        """Apply the prompts to this frame and track every object on it.

        Frames come in stream order; some may have been left out. The result lists every live object in order of id,
        the absent ones too (`present=False`, empty mask).

        Raises:
            PromptError: A prompt that the model cannot use; the other objects are as before.
            CapacityError: More objects than there is room for.
        """

    def remove(self, object_id: int) -> None:
        """Forget an object and free its room. Its id is never used again. Unknown ids are ignored."""

    def remove_prompt(self, prompt_id: str) -> None:
        """Look no more for a phrase or exemplars, and forget the objects found. Unknown ids are ignored."""

    def snapshot(self) -> SessionState:
        """All state as plain arrays, such that a session that restores it gives the same results bit for bit."""

    def restore(self, state: SessionState) -> None:
        """Become the session that made this snapshot."""

    def close(self) -> None:
        """Free everything. Safe to call twice."""


@runtime_checkable
class SkipsFrames(Protocol):
    """A `TrackingSession` that does better after skipped frames when it is told what has become of the objects."""

    def move(self, carried: TrackedFrame) -> None:
        """Take what was carried to the frame that is stepped next for where the objects are likely to be.

        Args:
            carried: The session's latest results on that frame; `mask_age` says how many frames ago they were made,
                `state` whether they have moved with the picture.
        """


@runtime_checkable
class LooksForObjects(Protocol):
    """A `TrackingSession` that looks for new objects from time to time, which costs extra."""

    @property
    def look_every(self) -> int | None:
        """On every so many-th step; None when it goes by other things than steps. May be set at any time."""

    @look_every.setter
    def look_every(self, steps: int) -> None: ...

    @property
    def looked(self) -> bool | None:
        """Whether the last step looked; None while there is nothing to look for."""


class VideoModel(Protocol):
    """Weights and an image encoder, without state: one serves many streams."""

    @property
    def name(self) -> str:
        """Name for headers and logs, such as ``"lite"``."""

    def check_prompt(self, prompt: Prompt) -> None:
        """Raise `PromptError` now when this model can never use the prompt (an unknown phrase, …)."""

    def resolutions(self, width: int, height: int) -> Sequence[Resolution]:
        """What `encode` offers for pictures of this size: (width, height) in pixels, best first and the default.

        Tracks live through a change from any of them to any other between two frames.
        """

    def encode(self, frames: Sequence[Frame], resolution: Resolution | None = None) -> list[EncodedFrame]:
        """Encode a batch of frames, possibly of several streams. Called from one thread at a time.

        Args:
            frames: The frames.
            resolution: One of `resolutions`; the model's own choice when None.
        """

    def open_session(self, new_object_id: Callable[[], int], max_objects: int | None = None) -> TrackingSession:
        """Open the memory for one stream.

        Args:
            new_object_id: Gives the next public id, for objects that the session finds by itself (phrases).
            max_objects: Room for so many objects; the model's own limit when None, or when that is lower.
        """

    def close(self) -> None:
        """Free the weights. Safe to call twice."""


@runtime_checkable
class PortableFeatures(Protocol):
    """A `VideoModel` whose features can cross from the process that encodes to another that tracks."""

    def features_to_arrays(self, features: Any) -> FeatureArrays:
        """What `encode` made of a picture, as named arrays, to be sent to another process."""

    def features_from_arrays(self, arrays: FeatureArrays) -> Any:
        """Features from the arrays of `features_to_arrays`; tracking with them gives the same results.

        Raises:
            ValueError: They are not such arrays. So with `KeyError` and `TypeError`.
        """
