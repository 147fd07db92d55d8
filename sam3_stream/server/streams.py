"""Streams: which there are, how they are, what is asked of them, a picture of each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, HTTPException, Path

from sam3_stream.config.preview import PreviewStreamConfig
from sam3_stream.server.messages import ModelChoice, ModelView, NewStream, Settings, StreamView
from sam3_stream.server.sources import check_source

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview

StreamName = Annotated[str, Path(max_length=64)]


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

    @routes.get("/model", tags=["model"])
    async def get_model() -> ModelView:
        """The model that all streams share, and which others there are."""
        config = service.model_config
        return ModelView(
            name=config.name,
            choices=list(service.model_names),
            detect_interval=config.detect_interval,
            association=config.association,
        )

    @routes.patch("/model", tags=["model"])
    async def choose_model(choice: ModelChoice) -> ModelView:
        """Track with another model, or other thresholds. With another model all objects begin anew."""
        options = {"detect_interval": choice.detect_interval, "association": choice.association}
        given = {key: value for key, value in options.items() if value is not None}
        await asyncio.to_thread(service.choose_model, choice.name, given)
        return await get_model()

    return routes
