"""The WebRTC peers of the server: how many there are, and who is who."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from fastapi import HTTPException

from sam3_stream.core.errors import NotFoundError
from sam3_stream.server.problems import busy
from sam3_stream.stages.sinks.preview_renderer import render
from sam3_stream.transport.webrtc.rendition import Renditions

SDP = "application/sdp"
FRAGMENT = "application/trickle-ice-sdpfrag"
_ANSWER_TIMEOUT_S = 10.0


class Peer(Protocol):
    """A viewer or a publisher."""

    async def answer(self, offer: str) -> str:
        """Answer an SDP offer."""

    async def add_candidates(self, fragment: str) -> None:
        """Take candidates that the peer tells after its offer."""

    async def close(self) -> None:
        """End the session."""


class Peers:
    """All peers, by stream and session.

    Args:
        most: How many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._peers: dict[tuple[str, str, str], Peer] = {}
        self._renditions: dict[str, tuple[object, Renditions]] = {}

    def count(self, kind: str, stream: str) -> int:
        """How many peers of a kind, ``whep`` or ``whip``, a stream has."""
        return sum(key[:2] == (kind, stream) for key in self._peers)

    def renditions(self, stream: Any) -> Renditions:
        """A stream's renditions."""
        known = self._renditions.get(stream.name)
        if known is None or known[0] is not stream:
            known = self._renditions[stream.name] = (stream, Renditions(stream.subscribe, render))
        return known[1]

    async def add(
        self, kind: str, stream: str, make: Callable[[Callable[[], None]], Peer], offer: str
    ) -> tuple[str, str]:
        """Make a peer and let it answer an offer.

        Args:
            kind: ``whep`` or ``whip``.
            stream: The stream's name.
            make: Makes the peer; given what it is to call when it has gone.
            offer: The SDP offer.

        Returns:
            The session's id and the SDP answer.
        """
        if len(self._peers) >= self._most:
            raise busy(f"{self._most} peers are connected; come back when one has gone", retry_after_s=10)
        session = secrets.token_urlsafe(16)
        key = (kind, stream, session)
        peer = self._peers[key] = make(lambda: self._forget(key))
        try:
            answer = await asyncio.wait_for(peer.answer(offer), _ANSWER_TIMEOUT_S)
        except TimeoutError:
            await peer.close()
            raise HTTPException(504, "the offer could not be answered in time; try again") from None
        return session, answer

    def get(self, kind: str, stream: str, session: str) -> Peer:
        """The peer of a session.

        Raises:
            NotFoundError: There is none of this id.
        """
        peer = self._peers.get((kind, stream, session))
        if peer is None:
            raise NotFoundError("there is no such session; it may have ended")
        return peer

    async def remove_stream(self, stream: str) -> None:
        """End all sessions of a stream."""
        await _all(peer.close() for key, peer in list(self._peers.items()) if key[1] == stream)
        self._renditions.pop(stream, None)

    def _forget(self, key: tuple[str, str, str]) -> None:
        self._peers.pop(key, None)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """End all sessions with the server."""
        yield
        await _all(peer.close() for peer in list(self._peers.values()))


async def _all(closing: Any) -> None:
    waiting: list[Awaitable[None]] = list(closing)
    await asyncio.gather(*waiting, return_exceptions=True)
