"""WHEP: watch a stream (draft-ietf-wish-whep). An offer is posted, the answer has all candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response

from sam3_stream.server.peers import FRAGMENT, SDP, Peers
from sam3_stream.transport.webrtc.viewer import Viewer

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview

StreamName = Annotated[str, Path(max_length=64)]
SessionId = Annotated[str, Path(max_length=64)]


def _body(kind: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": {"type": "string"}}}}}


SDP_BODY = _body(SDP)
ANSWERED: dict[int | str, dict[str, Any]] = {
    201: {"description": "The SDP answer.", "content": {SDP: {"schema": {"type": "string"}}}}
}


async def sdp_in(request: Request, expected: str = SDP) -> str:
    """The SDP that is a request's body: an offer, or candidates."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != expected:
        raise HTTPException(415, f"expected a body of type {expected}, got {kind[:60] or 'none'}")
    try:
        return (await request.body()).decode()
    except UnicodeDecodeError:
        raise HTTPException(422, "the SDP is not text") from None


def add_session_routes(routes: APIRouter, peers: Peers, kind: str) -> None:
    """The routes that go on with a session of a kind, ``whep`` or ``whip``, and end it."""

    @routes.patch(
        f"/{kind}/{{name}}/{{session}}", name=f"trickle_{kind}", status_code=204, openapi_extra=_body(FRAGMENT)
    )
    async def trickle(request: Request, name: StreamName, session: SessionId) -> Response:
        """Tell candidates that were not known when the offer was made (RFC 8840)."""
        await peers.get(kind, name, session).add_candidates(await sdp_in(request, FRAGMENT))
        return Response(status_code=204)

    @routes.delete(f"/{kind}/{{name}}/{{session}}", name=f"leave_{kind}")
    async def leave(name: StreamName, session: SessionId) -> Response:
        """End a session."""
        await peers.get(kind, name, session).close()
        return Response(status_code=200)


def router(preview: Preview) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["webrtc"])

    @routes.post("/whep/{name}", status_code=201, response_class=Response, responses=ANSWERED, openapi_extra=SDP_BODY)
    async def watch(request: Request, name: StreamName, overlay: Annotated[bool, Query()] = True) -> Response:
        """Watch a stream: an SDP offer in, an answer out. A data channel `results` gets the results of each frame."""
        stream = preview.service.preview_stream(name)
        offer = await sdp_in(request)
        renditions = preview.peers.renditions(stream)
        session, answer = await preview.peers.add(
            "whep", name, lambda on_gone: Viewer(renditions, overlay=overlay, on_gone=on_gone), offer
        )
        return Response(answer, 201, {"Location": f"/whep/{name}/{session}"}, SDP)

    add_session_routes(routes, preview.peers, "whep")
    return routes
