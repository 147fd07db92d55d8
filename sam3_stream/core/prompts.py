"""What a user may say about a stream: clicks, boxes, masks and phrases.

Coordinates are pixels of the displayed source frame (after rotation), x right, y down. `time_s` is stream time in
seconds; a prompt takes effect on the first frame at or after it. Prompts with the same `name` speak of one object.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sam3_stream.core.errors import PromptError
from sam3_stream.core.records import MaskArray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    time_s: float = 0.0
    name: str | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.time_s) and self.time_s >= 0):
            raise PromptError(f"a prompt's time must be 0 or more seconds, got {self.time_s}")
        if self.name is not None and not self.name.strip():
            raise PromptError("a prompt's name is empty; leave it out or give it a word")


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPrompt(_Timed):
    """A click: the object is (or, with ``positive=False``, is not) at this pixel."""

    x: float
    y: float
    positive: bool = True

    def check_size(self, width: int, height: int) -> None:
        """Raise `PromptError` unless the point lies inside a picture of this size."""
        if not (0 <= self.x < width and 0 <= self.y < height):
            raise PromptError(
                f"the click at {self.x:g},{self.y:g} is outside the picture, which is {width}x{height}: "
                f"x must be 0 to {width - 1} and y 0 to {height - 1}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPrompt(_Timed):
    """A box (x0, y0) to (x1, y1) drawn around the object."""

    x0: float
    y0: float
    x1: float
    y1: float

    def __post_init__(self) -> None:
        _Timed.__post_init__(self)
        if not (self.x1 > self.x0 and self.y1 > self.y0):
            raise PromptError(
                f"the box {self.x0:g},{self.y0:g},{self.x1:g},{self.y1:g} has no area: "
                "expected X0,Y0,X1,Y1 with X1 > X0 and Y1 > Y0"
            )

    def check_size(self, width: int, height: int) -> None:
        """Raise `PromptError` unless the box lies inside a picture of this size."""
        if self.x0 < 0 or self.y0 < 0 or self.x1 > width or self.y1 > height:
            raise PromptError(
                f"the box {self.x0:g},{self.y0:g},{self.x1:g},{self.y1:g} reaches outside the picture, "
                f"which is {width}x{height}"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MaskPrompt(_Timed):
    """The object's mask: bool array of shape (height, width) at the displayed size."""

    mask: MaskArray

    def __post_init__(self) -> None:
        _Timed.__post_init__(self)
        if self.mask.ndim != 2 or self.mask.dtype != np.bool_:
            raise PromptError(f"a mask must be a 2-D bool array, got {self.mask.dtype} with shape {self.mask.shape}")
        if not self.mask.any():
            raise PromptError("the mask is empty: at least one pixel must be set")

    def check_size(self, width: int, height: int) -> None:
        """Raise `PromptError` unless the mask has exactly the picture's size."""
        if self.mask.shape != (height, width):
            raise PromptError(
                f"the mask is {self.mask.shape[1]}x{self.mask.shape[0]}, the picture is {width}x{height}; "
                "they must have the same size"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPrompt(_Timed):
    """A phrase: every object that it names, from `time_s` on."""

    text: str

    def __post_init__(self) -> None:
        _Timed.__post_init__(self)
        if not self.text.strip():
            raise PromptError("the phrase is empty: say what to look for, such as --text dog")

    def check_size(self, width: int, height: int) -> None:
        """A phrase fits every picture."""


Prompt = PointPrompt | BoxPrompt | MaskPrompt | TextPrompt


@dataclass(frozen=True, slots=True, eq=False)
class ObjectPrompt:
    """All that is said of one object on one frame: what a tracking session is given.

    On a later frame, or on one where the object is tracked already, it refines the object and keeps its id.

    Attributes:
        object_id: Public id of the object.
        prompt_id: Id of the prompt that made the object.
        label: What to call the object.
        points_n2: float32 (n, 2), x and y of the clicks in pixels of the displayed frame.
        positive_n: bool (n,), which clicks are on the object.
        box_xyxy: Box in pixels, or None.
        mask: bool (height, width), or None.
    """

    object_id: int
    prompt_id: str
    label: str
    points_n2: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 2), np.float32))
    positive_n: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    box_xyxy: tuple[float, float, float, float] | None = None
    mask: MaskArray | None = None


@dataclass(frozen=True, slots=True)
class ConceptPrompt:
    """A phrase as a tracking session is given it; objects that it finds carry `prompt_id` and `label`."""

    prompt_id: str
    text: str
    label: str


SessionPrompt = ObjectPrompt | ConceptPrompt
