"""Results as server-sent events, for whoever has no data channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from sam3_stream.core.results_message import MaskStyle, results_message
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


class _Listening(StreamingResponse):
    """Lets go of its place when it is over, also where the listener has gone before the first event."""

    def __init__(self, subscription: Subscription, masks: MaskStyle, let_go: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store"}
        super().__init__(_events(subscription, masks), media_type="text/event-stream", headers=headers)
        self._subscription = subscription
        self._let_go = let_go

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._subscription.cancel()
            self._let_go()


def router(preview: Preview) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["results"])
    listeners = 0

    def let_go() -> None:
        nonlocal listeners
        listeners -= 1

    @routes.get("/streams/{name}/results", response_class=StreamingResponse, responses=_EVENTS)
    async def results(name: StreamName, masks: Annotated[MaskStyle, Query()] = "contours") -> StreamingResponse:
        """The results of each frame, as server-sent events. A slow listener misses frames."""
        nonlocal listeners
        if listeners >= _MOST_LISTENERS:
            raise busy(f"{_MOST_LISTENERS} listen already; come back when one has gone", retry_after_s=10)
        subscription = preview.service.preview_stream(name).subscribe()
        listeners += 1
        return _Listening(subscription, masks, let_go)

    return routes


async def _events(subscription: Subscription, masks: MaskStyle) -> AsyncIterator[str]:
    """An event for each frame; a comment where none comes, so that a listener who has gone is noticed."""
    silent_s = 0.0
    while not subscription.ended:
        waiting = subscription.take_waiting(1)
        if not waiting:
            await asyncio.sleep(_POLL_S)
            silent_s += _POLL_S
            if silent_s >= _SILENCE_S:
                silent_s = 0.0
                yield ": still here\n\n"
            continue
        silent_s = 0.0
        message = await asyncio.to_thread(results_message, waiting[0], masks)
        yield f"data: {json.dumps(message, separators=(',', ':'))}\n\n"
