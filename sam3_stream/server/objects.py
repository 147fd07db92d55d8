"""Objects of a stream: which there are, what they are called, their masks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import cv2
import numpy as np
from fastapi import APIRouter, Path, Response

from sam3_stream.core.records import MaskArray
from sam3_stream.core.results_message import describe_object
from sam3_stream.server.acknowledged import acknowledged
from sam3_stream.server.messages import FrameView, ObjectNumber, ObjectView, Renamed
from sam3_stream.server.streams import StreamName

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview

ObjectId = Annotated[ObjectNumber, Path()]
_PNG: dict[int | str, dict[str, Any]] = {
    200: {"description": "White where the object is.", "content": {"image/png": {}}}
}


def router(preview: Preview) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["objects"])
    stream_of = preview.service.preview_stream

    @routes.get("/streams/{name}/objects")
    async def list_objects(name: StreamName) -> list[ObjectView]:
        """The objects of the newest frame, the absent ones too."""
        latest = stream_of(name).latest
        return [ObjectView(**describe_object(each)) for each in (latest.objects if latest is not None else ())]

    @routes.patch("/streams/{name}/objects/{number}")
    async def rename_object(name: StreamName, number: ObjectId, renamed: Renamed) -> FrameView:
        """Call an object something else."""
        return FrameView(frame=await acknowledged(stream_of(name).rename(number, renamed.label.strip())))

    @routes.delete("/streams/{name}/objects/{number}")
    async def remove_object(name: StreamName, number: ObjectId) -> FrameView:
        """Track an object no more."""
        return FrameView(frame=await acknowledged(stream_of(name).remove_object(number)))

    @routes.get("/streams/{name}/objects/{number}/mask.png", response_class=Response, responses=_PNG)
    async def mask(name: StreamName, number: ObjectId) -> Response:
        """The mask of an object on the newest frame, at the displayed size."""
        found = stream_of(name).object(number)
        return Response(await asyncio.to_thread(_png, found.mask), media_type="image/png")

    return routes


def _png(mask: MaskArray) -> bytes:
    _, encoded = cv2.imencode(".png", mask.view(np.uint8) * 255)
    return bytes(encoded)
