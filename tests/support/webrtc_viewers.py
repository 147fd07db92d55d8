"""WHEP viewers in a process of their own, which can be stopped or killed: URL, stream's name, how many.

Prints what each has got so far, a JSON list a line, several times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
from aiortc import RTCPeerConnection, RTCSessionDescription

SDP = {"content-type": "application/sdp"}


async def count(track, counts: list[int], number: int) -> None:
    with contextlib.suppress(Exception):
        while True:
            await track.recv()
            counts[number] += 1


async def watch(client: httpx.AsyncClient, name: str, counts: list[int], number: int) -> RTCPeerConnection:
    peer = RTCPeerConnection()
    peer.addTransceiver("video", direction="recvonly")
    peer.on("track", lambda track: asyncio.ensure_future(count(track, counts, number)))
    await peer.setLocalDescription(await peer.createOffer())
    said = await client.post(f"/whep/{name}", content=peer.localDescription.sdp, headers=SDP)
    said.raise_for_status()
    await peer.setRemoteDescription(RTCSessionDescription(said.text, "answer"))
    return peer


async def main(url: str, name: str, viewers: int) -> None:
    counts, peers = [0] * viewers, []
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for number in range(viewers):
            peers += [await watch(client, name, counts, number)]
    while True:
        print(json.dumps(counts), flush=True)
        await asyncio.sleep(0.2)


class Viewers:
    """The process, as a test sees it."""

    def __init__(self, url: str, name: str, viewers: int, output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.webrtc_viewers", url, name, str(viewers)], stdout=file
            )
        self._viewers = viewers

    def counts(self) -> list[int]:
        """How many pictures each has got."""
        lines = self._output.read_text().splitlines()
        return json.loads(lines[-1]) if lines and lines[-1].endswith("]") else [0] * self._viewers

    def kill(self) -> None:
        """Vanish without a goodbye."""
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
