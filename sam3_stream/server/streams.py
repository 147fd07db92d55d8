"""Streams: which there are, how they are, what is asked of them, a picture of each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import cv2
from fastapi import APIRouter, HTTPException, Path, Query, Response

from sam3_stream.config.preview import PreviewStreamConfig
from sam3_stream.core.records import TrackedFrame
from sam3_stream.server.messages import NewStream, Settings, StreamView
from sam3_stream.server.sources import check_source
from sam3_stream.stages.sinks.preview_renderer import draw

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview

StreamName = Annotated[str, Path(max_length=64)]
_FULL_HEIGHT = 4320
_JPEG: dict[int | str, dict[str, Any]] = {200: {"description": "The picture.", "content": {"image/jpeg": {}}}}


def router(preview: Preview) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["streams"])
    service = preview.service
    adding = asyncio.Lock()  # or many at once would all find room

    @routes.get("/streams")
    async def list_streams() -> list[StreamView]:
        """All streams."""
        return [StreamView.of(stream) for stream in service.streams]

    @routes.post("/streams", status_code=201)
    async def add_stream(new: NewStream) -> StreamView:
        """Add a stream, from the sources that the server's config allows."""
        await asyncio.to_thread(check_source, new.source, preview.config.sources)
        config = PreviewStreamConfig(name=new.name, source=new.source, target_fps=new.target_fps)
        async with adding:
            names = [stream.name for stream in service.streams]
            if len(names) >= preview.config.preview.max_streams:
                raise HTTPException(409, f"there are {len(names)} streams, and may not be more; remove one first")
            if new.name in names:
                raise HTTPException(409, f"there is a stream {new.name!r} already; remove it first, or take another")
            return StreamView.of(await asyncio.to_thread(service.add_stream, config))

    @routes.get("/streams/{name}")
    async def get_stream(name: StreamName) -> StreamView:
        """One stream."""
        return StreamView.of(service.preview_stream(name))

    @routes.delete("/streams/{name}", status_code=204)
    async def remove_stream(name: StreamName) -> None:
        """Stop a stream and forget it."""
        service.preview_stream(name)
        await preview.peers.remove_stream(name)
        await asyncio.to_thread(service.remove_stream, name)

    @routes.post("/streams/{name}/restart")
    async def restart_stream(name: StreamName) -> StreamView:
        """Stop a stream and start it again; objects keep their ids."""
        return StreamView.of(await asyncio.to_thread(service.restart_stream, name))

    @routes.get("/streams/{name}/settings")
    async def get_settings(name: StreamName) -> Settings:
        """What is asked of a stream."""
        return Settings(target_fps=service.preview_stream(name).config.target_fps)

    @routes.patch("/streams/{name}/settings")
    async def change_settings(name: StreamName, settings: Settings) -> Settings:
        """Ask something else of a stream; objects keep their ids."""
        stream = await asyncio.to_thread(service.set_target_fps, name, settings.target_fps)
        return Settings(target_fps=stream.config.target_fps)

    @routes.get("/streams/{name}/snapshot.jpg", response_class=Response, responses=_JPEG)
    async def snapshot(name: StreamName, overlay: Annotated[bool, Query()] = True) -> Response:
        """The newest frame, with its objects drawn or without."""
        latest = service.preview_stream(name).latest
        if latest is None:
            raise HTTPException(503, "there is no picture yet; wait for the stream", {"Retry-After": "1"})
        return Response(await asyncio.to_thread(_jpeg, latest, overlay), media_type="image/jpeg")

    @routes.get("/model", tags=["model"])
    async def get_model() -> dict[str, str]:
        """The model that all streams share."""
        return {"name": service.model.name}

    return routes


def _jpeg(tracked: TrackedFrame, overlay: bool) -> bytes:
    _, encoded = cv2.imencode(".jpg", draw(tracked, _FULL_HEIGHT, overlay), [cv2.IMWRITE_JPEG_QUALITY, 90])
    return bytes(encoded)
