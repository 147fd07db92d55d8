"""What a user may say about a stream: clicks, boxes, masks, phrases and exemplars.

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
    """A phrase: every object that it names, from `time_s` on.

    Attributes:
        text: The phrase.
        score_threshold: Confidence that a detection needs, 0 to 1; the model's own when None.
        max_objects: At most so many objects at a time; as many as there is room for when None.
    """

    text: str
    score_threshold: float | None = None
    max_objects: int | None = None

    def __post_init__(self) -> None:
        _Timed.__post_init__(self)
        if not self.text.strip():
            raise PromptError("the phrase is empty: say what to look for, such as --text dog")
        _check_limits(self.score_threshold, self.max_objects)

    def check_size(self, width: int, height: int) -> None:
        """A phrase fits every picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemplarPrompt(_Timed):
    """A concept shown by examples: every object like those in the boxes, from `time_s` on.

    Attributes:
        boxes_xyxy: Boxes (x0, y0, x1, y1) in pixels on the frame that the prompt takes effect on.
        positive: For each box, whether it shows the concept (True) or what is not meant (False).
        text: A phrase that goes with the boxes; empty when the boxes alone say it.
        score_threshold: As `TextPrompt` has it.
        max_objects: As `TextPrompt` has it.
    """

    boxes_xyxy: tuple[tuple[float, float, float, float], ...]
    positive: tuple[bool, ...]
    text: str = ""
    score_threshold: float | None = None
    max_objects: int | None = None

    def __post_init__(self) -> None:
        _Timed.__post_init__(self)
        if not self.boxes_xyxy or len(self.positive) != len(self.boxes_xyxy):
            raise PromptError(
                f"exemplars need one box or more and a positive or negative mark for each, "
                f"got {len(self.boxes_xyxy)} boxes and {len(self.positive)} marks"
            )
        for x0, y0, x1, y1 in self.boxes_xyxy:
            BoxPrompt(x0=x0, y0=y0, x1=x1, y1=y1)
        _check_limits(self.score_threshold, self.max_objects)

    def check_size(self, width: int, height: int) -> None:
        """Raise `PromptError` unless every box lies inside a picture of this size."""
        for x0, y0, x1, y1 in self.boxes_xyxy:
            BoxPrompt(x0=x0, y0=y0, x1=x1, y1=y1).check_size(width, height)


Prompt = PointPrompt | BoxPrompt | MaskPrompt | TextPrompt | ExemplarPrompt


@dataclass(frozen=True, slots=True)
class PromptEffect:
    """What has become of a prompt that was given while the stream ran.

    Attributes:
        prompt_id: Id of the prompt, by which it can be replaced or removed.
        object_id: Public id of the object it speaks of; None for a phrase or exemplars.
        sequence: Number of the first frame on which it took effect.
    """

    prompt_id: str
    object_id: int | None
    sequence: int


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
    """A phrase, or exemplar boxes, as a tracking session is given it.

    Objects that it finds carry `prompt_id` and `label`. Given again with the same `prompt_id` it replaces the concept:
    the objects of the old one end.

    Attributes:
        prompt_id: Id of the prompt.
        text: The phrase; empty when exemplar boxes alone say what is meant.
        label: What to call the objects.
        exemplar_boxes_xyxy: Boxes (x0, y0, x1, y1) in pixels of the frame that the prompt comes with.
        exemplar_positive: For each box, whether it shows the concept or what is not meant.
        score_threshold: Confidence a detection needs, 0 to 1; the model's own when None.
        max_objects: At most so many objects of this concept at a time; as many as there is room for when None.
    """

    prompt_id: str
    text: str
    label: str
    exemplar_boxes_xyxy: tuple[tuple[float, float, float, float], ...] = ()
    exemplar_positive: tuple[bool, ...] = ()
    score_threshold: float | None = None
    max_objects: int | None = None

    def __post_init__(self) -> None:
        if not self.text.strip() and not self.exemplar_boxes_xyxy:
            raise PromptError("a concept needs a phrase or an exemplar box: say what to look for, such as --text dog")
        if len(self.exemplar_positive) != len(self.exemplar_boxes_xyxy):
            raise PromptError(
                f"each exemplar box needs a positive or negative mark, got {len(self.exemplar_boxes_xyxy)} boxes and "
                f"{len(self.exemplar_positive)} marks"
            )
        _check_limits(self.score_threshold, self.max_objects)


SessionPrompt = ObjectPrompt | ConceptPrompt


def _check_limits(score_threshold: float | None, max_objects: int | None) -> None:
    if score_threshold is not None and not 0.0 <= score_threshold <= 1.0:
        raise PromptError(f"a score threshold must lie between 0 and 1, got {score_threshold}")
    if max_objects is not None and max_objects < 1:
        raise PromptError(f"the limit on objects must be 1 or more, got {max_objects}")
