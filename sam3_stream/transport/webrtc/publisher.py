"""A WHIP publisher: a peer whose video becomes a stream's pictures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import av
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack

from sam3_stream.core.errors import UsageError
from sam3_stream.transport.webrtc.session import PeerSession


class Publisher(PeerSession):
    """One WHIP session.

    Args:
        push: Takes each picture; must not wait.
        on_gone: Called once when the publisher has gone, however that came about.
    """

    def __init__(self, push: Callable[[av.VideoFrame], None], *, on_gone: Callable[[], None]) -> None:
        super().__init__(on_gone)
        self._push = push
        self._tasks: list[asyncio.Task[None]] = []
        self._has_video = False
        self._peer.on("track", self._on_track)

    def _prepare(self) -> None:
        if not self._has_video:
            raise UsageError("expected an SDP offer to send video; it has no such section")

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _on_track(self, track: MediaStreamTrack) -> None:
        is_first_video = track.kind == "video" and not self._has_video
        self._has_video |= is_first_video
        take = self._take_pictures if is_first_video else _discard
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
