"""From what `core.masks_format.describe_prompt` says of a prompt back to the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sam3_stream.core.errors import PromptError
from sam3_stream.core.masks_format import decode_rle
from sam3_stream.core.prompts import BoxPrompt, ExemplarPrompt, MaskPrompt, PointPrompt, Prompt, TextPrompt


def prompt_from_description(fields: Mapping[str, Any]) -> Prompt:
    """The prompt that these fields describe; `time_s` and `name` may be missing.

    Raises:
        PromptError: They describe none.
    """
    try:
        return _prompt(fields, {"time_s": float(fields.get("time_s", 0.0)), "name": fields.get("name")})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PromptError(
            f"not a prompt ({type(error).__name__}: {error}); expected a type (click, box, mask, text or exemplars) "
            "and its fields, as in the header of a masks file"
        ) from error


def _prompt(fields: Mapping[str, Any], common: dict[str, Any]) -> Prompt:
    match fields["type"]:
        case "click":
            positive = bool(fields.get("positive", True))
            return PointPrompt(x=float(fields["x"]), y=float(fields["y"]), positive=positive, **common)
        case "box":
            x0, y0, x1, y1 = (float(side) for side in fields["xyxy"])
            return BoxPrompt(x0=x0, y0=y0, x1=x1, y1=y1, **common)
        case "mask":
            return MaskPrompt(mask=decode_rle(fields["rle"]), **common)
        case "text":
            return TextPrompt(text=str(fields["text"]), **_limits(fields), **common)
        case "exemplars":
            boxes = tuple((float(x0), float(y0), float(x1), float(y1)) for x0, y0, x1, y1 in fields["boxes"])
            positives = tuple(bool(each) for each in fields["positive"])
            text = str(fields.get("text", ""))
            return ExemplarPrompt(boxes_xyxy=boxes, positive=positives, text=text, **_limits(fields), **common)
    raise ValueError(f"unknown type {fields['type']!r}")


def _limits(fields: Mapping[str, Any]) -> dict[str, Any]:
    threshold, count = fields.get("score_threshold"), fields.get("max_objects")
    return {
        "score_threshold": None if threshold is None else float(threshold),
        "max_objects": None if count is None else int(count),
    }
