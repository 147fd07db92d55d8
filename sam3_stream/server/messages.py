"""What the API takes and gives."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sam3_stream.build_live import source_name
from sam3_stream.config.preview import LoopedFileConfig, PreviewSourceConfig, WhipSourceConfig
from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.core.errors import PromptError
from sam3_stream.core.masks_format import describe_prompt
from sam3_stream.core.prompt_description import prompt_from_description
from sam3_stream.core.prompts import MaskPrompt, Prompt
from sam3_stream.preview_stream import PreviewStream
from sam3_stream.stages.memory_tracker.prompt_schedule import GivenPrompts

Pixels = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
FrameNumber = Annotated[int, Field(ge=0, le=1 << 53)]
ObjectNumber = Annotated[int, Field(ge=1, le=1 << 53)]
Label = Annotated[str, Field(min_length=1, max_length=100, pattern=r"\S")]
_MOST_BOXES = 20


class Message(BaseModel):
    """Knows every key that it may have."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class StreamView(BaseModel):
    """How a stream is."""

    name: str
    kind: Literal["live", "file", "whip"]
    source: str
    state: str
    reason: str
    width: int | None
    height: int | None
    fps_in: float
    fps_out: float
    age_ms: float | None
    objects: int
    resolution: tuple[int, int] | None
    rate: str | None
    target_fps: float | None
    dropped: dict[str, int]

    @classmethod
    def of(cls, stream: PreviewStream) -> StreamView:
        """The view of a stream as it is now."""
        report, latest, source = stream.report(), stream.latest, stream.config.source
        kind: Literal["live", "file", "whip"] = "live"
        if isinstance(source, LoopedFileConfig | WhipSourceConfig):
            kind = source.type
        return cls(
            name=stream.name,
            kind=kind,
            source=source_name(source),
            state=report.state,
            reason=report.reason,
            width=None if latest is None else latest.frame.width,
            height=None if latest is None else latest.frame.height,
            fps_in=round(report.source.fps, 2),
            fps_out=round(report.fps_out, 2),
            age_ms=None if report.age_s is None else round(report.age_s * 1000, 1),
            objects=report.objects,
            resolution=report.resolution,
            rate=None if report.rate is None else str(report.rate),
            target_fps=stream.config.target_fps,
            dropped={f"{place}: {reason}": count for (place, reason), count in report.dropped.items() if count},
        )


class NewStream(Message):
    """A stream to be added."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=64)]
    source: PreviewSourceConfig
    target_fps: Annotated[float, Field(gt=0, le=1000)] | None = None

    @field_validator("source", mode="before")
    @classmethod
    def _check_variables(cls, source: Any) -> Any:
        """In a config ${NAME} stands for what the environment holds; nobody may ask for that over the network."""
        if isinstance(source, dict) and "${" in str(source.get("url")):
            raise ValueError("${NAME} is for the server's config; write the value itself")
        return source


class Settings(Message):
    """What may be changed of a running stream."""

    target_fps: Annotated[float, Field(gt=0, le=1000)] | None


class ModelView(BaseModel):
    """The model that all streams share.

    `choices` are the names that may be put in its place.
    """

    name: str
    choices: list[str]
    detect_interval: int | str | None
    association: AssociationConfig | None


class ModelChoice(Message):
    """What is to track. `detect_interval` and `association` are SAM 3's; null leaves them to the config."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    detect_interval: Annotated[str, Field(pattern=r"^0*[1-9][0-9]{0,8}(ms)?$")] | None = None
    association: AssociationConfig | None = None


class ObjectView(BaseModel):
    """An object of the newest result."""

    id: int
    label: str
    color: str
    prompt: str
    score: float
    present: bool
    box: tuple[int, int, int, int] | None


class Renamed(Message):
    """A new name for an object."""

    label: Label


class _Prompt(Message):
    name: Label | None = None
    object: ObjectNumber | None = Field(None, description="The object that this corrects.")
    frame: FrameNumber | None = Field(None, description="Number of the frame that was on the screen.")


class Click(_Prompt):
    """A pixel on the object, or one that is not."""

    type: Literal["click"]
    x: Pixels
    y: Pixels
    positive: bool = True


class Box(_Prompt):
    """A box around the object."""

    type: Literal["box"]
    x0: Pixels
    y0: Pixels
    x1: Pixels
    y1: Pixels


class Rle(Message):
    """A mask as COCO compressed run lengths."""

    size: tuple[Annotated[int, Field(ge=1, le=16384)], Annotated[int, Field(ge=1, le=16384)]]
    counts: Annotated[str, Field(max_length=4_000_000)]


class Mask(_Prompt):
    """The object's mask at the displayed size."""

    type: Literal["mask"]
    rle: Rle


class _Concept(_Prompt):
    score_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    max_objects: Annotated[int, Field(ge=1, le=1000)] | None = None


class Text(_Concept):
    """Every object that a phrase names."""

    type: Literal["text"]
    text: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


class Exemplars(_Concept):
    """Every object like those in the boxes."""

    type: Literal["exemplars"]
    boxes: Annotated[list[tuple[Pixels, Pixels, Pixels, Pixels]], Field(min_length=1, max_length=_MOST_BOXES)]
    positive: Annotated[list[bool], Field(min_length=1, max_length=_MOST_BOXES)]
    text: Annotated[str, Field(max_length=2000)] = ""


AnyPrompt = Annotated[Click | Box | Mask | Text | Exemplars, Field(discriminator="type")]


def prompt_of(message: Click | Box | Mask | Text | Exemplars) -> Prompt:
    """The prompt that a message means.

    Raises:
        PromptError: It makes no sense.
    """
    fields: dict[str, Any] = message.model_dump(exclude={"object", "frame"}, exclude_none=True)
    if isinstance(message, Box):
        fields["xyxy"] = [fields.pop(side) for side in ("x0", "y0", "x1", "y1")]
    if isinstance(message, Mask):
        from sam3_stream.transport.control import check_rle

        check_rle({"size": list(message.rle.size), "counts": message.rle.counts})
    if isinstance(message, Text | Exemplars) and message.object is not None:
        raise PromptError("a phrase cannot correct an object; a click, a box or a mask can")
    return prompt_from_description(fields)


class Effect(BaseModel):
    """What has become of a prompt."""

    prompt: str
    object: int | None
    frame: int


class FrameView(BaseModel):
    """The first frame on which something holds."""

    frame: int


class PromptView(BaseModel):
    """What has been said of one object or with one phrase."""

    id: str
    object: int | None
    label: str
    said: list[dict[str, Any]]

    @classmethod
    def of(cls, given: GivenPrompts) -> PromptView:
        """The view of what has been said."""
        said = [
            {"type": "mask", "name": each.name} if isinstance(each, MaskPrompt) else describe_prompt(each)
            for each in given.prompts  # a mask is large, and its object's newest one is to be had elsewhere
        ]
        return cls(id=given.prompt_id, object=given.object_id, label=given.label, said=said)


class Segmented(BaseModel):
    """What prompts say on one picture."""

    width: int
    height: int
    objects: list[dict[str, Any]]
