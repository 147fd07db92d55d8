"""What a YAML file or a command line may say: frozen models that know every key, its type and its limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from sam3_stream.config.base import Config
from sam3_stream.config.processes import ProcessesConfig
from sam3_stream.config.rate import RateConfig
from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.core.urls import redact_credentials

_LATEST_S = 1e9  # some thirty years; time stamps are counted in fractions of it


class SourceConfig(Config):
    """A video file that FFmpeg reads, or a folder of images in name order."""

    path: Path = Field(description="Video file, or folder of images.")
    start_s: float | None = Field(
        None, ge=0, le=_LATEST_S, description="Start here, in seconds from the beginning of the video."
    )
    end_s: float | None = Field(None, gt=0, le=_LATEST_S, description="End before this time, in seconds.")
    max_frames: int | None = Field(None, ge=1, description="Stop after this many frames.")
    realtime: bool = Field(False, description="Play the file like a camera: frames that there is no time for are lost.")

    @field_validator("path", mode="before")
    @classmethod
    def _check_path(cls, path: object) -> object:
        if not str(path):
            raise ValueError("the input is empty; expected a video file or a folder of images")
        if "://" in str(path):
            raise ValueError(
                f"{redact_credentials(str(path))} is a URL, expected a file or a folder; "
                "live sources go into a config: sam3-stream run configs/ingest_rtsp.yaml"
            )
        return path

    @model_validator(mode="after")
    def _check_window(self) -> SourceConfig:
        if self.end_s is not None and self.end_s <= (self.start_s or 0.0):
            raise ValueError(f"end_s ({self.end_s:g}) must be later than start_s ({self.start_s or 0:g})")
        return self


class ModelConfig(Config):
    """Which model tracks."""

    name: str = Field("lite", description="lite, sam3, a folder with SAM 3 weights, or an id on the Hugging Face hub.")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps. lite always runs on the CPU.")
    dtype: Literal["auto", "fp16", "bf16", "fp32"] | None = Field(None, description="SAM 3: format of its arithmetic.")
    resolution: int | None = Field(None, ge=1, description="SAM 3: side in pixels of the picture that it sees.")
    max_objects: int | None = Field(None, ge=1, description="SAM 3: objects that a stream has room for; 64 if not set.")
    detect_interval: int | str | None = Field(
        None,
        description="SAM 3: how often it looks for phrases, in frames (4) or time (250ms); each if not set.",
    )
    association: AssociationConfig | None = Field(
        None, description="SAM 3: thresholds of how detections of a phrase become tracks, live and end."
    )
    warmup: bool | None = Field(None, description="SAM 3: read the weights and run a dummy step at the start.")
    idle_unload_s: float | None = Field(None, gt=0, description="SAM 3: free the weights after so many idle seconds.")
    sha256: str | None = Field(None, description="SAM 3: the weights' expected SHA-256.")

    @property
    def options(self) -> dict[str, Any]:
        """What was set beside name and device, as `load_model` takes it."""
        options = self.model_dump(exclude={"name", "device", "association"}, exclude_none=True)
        return options if self.association is None else options | {"association": self.association}

    @field_validator("detect_interval")
    @classmethod
    def _check_interval(cls, interval: int | str | None) -> int | str | None:
        if interval is not None and not re.fullmatch(r"0*[1-9]\d*(ms)?", str(interval).strip()):
            raise ValueError(f"expected a number of frames such as 4, or milliseconds such as 250ms, got {interval!r}")
        return interval


class _PromptConfig(Config):
    time_s: float = Field(
        0.0, ge=0, le=_LATEST_S, description="Takes effect on the first frame at or after this time, in seconds."
    )
    name: str | None = Field(None, min_length=1, description="Label; prompts with the same name speak of one object.")


class ClickConfig(_PromptConfig):
    """The object is, or is not, at this pixel of the displayed picture."""

    type: Literal["click"] = "click"
    x: float = Field(description="Pixels from the left edge of the displayed picture.")
    y: float = Field(description="Pixels from the top edge of the displayed picture.")
    positive: bool = Field(True, description="False: this pixel is not on the object.")


class BoxConfig(_PromptConfig):
    """A box drawn around the object, in pixels of the displayed picture."""

    type: Literal["box"] = "box"
    x0: float
    y0: float
    x1: float
    y1: float


class MaskConfig(_PromptConfig):
    """The object's mask: an image of the displayed size; pixels that are not black (or index 0) are on the object."""

    type: Literal["mask"] = "mask"
    path: Path


class _ConceptConfig(_PromptConfig):
    score_threshold: float | None = Field(
        None, ge=0, le=1, description="Confidence that a detection needs; the model's own if not set."
    )
    max_objects: int | None = Field(
        None, ge=1, description="At most so many objects at a time; as many as there is room for if not set."
    )


class TextConfig(_ConceptConfig):
    """A phrase: every object that it names."""

    type: Literal["text"] = "text"
    text: str = Field(min_length=1)


class ExemplarsConfig(_ConceptConfig):
    """Every object like those in the boxes, and unlike those in the negative ones."""

    type: Literal["exemplars"] = "exemplars"
    boxes: tuple[tuple[float, float, float, float], ...] = Field(
        min_length=1, description="Boxes x0, y0, x1, y1 in pixels of the displayed picture."
    )
    positive: tuple[bool, ...] | None = Field(None, description="For each box whether it shows what is meant; all do.")
    text: str = Field("", description="A phrase that goes with the boxes.")


PromptConfig = Annotated[
    ClickConfig | BoxConfig | MaskConfig | TextConfig | ExemplarsConfig, Field(discriminator="type")
]


class OverlayConfig(Config):
    """The video with the objects drawn over it: H.264 in MP4, with the source's sound."""

    type: Literal["overlay"] = "overlay"
    path: Path
    show_rate: bool = Field(False, description="Write what rate control does onto every frame.")


class MasksConfig(Config):
    """A line of JSON a frame with ids, labels, scores, boxes and COCO RLE masks (docs/masks-format.md)."""

    type: Literal["masks"] = "masks"
    path: Path


class DavisConfig(Config):
    """A folder of indexed PNGs by frame number, in the layout of the DAVIS data set."""

    type: Literal["davis"] = "davis"
    path: Path


class CutoutConfig(Config):
    """The objects alone on transparency: a .webm file (VP9 with alpha) or a folder of PNGs."""

    type: Literal["cutout"] = "cutout"
    path: Path


class RedactConfig(Config):
    """The video with the objects pixelated beyond recovery: H.264 in MP4, with the source's sound."""

    type: Literal["redact"] = "redact"
    path: Path


class ZeroMqConfig(Config):
    """Ids, labels, scores, boxes and masks of every frame to whoever subscribes (docs/wire-format.md)."""

    type: Literal["zeromq"] = "zeromq"
    address: str = Field(
        "tcp://127.0.0.1:5560", description="ipc://PATH or tcp://HOST:PORT; beyond this machine: keys."
    )
    keys: Path | None = Field(None, description="Folder of keys that 'sam3-stream keys' made.")
    masks: Literal["rle", "bits"] = Field("rle", description="rle is smallest, bits is quickest to read.")


FileSinkConfig = OverlayConfig | MasksConfig | DavisConfig | CutoutConfig | RedactConfig
SinkConfig = Annotated[FileSinkConfig | ZeroMqConfig, Field(discriminator="type")]


class ControlConfig(Config):
    """A socket to add, refine and remove prompts of the running job, and to ask its status (docs/wire-format.md)."""

    address: str = Field(
        "tcp://127.0.0.1:5561", description="ipc://PATH or tcp://HOST:PORT; beyond this machine: keys."
    )
    keys: Path | None = Field(None, description="Folder of keys that 'sam3-stream keys' made.")


class JobConfig(RateConfig):
    """One tracking job from a file to its outputs."""

    source: SourceConfig
    model: ModelConfig = ModelConfig()
    prompts: tuple[PromptConfig, ...] = Field((), description="At least one click, box, mask or phrase.")
    sinks: tuple[SinkConfig, ...] = Field((), description="Where the results go.")
    backward: bool = Field(False, description="Carry the prompts to the frames before them, too.")
    resume: bool = Field(False, description="Go on where the masks file of a killed run ends.")
    force: bool = Field(False, description="Overwrite outputs that exist.")
    control: ControlConfig | None = None
    processes: ProcessesConfig = ProcessesConfig()

    @property
    def file_sinks(self) -> tuple[FileSinkConfig, ...]:
        """The sinks that write to a path."""
        return tuple(sink for sink in self.sinks if not isinstance(sink, ZeroMqConfig))

    @model_validator(mode="after")
    def _check_prompts(self) -> JobConfig:
        if not self.prompts and self.control is None:
            raise ValueError("there is no prompt; say what to track with a click, a box, a mask or a phrase")
        return self

    @model_validator(mode="after")
    def _check_sinks(self) -> JobConfig:
        if not self.sinks:
            raise ValueError(
                "there is no output; say where the result goes with an overlay, masks, davis, cutout or redact sink"
            )
        return self

    @model_validator(mode="after")
    def _check_backward(self) -> JobConfig:
        if self.backward and all(isinstance(prompt, TextConfig) for prompt in self.prompts):
            raise ValueError("backward needs a click, a box or a mask: a phrase looks for objects from its time on")
        return self

    @model_validator(mode="after")
    def _check_resume(self) -> JobConfig:
        if self.resume and not any(isinstance(sink, MasksConfig) for sink in self.sinks):
            raise ValueError("resume needs a masks output: the masks file says how far the killed run came")
        return self

    @model_validator(mode="after")
    def _check_rate(self) -> JobConfig:
        named = "target_fps" if self.target_fps is not None else "source.realtime" if self.source.realtime else None
        others = {
            "backward": self.backward,
            "resume": self.resume,
            "several process groups": self.target_fps is not None and len(self.processes.groups) > 1,
        }
        wrong = [other for other, asked in others.items() if asked]
        if named is not None and wrong:
            raise ValueError(f"{named} does not go with {wrong[0]}: which frames the model sees depends on the time")
        return self

    @model_validator(mode="after")
    def _check_processes(self) -> JobConfig:
        if self.backward and len(self.processes.groups) > 1:
            raise ValueError("backward needs all stages in one process group; leave out processes or backward")
        return self
