"""Health and metrics over HTTP: is it alive, is it ready, how is each stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from sam3_stream.core.stream_status import StreamReport
from sam3_stream.server.metrics import make_registry
from sam3_stream.server.serving import listen


def health_router(reports: Callable[[], Sequence[StreamReport]], encoder_queue: Callable[[], int]) -> APIRouter:
    """What every server of streams answers.

    * ``/livez``: 200 as long as the process answers.
    * ``/readyz``: 200 when every stream is live, else 503; the body says how each one is.
    * ``/metrics``: everything that is known of each stream, for Prometheus.

    Args:
        reports: Gives the state of every stream.
        encoder_queue: Gives the number of frames that wait for the shared encoder.
    """
    routes = APIRouter(tags=["health"])
    registry = make_registry(reports, encoder_queue)

    @routes.get("/livez")
    async def livez() -> dict[str, str]:
        """Answers as long as the process does."""
        return {"status": "alive"}

    @routes.get("/readyz", responses={503: {"description": "A stream is not live, or there is none."}})
    def readyz(response: Response) -> dict[str, Any]:
        """Whether every stream is live."""
        states = {report.name: report.state for report in reports()}
        is_ready = bool(states) and all(state == "live" for state in states.values())
        response.status_code = 200 if is_ready else 503
        return {"status": "ready" if is_ready else "not ready", "streams": states}

    @routes.get("/metrics", response_class=Response)
    def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return routes


def health_app(reports: Callable[[], Sequence[StreamReport]], encoder_queue: Callable[[], int]) -> FastAPI:
    """`health_router` as an application, and ``/streams``: everything that is known of each stream, as JSON."""
    app = FastAPI(title="sam3_stream", docs_url=None, redoc_url=None)
    app.include_router(health_router(reports, encoder_queue))

    @app.get("/streams")
    def streams() -> list[dict[str, Any]]:
        return [_described(report) for report in reports()]

    return app


class HealthServer:
    """Serves an application in a thread, until the end of the ``with`` block.

    Args:
        app: What to serve.
        host: Address to listen on.
        port: Port to listen on; a free one when 0.

    Raises:
        OutputError: The address cannot be listened on.

    Attributes:
        port: The port it listens on.
    """

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(app, log_level="warning", access_log=False, ws="none", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="sam3_stream-health", daemon=True)

    def __enter__(self) -> HealthServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


def _described(report: StreamReport) -> dict[str, Any]:
    dropped = {f"{place}: {reason}": count for (place, reason), count in report.dropped.items()}
    return {**asdict(report), "dropped": dropped}
