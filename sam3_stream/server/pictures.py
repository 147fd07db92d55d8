"""Pictures of a stream: its newest frame, and the masks of its objects."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import cv2
import numpy as np
from fastapi import APIRouter, HTTPException, Query, Response

from sam3_stream.core.records import MaskArray, TrackedFrame
from sam3_stream.server.objects import ObjectId
from sam3_stream.server.streams import StreamName
from sam3_stream.stages.sinks.preview_renderer import draw

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview

_JPEG: dict[int | str, dict[str, Any]] = {200: {"description": "The picture.", "content": {"image/jpeg": {}}}}
_PNG: dict[int | str, dict[str, Any]] = {200: {"description": "White on black.", "content": {"image/png": {}}}}


def router(preview: Preview) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["pictures"])
    stream_of = preview.service.preview_stream

    @routes.get("/streams/{name}/snapshot.jpg", response_class=Response, responses=_JPEG)
    async def snapshot(name: StreamName, overlay: Annotated[bool, Query()] = True) -> Response:
        """The newest frame, with its objects drawn or without."""
        latest = stream_of(name).latest
        if latest is None:
            raise HTTPException(503, "there is no picture yet; wait for the stream", {"Retry-After": "1"})
        return Response(await asyncio.to_thread(_jpeg, latest, overlay), media_type="image/jpeg")

    @routes.get("/streams/{name}/objects/{number}/mask.png", response_class=Response, responses=_PNG)
    async def mask(name: StreamName, number: ObjectId) -> Response:
        """The mask of an object on the newest frame, at the displayed size."""
        found = stream_of(name).object(number)
        return Response(await asyncio.to_thread(_png, found.mask), media_type="image/png")

    return routes


def _jpeg(tracked: TrackedFrame, overlay: bool) -> bytes:
    _, encoded = cv2.imencode(".jpg", draw(tracked, tracked.frame.height, overlay), [cv2.IMWRITE_JPEG_QUALITY, 90])
    return bytes(encoded)


def _png(mask: MaskArray) -> bytes:
    _, encoded = cv2.imencode(".png", mask.view(np.uint8) * 255)
    return bytes(encoded)
