"""Serves an application until it is told to stop."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sam3_stream.core.errors import OutputError

_HEADERS_TIMEOUT_S = 10.0
_SHUTDOWN_S = 3


class ImpatientProtocol(H11Protocol):
    """Cuts connections on which a request's headers do not come: uvicorn would hold them for ever."""

    _cut_at: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._cut_at is not None:
            self._cut_at.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        waits = self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE
        if waits and self._cut_at is None:
            self._cut_at = self.loop.call_later(_HEADERS_TIMEOUT_S, self._cut)
        elif not waits and self._cut_at is not None:
            self._cut_at.cancel()
            self._cut_at = None

    def _cut(self) -> None:
        self._cut_at = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        OutputError: The address cannot be listened on.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OutputError(f"cannot listen on {host}:{port}: {error.strerror}; take another port or host") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address to listen on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make_server(app: Callable[..., Any]) -> uvicorn.Server:
    """A server for the application; `run` it with sockets, set `should_exit` to stop."""
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        lifespan="on",
    )
    return uvicorn.Server(config)
