"""WHIP: share a camera with a stream (RFC 9725). An offer is posted, the answer has all candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, HTTPException, Request, Response

from sam3_stream.server.peers import SDP
from sam3_stream.server.whep import ANSWERED, SDP_BODY, StreamName, add_session_routes, sdp_in
from sam3_stream.transport.webrtc.publisher import Publisher

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview


def router(preview: Preview) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["webrtc"])

    @routes.post("/whip/{name}", status_code=201, response_class=Response, responses=ANSWERED, openapi_extra=SDP_BODY)
    async def share(request: Request, name: StreamName) -> Response:
        """Share a camera with a stream of the type whip: an SDP offer in, an answer out. One peer at a time."""
        pushed = preview.service.preview_stream(name).pushed
        if pushed is None:
            raise HTTPException(409, f"the stream {name!r} has a source of its own; add one of the type whip")
        if preview.peers.count("whip", name):
            raise HTTPException(409, f"somebody shares a camera with the stream {name!r} already")
        offer = await sdp_in(request)
        pushed.connect()
        session, answer = await preview.peers.add(
            "whip", name, lambda on_gone: Publisher(pushed.push, on_gone=on_gone), offer
        )
        return Response(answer, 201, {"Location": f"/whip/{name}/{session}"}, SDP)

    add_session_routes(routes, preview.peers, "whip")
    return routes
