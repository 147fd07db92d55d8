"""The preview's application: the page, the API, WHEP and WHIP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from sam3_stream.build_preview import PreviewService
from sam3_stream.config.preview import PreviewConfig
from sam3_stream.server import login, objects, pictures, prompts, results, segment, streams, whep, whip
from sam3_stream.server.access import Access, Token
from sam3_stream.server.health import health_router
from sam3_stream.server.peers import Peers
from sam3_stream.server.problems import RESPONSES, add_problem_handlers

PAGE = Path(__file__).with_name("page")
API = "/api/v1"


@dataclass(frozen=True, slots=True)
class Preview:
    """What the routes work on.

    Attributes:
        service: The streams.
        config: What may be done with them.
        peers: Who watches and shares at present.
        segments: The pictures under way.
    """

    service: PreviewService
    config: PreviewConfig
    peers: Peers
    segments: segment.Queue = field(default_factory=segment.Queue)


def preview_app(
    service: PreviewService, config: PreviewConfig, *, hosts: tuple[str, ...], token: Token | None = None
) -> Callable[..., Any]:
    """The application, with all that guards it.

    Args:
        service: The streams; started and closed by whoever made it.
        config: What may be done with them.
        hosts: Names under which browsers know this server.
        token: What must be shown; None on loopback.
    """
    preview = Preview(service, config, Peers(config.preview.max_viewers))
    app = FastAPI(
        title="sam3_stream",
        description="Live streams in, tracked masks out. Errors are problem documents (RFC 9457).",
        redoc_url=None,
        lifespan=preview.peers.lifespan,
    )
    add_problem_handlers(app)
    for router in (streams, objects, prompts, pictures, results, segment):
        app.include_router(router.router(preview), prefix=API, responses=RESPONSES)
    for peers in (whep, whip):
        app.include_router(peers.router(preview), responses=RESPONSES)
    app.include_router(login.router(token))
    app.include_router(health_router(service.reports, lambda: service.encoder_queue))
    app.mount("/static", StaticFiles(directory=PAGE), name="page")

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    limits = config.preview
    return Access(app, hosts=hosts, token=token, max_requests=limits.max_requests, max_body_bytes=limits.max_body_bytes)
