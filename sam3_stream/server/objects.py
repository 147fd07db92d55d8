"""Objects of a stream: which there are, what they are called, their masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path

from sam3_stream.core.results_message import describe_object
from sam3_stream.server.acknowledged import acknowledged
from sam3_stream.server.messages import FrameView, ObjectNumber, ObjectView, Renamed
from sam3_stream.server.streams import StreamName

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview

ObjectId = Annotated[ObjectNumber, Path()]


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

    return routes
