"""The command line's short forms of prompts: ``X,Y[,-][@SECONDS][#NAME]`` and friends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sam3_stream.core.errors import PromptError

_CLICK = "X,Y[,-][@SECONDS][#NAME], such as 320,240 or 320,240,-@1.5#dog"
_BOX = "X0,Y0,X1,Y1[@SECONDS][#NAME], such as 100,50,300,200@2#car"
_MASK = "PNG[@SECONDS][#NAME], such as mask.png@2#car"
_SUFFIX = re.compile(r"^(?P<body>.*?)(?:@(?P<time>[0-9.]+))?(?:#(?P<name>[^#]+))?$", re.DOTALL)


def parse_click(text: str) -> dict[str, Any]:
    """``X,Y[,-][@SECONDS][#NAME]`` as the values of a `ClickConfig`.

    Raises:
        PromptError: The text has another form.
    """
    body, common = _split(text, _CLICK)
    parts = body.split(",")
    positive = parts[-1].strip() != "-"
    x, y = _numbers(parts if positive else parts[:-1], 2, text, _CLICK)
    return {"type": "click", "x": x, "y": y, "positive": positive, **common}


def parse_box(text: str) -> dict[str, Any]:
    """``X0,Y0,X1,Y1[@SECONDS][#NAME]`` as the values of a `BoxConfig`.

    Raises:
        PromptError: The text has another form.
    """
    body, common = _split(text, _BOX)
    x0, y0, x1, y1 = _numbers(body.split(","), 4, text, _BOX)
    return {"type": "box", "x0": x0, "y0": y0, "x1": x1, "y1": y1, **common}


def parse_mask(text: str) -> dict[str, Any]:
    """``PNG[@SECONDS][#NAME]`` as the values of a `MaskConfig`; a file of exactly this name is taken as it is.

    Raises:
        PromptError: The text has another form.
    """
    if _exists(text):
        return {"type": "mask", "path": text}
    body, common = _split(text, _MASK)
    return {"type": "mask", "path": body, **common}


def _split(text: str, expected: str) -> tuple[str, dict[str, Any]]:
    match = _SUFFIX.match(text)
    if match is None or not match["body"]:
        raise PromptError(f"cannot read the prompt {text!r}: expected {expected}")
    common: dict[str, Any] = {}
    if match["time"] is not None:
        common["time_s"] = _numbers([match["time"]], 1, text, expected)[0]
    if match["name"] is not None:
        common["name"] = match["name"]
    return match["body"], common


def _numbers(parts: list[str], count: int, text: str, expected: str) -> list[float]:
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if len(values) != count:
        raise PromptError(f"cannot read the prompt {text!r}: expected {expected}")
    return values


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False
