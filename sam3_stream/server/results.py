"""Results as server-sent events, for whoever has no data channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from sam3_stream.core.results_message import MaskStyle, results_message
from sam3_stream.runtime.channel import Cancelled, EndOfStream
from sam3_stream.server.problems import busy
from sam3_stream.server.streams import StreamName
from sam3_stream.stages.sinks.broadcast import Subscription

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview

_MOST_LISTENERS = 64
_POLL_S = 0.02
_SILENCE_S = 10.0
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "An event for each frame.", "content": {"text/event-stream": {}}}
}


def router(preview: Preview) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["results"])
    listeners = 0

    @routes.get("/streams/{name}/results", response_class=StreamingResponse, responses=_EVENTS)
    async def results(name: StreamName, masks: Annotated[MaskStyle, Query()] = "contours") -> StreamingResponse:
        """The results of each frame, as server-sent events. A slow listener misses frames."""
        if listeners >= _MOST_LISTENERS:
            raise busy(f"{_MOST_LISTENERS} listen already; come back when one has gone", retry_after_s=10)
        subscription = preview.service.preview_stream(name).subscribe()

        async def counted() -> AsyncIterator[str]:
            nonlocal listeners
            listeners += 1
            try:
                async for event in _events(subscription, masks):
                    yield event
            finally:
                listeners -= 1
                subscription.cancel()

        return StreamingResponse(counted(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return routes


async def _events(subscription: Subscription, masks: MaskStyle) -> AsyncIterator[str]:
    """An event for each frame; a comment where none comes, so that a listener who has gone is noticed."""
    silent_s = 0.0
    while True:
        try:
            waiting = subscription.take_waiting(1)
            tracked = waiting[0] if waiting else None
            if tracked is None:
                if subscription.ended:
                    return
                await asyncio.sleep(_POLL_S)
                silent_s += _POLL_S
                if silent_s >= _SILENCE_S:
                    silent_s = 0.0
                    yield ": still here\n\n"
                continue
        except (EndOfStream, Cancelled):
            return
        silent_s = 0.0
        message = await asyncio.to_thread(results_message, tracked, masks)
        yield f"data: {json.dumps(message, separators=(',', ':'))}\n\n"
