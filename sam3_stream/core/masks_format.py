"""The masks file: JSON Lines, a header and then one line a frame. docs/masks-format.md describes it for users.

Masks are COCO compressed run lengths, as pycocotools (https://github.com/cocodataset/cocoapi) reads and writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import numpy as np
from pycocotools import mask as coco_mask

from sam3_stream.core.errors import InputError
from sam3_stream.core.prompts import BoxPrompt, ExemplarPrompt, MaskPrompt, PointPrompt, Prompt, TextPrompt
from sam3_stream.core.records import (
    FrameState,
    MaskArray,
    RateFacts,
    RunHeader,
    StreamInfo,
    TrackedFrame,
    TrackedObject,
)

FORMAT = "sam3_stream.masks"
VERSION = 1
SCORE_DECIMALS = 4


@dataclass(frozen=True, slots=True)
class MasksHeader:
    """The first line of a masks file.

    Attributes:
        run: The input's name, the model's name and the prompts.
        width: Displayed width of the input in pixels, which is the width of every mask.
        height: Displayed height in pixels.
        time_base: Seconds per unit of `pts`.
    """

    run: RunHeader
    width: int
    height: int
    time_base: Fraction

    @classmethod
    def of(cls, info: StreamInfo, run: RunHeader) -> MasksHeader:
        """The header for this stream and run."""
        return cls(run, info.width, info.height, info.time_base)

    def to_line(self) -> bytes:
        """The header as a line of a masks file, line feed included."""
        return _line(
            {
                "format": FORMAT,
                "version": VERSION,
                "input": self.run.input,
                "width": self.width,
                "height": self.height,
                "time_base": [self.time_base.numerator, self.time_base.denominator],
                "model": self.run.model,
                "prompts": [dict(prompt) for prompt in self.run.prompts],
            }
        )


@dataclass(frozen=True, slots=True)
class MasksRow:
    """One frame's line of a masks file.

    Attributes:
        sequence: Number of the frame in its stream, from 0.
        pts: Presentation time stamp in units of the header's `time_base`.
        state: How the masks came about.
        objects: The objects in order of id, the absent ones too.
        mask_age: How many frames ago the model made the masks.
        rate: The setting of rate control; None where the rate was not controlled.
    """

    sequence: int
    pts: int
    state: FrameState
    objects: tuple[TrackedObject, ...]
    mask_age: int = 0
    rate: RateFacts | None = None


def row_to_line(tracked: TrackedFrame) -> bytes:
    """A frame's results as a line of a masks file, line feed included. The same results give the same bytes."""
    frame = tracked.frame
    return _line(
        {
            "frame": frame.sequence,
            "pts": frame.pts,
            "time_s": round(frame.time_s, 6),
            "state": tracked.state,
            **_rate_to_json(tracked),
            "objects": [_object_to_json(each) for each in tracked.objects],
        }
    )


def row_from_line(line: bytes) -> MasksRow:
    """The row that a line of a masks file holds.

    Raises:
        ValueError: The line is not a row.
    """
    try:
        fields = json.loads(line)
        if fields["state"] not in get_args(FrameState):
            raise ValueError(f"unknown state {fields['state']!r}")
        objects = tuple(_object_from_json(each) for each in fields["objects"])
        age, rate = fields.get("mask_age", 0), _rate_from_json(fields.get("rate"))
        return MasksRow(fields["frame"], fields["pts"], fields["state"], objects, age, rate)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a row of a masks file ({error})") from error


def encode_rle(mask: MaskArray) -> dict[str, Any]:
    """COCO compressed run lengths of a bool mask (height, width), with the counts as text for JSON."""
    rle = coco_mask.encode(np.asfortranarray(mask.view(np.uint8)))
    return {"size": [int(side) for side in rle["size"]], "counts": rle["counts"].decode("ascii")}


def decode_rle(rle: Mapping[str, Any]) -> MaskArray:
    """The bool mask (height, width) of COCO compressed run lengths."""
    return np.ascontiguousarray(coco_mask.decode({"size": rle["size"], "counts": rle["counts"]})).view(np.bool_)


def describe_prompt(prompt: Prompt) -> dict[str, Any]:
    """What a prompt says, in values that JSON knows."""
    described: dict[str, Any]
    match prompt:
        case PointPrompt():
            described = {"type": "click", "x": prompt.x, "y": prompt.y, "positive": prompt.positive}
        case BoxPrompt():
            described = {"type": "box", "xyxy": [prompt.x0, prompt.y0, prompt.x1, prompt.y1]}
        case MaskPrompt():
            described = {"type": "mask", "rle": encode_rle(prompt.mask)}
        case TextPrompt():
            described = {"type": "text", "text": prompt.text, **_limits(prompt)}
        case ExemplarPrompt():
            described = {
                "type": "exemplars",
                "text": prompt.text,
                "boxes": [list(box) for box in prompt.boxes_xyxy],
                "positive": list(prompt.positive),
                **_limits(prompt),
            }
    return described | {"time_s": prompt.time_s, "name": prompt.name}


def _limits(prompt: TextPrompt | ExemplarPrompt) -> dict[str, Any]:
    """The limits that were set; files made without any stay as they were."""
    limits = {"score_threshold": prompt.score_threshold, "max_objects": prompt.max_objects}
    return {name: limit for name, limit in limits.items() if limit is not None}


def run_header(source: str, model: str, prompts: Sequence[Prompt]) -> RunHeader:
    """What a run says of itself: the names of its input and model, and its prompts."""
    return RunHeader(source, model, tuple(describe_prompt(prompt) for prompt in prompts))


class MasksReader:
    """Reads a masks file row by row; memory does not grow with its length.

    A last line that a kill or a full disk cut short is left out, and `ends_in_cut_line` then says so.

    Args:
        path: The file.

    Raises:
        InputError: There is no such file, or it is not a masks file of a version this program reads. Iterating raises
            it for a line in the middle that is not a row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ends_in_cut_line = False
        try:
            with path.open("rb") as file:
                first_line = file.readline()
        except OSError as error:
            raise InputError(f"cannot read the masks file {path}: {error.strerror}") from error
        self.header = _parse_header(path, first_line)

    def __iter__(self) -> Iterator[MasksRow]:
        with self.path.open("rb") as file:
            file.readline()
            for number, line in enumerate(file, start=2):
                if not line.endswith(b"\n"):
                    self.ends_in_cut_line = True
                    return
                try:
                    yield row_from_line(line)
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(
                        f"line {number} of {self.path} is not a row of a masks file ({error}); "
                        "delete it and what follows, or write the file anew"
                    ) from error


def read_masks(path: str | Path) -> MasksReader:
    """Open a masks file: ``reader.header``, then iterate over the reader for its rows.

    Raises:
        InputError: There is no such file, or it is not a masks file.
    """
    return MasksReader(Path(path))


def _rate_to_json(tracked: TrackedFrame) -> dict[str, Any]:
    """Nothing unless the rate is controlled: other runs say of every frame that it was tracked."""
    rate = tracked.rate
    if rate is None:
        return {}
    setting = {
        "resolution": list(rate.resolution),
        "model_on": [rate.tracked, rate.of],
        "look_every": rate.look_every,
        "reachable": rate.reachable,
    }
    return {"mask_age": tracked.mask_age, "rate": setting}


def _rate_from_json(fields: Mapping[str, Any] | None) -> RateFacts | None:
    if fields is None:
        return None
    width, height = fields["resolution"]
    tracked, of = fields["model_on"]
    return RateFacts((width, height), tracked, of, fields["look_every"], fields["reachable"])


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _object_to_json(tracked: TrackedObject) -> dict[str, Any]:
    box = tracked.box_xywh
    return {
        "id": tracked.object_id,
        "label": tracked.label,
        "prompt": tracked.prompt_id,
        "score": round(tracked.score, SCORE_DECIMALS),
        "box": None if box is None else list(box),
        "present": tracked.present,
        "rle": encode_rle(tracked.mask),
    }


def _object_from_json(fields: dict[str, Any]) -> TrackedObject:
    return TrackedObject(
        object_id=fields["id"],
        prompt_id=fields["prompt"],
        label=fields["label"],
        score=fields["score"],
        mask=decode_rle(fields["rle"]),
        present=fields["present"],
    )


def _parse_header(path: Path, line: bytes) -> MasksHeader:
    try:
        fields = json.loads(line)
        if fields["format"] != FORMAT or not line.endswith(b"\n"):
            raise ValueError("another format")
        if fields["version"] != VERSION:
            raise InputError(f"{path} has version {fields['version']} of the masks format, expected {VERSION}")
        run = RunHeader(fields["input"], fields["model"], tuple(fields["prompts"]))
        return MasksHeader(run, fields["width"], fields["height"], Fraction(*fields["time_base"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f'{path} is not a masks file: expected a first line with "format":"{FORMAT}"') from error
