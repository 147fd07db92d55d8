"""A WHIP publisher: a peer whose video becomes a stream's pictures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import av
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack

from sam3_stream.core.errors import UsageError

_GONE = ("failed", "closed")


class Publisher:
    """One WHIP session.

    Args:
        push: Takes each picture; must not wait.
        on_gone: Called once when the publisher has gone, however that came about.
    """

    def __init__(self, push: Callable[[av.VideoFrame], None], *, on_gone: Callable[[], None]) -> None:
        self._push = push
        self._on_gone = on_gone
        self._peer = RTCPeerConnection()
        self._tasks: list[asyncio.Task[None]] = []
        self._peer.on("track", self._on_track)
        self._peer.on("connectionstatechange", self._on_state)

    async def answer(self, offer: str) -> str:
        """Answer an SDP offer, with all candidates.

        Raises:
            UsageError: It is no offer of video.
        """
        try:
            await self._peer.setRemoteDescription(RTCSessionDescription(sdp=offer, type="offer"))
        except Exception as error:  # aiortc raises whatever its parser stumbles over
            await self.close()
            raise UsageError(f"the SDP offer cannot be read ({type(error).__name__})") from error
        try:
            if not self._tasks:
                raise UsageError("expected an SDP offer to send video; it has no such section")
            await self._peer.setLocalDescription(await self._peer.createAnswer())
        except BaseException:
            await self.close()
            raise
        return str(self._peer.localDescription.sdp)

    async def close(self) -> None:
        """End the session. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await self._peer.close()
        on_gone, self._on_gone = self._on_gone, lambda: None
        on_gone()

    async def _on_state(self) -> None:
        if self._peer.connectionState in _GONE:
            await self.close()

    def _on_track(self, track: MediaStreamTrack) -> None:
        take = self._take_pictures if track.kind == "video" and not self._tasks else _discard
        self._tasks.append(asyncio.ensure_future(take(track)))

    async def _take_pictures(self, track: Any) -> None:
        with contextlib.suppress(MediaStreamError):
            while True:
                self._push(cast(av.VideoFrame, await track.recv()))


async def _discard(track: Any) -> None:
    """What nobody takes would pile up in the track."""
    with contextlib.suppress(MediaStreamError):
        while True:
            await track.recv()
