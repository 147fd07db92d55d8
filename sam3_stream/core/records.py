"""The records that flow between stages: `Frame`, `EncodedFrame`, `TrackedFrame`, and `StreamInfo` before them.

They are frozen and validate on construction, so a stage never has to doubt what it was given.
Coordinates are pixels of the displayed source frame (after rotation), x right, y down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import supervision as sv

PixelFormat = Literal["rgb24", "bgr24"]
FrameState = Literal["tracked", "propagated", "held"]

ImageArray = npt.NDArray[np.uint8]
MaskArray = npt.NDArray[np.bool_]


class Picture(Protocol):
    """A decoded picture that is converted only when, and only as large as, somebody asks."""

    @property
    def width(self) -> int:
        """Displayed width in pixels."""

    @property
    def height(self) -> int:
        """Displayed height in pixels."""

    def to_ndarray(self, pixel_format: PixelFormat = "rgb24", size: tuple[int, int] | None = None) -> ImageArray:
        """Convert to an array of its own that the caller may change.

        Args:
            pixel_format: Channel order of the result.
            size: (width, height) in pixels to scale to; the displayed size when None.

        Returns:
            uint8 array of shape (height, width, 3).
        """


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of a stream.

    Attributes:
        stream_id: Which stream it belongs to.
        sequence: Number of the frame in its stream, from 0, without gaps for a file.
        pts: Presentation time stamp in units of `time_base`.
        time_base: Seconds per unit of `pts`.
        picture: The pixels, converted lazily.
        start_pts: Time stamp at which `time_s` is 0: that of the source's first frame.
        capture_time_s: Wall time of capture in seconds since the Unix epoch; None for files.
        rotation: Clockwise degrees that were applied to get from the coded to the displayed picture.
        key_frame: Whether the decoder could have started here.
        discontinuity: Whether stream time jumped before this frame (live sources).
        corrupt: Whether the decoder flagged the picture as damaged or concealed.
    """

    stream_id: str
    sequence: int
    pts: int
    time_base: Fraction
    picture: Picture
    start_pts: int = 0
    capture_time_s: float | None = None
    rotation: int = 0
    key_frame: bool = False
    discontinuity: bool = False
    corrupt: bool = False

    def __post_init__(self) -> None:
        if self.sequence < 0:
            raise ValueError(f"sequence must be 0 or more, got {self.sequence}")
        if self.time_base <= 0:
            raise ValueError(f"time_base must be positive, got {self.time_base}")
        if self.rotation not in (0, 90, 180, 270):
            raise ValueError(f"rotation must be 0, 90, 180 or 270 degrees, got {self.rotation}")

    @property
    def width(self) -> int:
        """Displayed width in pixels."""
        return self.picture.width

    @property
    def height(self) -> int:
        """Displayed height in pixels."""
        return self.picture.height

    @property
    def time_s(self) -> float:
        """Presentation time in seconds from the source's first frame, as players show it."""
        return (self.pts - self.start_pts) * self.time_base.numerator / self.time_base.denominator


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What a source says about its video before the first frame.

    Attributes:
        width: Displayed width in pixels.
        height: Displayed height in pixels.
        time_base: Seconds per unit of every frame's `pts`.
        average_rate: Frames per second that the header names; None where it names none.
        frame_count: Number of frames that the header names; a hint, headers lie. None where it names none.
        duration_s: Duration in seconds that the header names; None for live sources.
        rotation: Clockwise degrees from the coded to the displayed picture.
        sample_aspect_ratio: Width of a displayed pixel over its height; None for square or unknown.
        has_audio: Whether the source carries an audio track, too.
    """

    width: int
    height: int
    time_base: Fraction
    average_rate: Fraction | None = None
    frame_count: int | None = None
    duration_s: float | None = None
    rotation: int = 0
    sample_aspect_ratio: Fraction | None = None
    has_audio: bool = False

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise ValueError(f"a picture has at least one pixel, got {self.width}x{self.height}")
        if self.time_base <= 0:
            raise ValueError(f"time_base must be positive, got {self.time_base}")


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What a run says of itself at the head of its outputs. Nothing in it depends on when or where it ran.

    Attributes:
        input: Name of the input.
        model: Name of the model.
        prompts: The prompts, each as `describe_prompt` of `core.masks_format` gives it.
    """

    input: str
    model: str
    prompts: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class EncodedFrame:
    """A frame and what a model's image encoder made of it.

    Attributes:
        frame: The frame.
        features: The model's own features; opaque to every stage.
        resolution: (width, height) in pixels of the picture the encoder saw.
        dtype: Name of the number format the features were made in, such as ``"float32"``.
    """

    frame: Frame
    features: Any
    resolution: tuple[int, int]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class TrackedObject:
    """One object on one frame.

    Attributes:
        object_id: Public id, from 1, steady for the object's life and never reused.
        prompt_id: Id of the prompt that made it.
        label: What to call it: the prompt's name, the phrase, or ``"object 3"``.
        score: Confidence that the object is there, 0 to 1.
        mask: bool array of shape (frame.height, frame.width); all False when the object is absent.
        present: False while the object is lost or out of the picture; it keeps its id meanwhile.
    """

    object_id: int
    prompt_id: str
    label: str
    score: float
    mask: MaskArray
    present: bool = True

    def __post_init__(self) -> None:
        if self.object_id < 1:
            raise ValueError(f"object_id must be 1 or more, got {self.object_id}")
        if self.mask.dtype != np.bool_ or self.mask.ndim != 2:
            raise ValueError(f"mask must be a 2-D bool array, got {self.mask.dtype} with shape {self.mask.shape}")
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"score must lie between 0 and 1, got {self.score}")

    @property
    def box_xywh(self) -> tuple[int, int, int, int] | None:
        """Tight box (x, y, width, height) around the mask in pixels; None when the mask is empty."""
        columns = np.flatnonzero(self.mask.any(axis=0))
        if columns.size == 0:
            return None
        rows = np.flatnonzero(self.mask.any(axis=1))
        x, y = int(columns[0]), int(rows[0])
        return x, y, int(columns[-1]) - x + 1, int(rows[-1]) - y + 1


@dataclass(frozen=True, slots=True)
class Retraction:
    """An object that was shown and turned out to be none: what was said of it on these frames is taken back.

    Attributes:
        object_id: Its public id, which is never used again.
        first_sequence: Number of the first frame that showed it.
        last_sequence: Number of the last frame that showed it.
    """

    object_id: int
    first_sequence: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class RateFacts:
    """The setting with which rate control handled a frame.

    Attributes:
        resolution: (width, height) in pixels that the model is given.
        tracked: The model runs on `tracked` of every `of` frames.
        of: See `tracked`.
        look_every: New objects are looked for on every so many-th of the frames on which the model runs.
        reachable: Whether the target can be held within the limits.
    """

    resolution: tuple[int, int]
    tracked: int = 1
    of: int = 1
    look_every: int = 1
    reachable: bool = True

    def __str__(self) -> str:
        share = "" if self.of == 1 else f", model on {self.tracked} of {self.of}"
        return "{}x{}".format(*self.resolution) + share + ("" if self.reachable else ", out of reach")


@dataclass(frozen=True, slots=True)
class TrackedFrame:
    """A frame, its objects, and how the masks came about.

    Attributes:
        frame: The frame.
        objects: Objects in order of id, the absent ones too.
        state: ``tracked`` by the model, ``propagated`` from an earlier frame by motion, or ``held`` as they were.
        resolution: (width, height) in pixels that the model saw; None when it saw nothing.
        mask_age: How many frames ago the model made the masks; 0 for ``tracked``.
        retracted: Objects of earlier frames that this frame takes back.
        rate: The setting of rate control; None where the rate is not controlled.
    """

    frame: Frame
    objects: tuple[TrackedObject, ...] = ()
    state: FrameState = "tracked"
    resolution: tuple[int, int] | None = None
    mask_age: int = 0
    retracted: tuple[Retraction, ...] = ()
    rate: RateFacts | None = None

    def __post_init__(self) -> None:
        shape = (self.frame.height, self.frame.width)
        for tracked in self.objects:
            if tracked.mask.shape != shape:
                raise ValueError(
                    f"object {tracked.object_id}: mask has shape {tracked.mask.shape}, the frame is {shape}"
                )
        ids = [tracked.object_id for tracked in self.objects]
        if ids != sorted(set(ids)):
            raise ValueError(f"objects must be in order of id and each id once, got {ids}")

    @property
    def present(self) -> tuple[TrackedObject, ...]:
        """The objects that are in the picture."""
        return tuple(tracked for tracked in self.objects if tracked.present)

    @property
    def masks_nhw(self) -> MaskArray:
        """Masks of the objects that are present: bool array of shape (n, height, width)."""
        present = self.present
        if not present:
            return np.zeros((0, self.frame.height, self.frame.width), dtype=np.bool_)
        return np.stack([tracked.mask for tracked in present])

    def to_detections(self) -> sv.Detections:
        """The present objects as `supervision.Detections` with `mask`, `tracker_id`, `confidence` and labels.

        `data["class_name"]` holds the labels, which is where supervision's own tools look for them.
        """
        import supervision as sv  # costs most of a second to import, and only drawing needs it

        present = [tracked for tracked in self.present if tracked.box_xywh is not None]
        if not present:
            return sv.Detections.empty()
        xywh = np.array([tracked.box_xywh for tracked in present], dtype=np.float32)
        return sv.Detections(
            xyxy=np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1),
            mask=np.stack([tracked.mask for tracked in present]),
            confidence=np.array([tracked.score for tracked in present], dtype=np.float32),
            class_id=np.zeros(len(present), dtype=int),
            tracker_id=np.array([tracked.object_id for tracked in present], dtype=int),
            data={"class_name": np.array([tracked.label for tracked in present])},
        )

    def with_objects(self, objects: tuple[TrackedObject, ...]) -> TrackedFrame:
        """The same record with other objects."""
        return replace(self, objects=objects)
