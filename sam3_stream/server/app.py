"""The preview's application: the page, the API, WHEP and WHIP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from sam3_stream.build_preview import PreviewService
from sam3_stream.config.preview import PreviewConfig
from sam3_stream.server import login, objects, prompts, results, segment, streams, whep, whip
from sam3_stream.server.access import Access, Token
from sam3_stream.server.metrics import make_registry
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
    for router in (streams, objects, prompts, results, segment):
        app.include_router(router.router(preview), prefix=API, responses=RESPONSES)
    for peers in (whep, whip):
        app.include_router(peers.router(preview), responses=RESPONSES)
    app.include_router(login.router(token))
    _add_health(app, service)
    app.mount("/static", StaticFiles(directory=PAGE), name="page")

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    limits = config.preview
    return Access(app, hosts=hosts, token=token, max_requests=limits.max_requests, max_body_bytes=limits.max_body_bytes)


def _add_health(app: FastAPI, service: PreviewService) -> None:
    registry = make_registry(service.reports, lambda: service.encoder_queue)

    @app.get("/livez", tags=["health"])
    async def livez() -> dict[str, str]:
        """Answers as long as the process does."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["health"], responses={503: {"description": "A stream is not live."}})
    def readyz(response: Response) -> dict[str, Any]:
        """Whether every stream is live."""
        states = {report.name: report.state for report in service.reports()}
        is_ready = all(state == "live" for state in states.values())
        response.status_code = 200 if is_ready else 503
        return {"status": "ready" if is_ready else "not ready", "streams": states}

    @app.get("/metrics", tags=["health"], response_class=Response)
    def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
