"""What a WHEP and a WHIP session have in common: an offer that is answered once, and an end that is told once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.sdp import candidate_from_sdp

from sam3_stream.core.errors import UsageError

_GONE = ("failed", "closed")
_MOST_CANDIDATES = 64
_CONNECT_TIMEOUT_S = 30.0  # who posts an offer and is never heard of again must not keep a place


class PeerSession:
    """One peer. Subclasses say what is sent or taken.

    Args:
        on_gone: Called once when the peer has gone, however that came about.
    """

    def __init__(self, on_gone: Callable[[], None]) -> None:
        self._on_gone: Callable[[], None] | None = on_gone
        self._peer = RTCPeerConnection()
        self._peer.on("connectionstatechange", self._on_state)
        self._candidates = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.Task[None] | None = None

    async def answer(self, offer: str) -> str:
        """Answer an SDP offer, with all candidates.

        Raises:
            UsageError: It is no offer of what this session is for.
        """
        try:
            await self._take_offer(offer)
            self._prepare()
            await self._peer.setLocalDescription(await self._peer.createAnswer())
            self._begin()
            self._deadline = asyncio.get_running_loop().call_later(_CONNECT_TIMEOUT_S, self._give_up)
        except BaseException:
            await self.close()
            raise
        return str(self._peer.localDescription.sdp)

    async def add_candidates(self, fragment: str) -> None:
        """Take the candidates that a peer tells after its offer.

        Args:
            fragment: As in RFC 8840, section 9.

        Raises:
            UsageError: It cannot be read, or there are too many.
        """
        mid, ended = "0", False
        for line in fragment.splitlines():
            name, _, value = line.strip().partition(":")
            if name == "a=mid":
                mid = value
            elif name == "a=candidate":
                await self._add_candidate(value, mid)
            ended |= name == "a=end-of-candidates"
        if ended:
            await self._peer.addIceCandidate(None)

    async def close(self) -> None:
        """End the session. Safe to call twice."""
        self._end()
        self._call_off_deadline()
        await self._peer.close()
        on_gone, self._on_gone = self._on_gone, None
        if on_gone is not None:
            on_gone()

    def _prepare(self) -> None:
        """Look at what has been offered, before it is answered; raise `UsageError` if it is not what it should be."""

    def _begin(self) -> None:
        """The answer is made."""

    def _end(self) -> None:
        """Let go of everything."""

    async def _take_offer(self, offer: str) -> None:
        try:
            await self._peer.setRemoteDescription(RTCSessionDescription(sdp=offer, type="offer"))
        except Exception as error:  # aiortc raises whatever its parser stumbles over
            raise UsageError(f"the SDP offer cannot be read ({type(error).__name__})") from error

    async def _add_candidate(self, text: str, mid: str) -> None:
        self._candidates += 1
        if self._candidates > _MOST_CANDIDATES:
            raise UsageError(f"expected at most {_MOST_CANDIDATES} candidates of a peer")
        try:
            candidate = candidate_from_sdp(text)
            candidate.sdpMid = mid
            await self._peer.addIceCandidate(candidate)
        except (AssertionError, ValueError) as error:
            raise UsageError("a candidate in the SDP fragment cannot be read") from error

    async def _on_state(self) -> None:
        if self._peer.connectionState in _GONE:
            await self.close()
        elif self._peer.connectionState == "connected":
            self._call_off_deadline()

    def _give_up(self) -> None:
        self._giving_up = asyncio.create_task(self.close())

    def _call_off_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
