"""Viewers on bad lines, crowds of them, and those that vanish."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time

import aioice.ice
import httpx
import psutil
import pytest
from aiortc import RTCPeerConnection, RTCSessionDescription

from sam3_stream.config.preview import PreviewConfig
from sam3_stream.transport.webrtc import session
from sam3_stream.transport.webrtc.candidates import offer_only
from sam3_stream.transport.webrtc.viewer import ViewerTrack
from tests.server.test_preview import Served
from tests.server.test_webrtc import SDP, Watching
from tests.support.clips import write_clip
from tests.support.udp_relay import UdpRelay, port_in, with_candidate, without_candidates
from tests.support.webrtc_viewers import Viewers
from tests.transport.edges import eventually


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.setattr(aioice.ice, "CONSENT_INTERVAL", 0.5)  # who vanishes is missed after 6 s and not after 33 s
    offer_only(["127.0.0.1"])
    clip = write_clip(tmp_path / "clip.mp4", frames=30, size=(640, 360), fps=12)
    stream = {"name": "clip", "source": {"type": "file", "path": str(clip)}}
    served = Served(PreviewConfig.model_validate({"streams": [stream], "preview": {"max_viewers": 24}}))
    yield served
    served.close()


class WatchingFromAfar(Watching):
    """A WHEP client behind a relay."""

    def __init__(self, loss: float, delay_s: float) -> None:
        super().__init__()
        self._line = loss, delay_s
        self.relay: UdpRelay | None = None

    async def begin(self, url: str, name: str) -> None:
        self.peer.addTransceiver("video", direction="recvonly")
        self.peer.on("track", lambda track: asyncio.ensure_future(self._take(track)))
        await self.peer.setLocalDescription(await self.peer.createOffer())
        offer = without_candidates(self.peer.localDescription.sdp)
        async with httpx.AsyncClient(base_url=url) as client:
            said = await client.post(f"/whep/{name}", content=offer, headers=SDP)
        assert said.status_code == 201, said.text
        self.location = said.headers["location"]
        self.relay = UdpRelay(port_in(said.text), *self._line)
        answer = with_candidate(said.text, await self.relay.open())
        await self.peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))


def test_video_goes_on_over_a_line_that_is_long_and_loses_packets(served):
    async def watch() -> tuple[list[int], UdpRelay]:
        watching = WatchingFromAfar(0.05, 0.1)
        await watching.begin(served.url, "clip")
        counts = []
        for _ in range(100):  # aiortc shows pictures once it has a whole key frame
            if watching.pictures:
                break
            await asyncio.sleep(0.1)
        for _ in range(8):
            await asyncio.sleep(1)
            counts.append(len(watching.pictures))
        async with httpx.AsyncClient(base_url=served.url) as client:
            await client.delete(watching.location)
        await watching.peer.close()
        watching.relay.close()
        return counts, watching.relay

    counts, relay = asyncio.run(watch())
    assert relay.lost > 5, "else this shows nothing"
    assert counts[-1] - counts[0] > 7 * 12 / 2, "more than half of the pictures come, lost packets and all"
    assert counts[-1] - counts[-4] > 0, "to the end"


def what_there_is() -> dict[str, int]:
    """Of what a viewer could leave behind, in this process."""
    gc.collect()
    # Not isinstance, which asks what it is given: some of torch's objects warn when asked anything.
    kept = [each for each in gc.get_objects() if issubclass(type(each), (asyncio.Task, RTCPeerConnection, ViewerTrack))]
    return {
        "tasks": sum(type(each) is asyncio.Task and not each.done() for each in kept),
        "peers": sum(type(each) is RTCPeerConnection for each in kept),
        "tracks": sum(type(each) is ViewerTrack for each in kept),
        "descriptors": psutil.Process().num_fds(),
        # Without those of the pools that asyncio keeps for its next blocking call.
        "threads": sum(not each.name.startswith("asyncio_") for each in threading.enumerate()),
    }


def test_who_never_comes_keeps_no_place(served, monkeypatch):
    monkeypatch.setattr(session, "_CONNECT_TIMEOUT_S", 0.5)

    async def offer_and_go() -> None:
        peer = RTCPeerConnection()
        peer.addTransceiver("video", direction="recvonly")
        await peer.setLocalDescription(await peer.createOffer())
        async with httpx.AsyncClient(base_url=served.url) as client:
            offer = without_candidates(peer.localDescription.sdp)
            assert (await client.post("/whep/clip", content=offer, headers=SDP)).status_code == 201
        await peer.close()

    before = what_there_is()
    asyncio.run(offer_and_go())
    assert_nothing_is_left(before, timeout_s=10)


def test_of_twenty_viewers_one_stalls_and_one_vanishes_and_nobody_else_notices(served, tmp_path):
    httpx.get(f"{served.url}/livez")
    before = what_there_is()
    groups = [Viewers(served.url, "clip", count, tmp_path / f"{count}") for count in (18, 1)]
    stalled = Viewers(served.url, "clip", 1, tmp_path / "stalled")
    many, vanished = groups
    try:
        for each in (many, stalled, vanished):
            eventually(lambda each=each: min(each.counts()) > 12, timeout_s=60)
        stalled.process.send_signal(signal.SIGSTOP)
        vanished.kill()
        had = many.counts()
        eventually(lambda: all(now > then + 36 for now, then in zip(many.counts(), had, strict=True)), timeout_s=30)
        had = stalled.counts()[0]
        stalled.process.send_signal(signal.SIGCONT)
        eventually(lambda: stalled.counts()[0] > had + 12, timeout_s=30)
    finally:
        for each in (many, stalled, vanished):
            each.kill()
    assert_nothing_is_left(before)


def assert_nothing_is_left(before: dict[str, int], timeout_s: float = 30.0) -> None:
    """Wait until there is no more than there was."""
    deadline_s = time.monotonic() + timeout_s
    left = what_there_is()
    while any(left[what] > before[what] for what in before) and time.monotonic() < deadline_s:
        time.sleep(0.2)
        left = what_there_is()
    assert all(left[what] <= before[what] for what in before), f"before {before}, after {left}"


def test_fifty_that_come_and_go_leave_nothing_behind(served):
    async def come_and_go(times: int) -> None:
        for number in range(times):
            watching = Watching()
            await watching.begin(served.url, "clip")
            await watching.until(1)
            if number % 2:
                async with httpx.AsyncClient(base_url=served.url) as client:
                    await client.delete(watching.location)
            await watching.peer.close()

    asyncio.run(come_and_go(50))  # until the allocator has what it needs
    time.sleep(1)
    before, memory = what_there_is(), psutil.Process().memory_info().rss
    asyncio.run(come_and_go(50))
    assert_nothing_is_left(before)
    assert psutil.Process().memory_info().rss - memory < 20e6, "each leaves less than 400 kB behind"
