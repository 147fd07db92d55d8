"""One picture with prompts in, masks out."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Annotated

import cv2
import numpy as np
from fastapi import APIRouter, File, Form, HTTPException, UploadFile
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from sam3_stream.core.records import ImageArray, TrackedObject
from sam3_stream.core.results_message import describe_object
from sam3_stream.server.messages import AnyPrompt, Segmented, prompt_of
from sam3_stream.server.problems import busy

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview

_MOST_WAITING = 16
_MOST_PIXELS = 50_000_000  # below Pillow's own limit, at which it warns
_FORMATS = ("JPEG", "PNG", "WEBP")
_MOST_PROMPTS = 200
_PROMPTS: TypeAdapter[list[AnyPrompt]] = TypeAdapter(list[AnyPrompt])


class Queue:
    """How many pictures are under way."""

    def __init__(self) -> None:
        self.waiting = 0

    def __enter__(self) -> None:
        if self.waiting >= _MOST_WAITING:
            raise busy(f"{_MOST_WAITING} pictures wait already; come back in a second", status=429)
        self.waiting += 1

    def __exit__(self, *_: object) -> None:
        self.waiting -= 1


def router(preview: Preview) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["segment"])

    @routes.post("/segment")
    async def segment(
        image: Annotated[UploadFile, File(description="A picture: JPEG, PNG or WebP.")],
        prompts: Annotated[str, Form(description="A JSON list of prompts, as for a stream.", max_length=8_000_000)],
    ) -> Segmented:
        """What prompts say on one picture. The second request with the same picture is fast."""
        said = _parsed(prompts)
        with preview.segments:
            picture = await asyncio.to_thread(_decoded, await image.read())
            meant = [prompt_of(each) for each in said]
            found = await asyncio.to_thread(preview.service.segment, picture, meant)
            described = await asyncio.to_thread(_described, found)
        return Segmented(width=picture.shape[1], height=picture.shape[0], objects=described)

    return routes


def _parsed(prompts: str) -> list[AnyPrompt]:
    try:
        said = _PROMPTS.validate_json(prompts)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise HTTPException(422, f"prompts: {where}: {first['msg']}" if where else f"prompts: {first['msg']}") from None
    if not said:
        raise HTTPException(422, "prompts: expected one prompt or more, such as " + json.dumps([_EXAMPLE]))
    if len(said) > _MOST_PROMPTS:
        raise HTTPException(413, f"prompts: {len(said)} are more than {_MOST_PROMPTS}")
    return said


_EXAMPLE = {"type": "click", "x": 320, "y": 240}


def _decoded(data: bytes) -> ImageArray:
    try:
        width, height = Image.open(io.BytesIO(data), formats=_FORMATS).size  # a few bytes may decode to gigabytes
        if width * height > _MOST_PIXELS:
            raise HTTPException(413, f"image: {width}x{height} pixels are more than {_MOST_PIXELS}")
        bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except Image.DecompressionBombError:
        raise HTTPException(413, f"image: it has more than {_MOST_PIXELS} pixels") from None
    except (OSError, ValueError, SyntaxError, cv2.error):  # what Pillow and OpenCV raise over broken files
        bgr = None
    if bgr is None:
        raise HTTPException(422, "image: expected a JPEG, PNG or WebP picture; this cannot be decoded")
    return np.ascontiguousarray(bgr[:, :, ::-1], dtype=np.uint8)


def _described(found: list[TrackedObject]) -> list[dict[str, object]]:
    return [describe_object(each, "rle") for each in found]
