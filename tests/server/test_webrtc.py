"""WHEP and WHIP with aiortc as the other side, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from fractions import Fraction

import av
import httpx
import numpy as np
import pytest
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription

from sam3_stream.config.preview import PreviewConfig
from sam3_stream.transport.webrtc.candidates import offer_only
from tests.server.test_preview import CLICK, Served
from tests.support.clips import read_number, write_clip
from tests.support.udp_relay import without_candidates

SIZE = (320, 192)
SDP = {"content-type": "application/sdp"}


@pytest.fixture
def served(tmp_path):
    offer_only(["127.0.0.1"])
    clip = write_clip(tmp_path / "clip.mp4", frames=60, size=SIZE)
    streams = [
        {"name": "clip", "source": {"type": "file", "path": str(clip)}},
        {"name": "cam", "source": {"type": "whip"}},
    ]
    served = Served(PreviewConfig.model_validate({"streams": streams, "preview": {"max_viewers": 4}}))
    yield served
    served.close()


class Watching:
    """A WHEP client: pictures with their RTP time stamps, and the messages of the data channel."""

    def __init__(self) -> None:
        self.peer = RTCPeerConnection()
        self.pictures: list[tuple[int, np.ndarray]] = []
        self.messages: list[dict] = []
        self.location = ""

    async def begin(self, url: str, name: str) -> None:
        self.peer.addTransceiver("video", direction="recvonly")
        channel = self.peer.createDataChannel("results")
        channel.on("message", lambda text: self.messages.append(json.loads(text)))
        self.peer.on("track", lambda track: asyncio.ensure_future(self._take(track)))
        await self.peer.setLocalDescription(await self.peer.createOffer())
        async with httpx.AsyncClient(base_url=url) as client:
            said = await client.post(f"/whep/{name}", content=self.peer.localDescription.sdp, headers=SDP)
        assert said.status_code == 201, said.text
        self.location = said.headers["location"]
        await self.peer.setRemoteDescription(RTCSessionDescription(said.text, "answer"))

    async def _take(self, track) -> None:
        with contextlib.suppress(Exception):
            while True:
                frame = await track.recv()
                self.pictures.append((frame.pts, frame.to_ndarray(format="rgb24")))

    async def until(self, count: int) -> None:
        for _ in range(400):
            if len(self.pictures) >= count and len(self.messages) >= count:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{len(self.pictures)} pictures and {len(self.messages)} messages of {count}")


def test_video_comes_and_each_message_belongs_to_its_frame(served):
    """aiortc counts received stamps from the first, as the messages' differences do."""

    async def watch() -> Watching:
        watching = Watching()
        await watching.begin(served.url, "clip")
        await watching.until(40)
        async with httpx.AsyncClient(base_url=served.url) as client:
            assert (await client.delete(watching.location)).status_code == 200
            assert (await client.delete(watching.location)).status_code == 404
        await watching.peer.close()
        return watching

    watching = asyncio.run(watch())
    by_stamp = {message["rtp_timestamp"]: message for message in watching.messages if message["rtp_timestamp"]}
    # Which message belongs to the first picture is not known; one offset must fit all.
    numbers = {pts: read_number(picture) for pts, picture in watching.pictures}
    shown = {stamp: _number_of(message["frame"]) for stamp, message in by_stamp.items()}
    offsets = [stamp - pts for stamp in list(shown)[:3] for pts in numbers]
    fits = [sum(shown.get(pts + offset) == number for pts, number in numbers.items()) for offset in offsets]
    assert max(fits) >= 25, "with the right offset, stamps and burned-in numbers agree"


def _number_of(sequence: int) -> int:
    """The clip's frame that forth and back shows as the stream's frame of this number."""
    place = sequence % 118
    return place if place < 60 else 118 - place


def test_late_viewers_get_a_key_frame_and_all_that_leave_leave_nothing_behind(served):
    async def come_and_go() -> None:
        for _ in range(8):
            watching = Watching()
            await watching.begin(served.url, "clip")
            await watching.until(2)
            await watching.peer.close()
            async with httpx.AsyncClient(base_url=served.url) as client:
                await client.delete(watching.location)

    asyncio.run(come_and_go())
    stream = served.service.preview_stream("clip")
    for _ in range(100):
        running = [each.name for each in threading.enumerate() if "rendition" in each.name]
        if not running:
            break
        threading.Event().wait(0.05)
    assert running == []
    stream.broadcast._drop_cancelled()
    assert stream.broadcast._subscriptions == []


def test_there_are_no_more_peers_than_allowed(served):
    async def crowd() -> tuple[int, str]:
        crowd = [Watching() for _ in range(4)]
        for each in crowd:
            await each.begin(served.url, "clip")
        one_more = RTCPeerConnection()
        one_more.addTransceiver("video", direction="recvonly")
        await one_more.setLocalDescription(await one_more.createOffer())
        async with httpx.AsyncClient(base_url=served.url) as client:
            said = await client.post("/whep/clip", content=one_more.localDescription.sdp, headers=SDP)
            for each in crowd:
                await client.delete(each.location)
        for each in [*(each.peer for each in crowd), one_more]:
            await each.close()
        return said.status_code, said.headers.get("retry-after", "")

    assert asyncio.run(crowd()) == (503, "10")


class Camera(MediaStreamTrack):
    """A grey picture, 20 times a second."""

    kind = "video"

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    async def recv(self) -> av.VideoFrame:
        await asyncio.sleep(0.05)
        frame = av.VideoFrame.from_ndarray(np.full((120, 160, 3), 128, np.uint8), format="rgb24")
        frame.pts, frame.time_base = self._count * 4500, Fraction(1, 90_000)
        self._count += 1
        return frame


def test_a_shared_camera_becomes_a_stream_that_is_tracked_and_watched(served):
    async def share() -> tuple[int, int, int, tuple[int, int]]:
        peer = RTCPeerConnection()
        peer.addTrack(Camera())
        await peer.setLocalDescription(await peer.createOffer())
        async with httpx.AsyncClient(base_url=served.url, timeout=20) as client:
            said = await client.post("/whip/cam", content=peer.localDescription.sdp, headers=SDP)
            await peer.setRemoteDescription(RTCSessionDescription(said.text, "answer"))
            second = await client.post("/whip/cam", content=peer.localDescription.sdp, headers=SDP)
            made = await client.post("/api/v1/streams/cam/prompts", json=CLICK)
            watching = Watching()
            await watching.begin(served.url, "cam")
            await watching.until(5)
            await client.delete(watching.location)
            await client.delete(said.headers["location"])
        await watching.peer.close()
        await peer.close()
        return said.status_code, second.status_code, made.status_code, watching.pictures[-1][1].shape[:2]

    assert asyncio.run(share()) == (201, 409, 201, (120, 160))


@pytest.mark.parametrize(("path", "status"), [("/whip/clip", 409), ("/whep/none", 404), ("/whep/clip", 422)])
def test_what_is_no_offer_is_refused(served, path, status):
    assert httpx.post(served.url + path, content="v=0", headers=SDP).status_code == status
    assert httpx.post(f"{served.url}/whep/clip", content="v=0").status_code == 415


def test_candidates_may_be_told_later(served):
    """As by clients that post their offer before they know where they are."""

    async def watch() -> tuple[int, int, int]:
        watching = Watching()
        watching.peer.addTransceiver("video", direction="recvonly")
        watching.peer.createDataChannel("results").on("message", lambda text: watching.messages.append(text))
        watching.peer.on("track", lambda track: asyncio.ensure_future(watching._take(track)))
        await watching.peer.setLocalDescription(await watching.peer.createOffer())
        offer = watching.peer.localDescription.sdp
        told = [line for line in offer.splitlines() if line.startswith(("a=mid", "a=candidate", "a=end-of"))]
        fragment = {"content-type": "application/trickle-ice-sdpfrag"}
        async with httpx.AsyncClient(base_url=served.url) as client:
            said = await client.post("/whep/clip", content=without_candidates(offer), headers=SDP)
            session = said.headers["location"]
            refused = await client.patch(session, content="a=candidate:nonsense", headers=fragment)
            taken = await client.patch(session, content="\r\n".join(told), headers=fragment)
            await watching.peer.setRemoteDescription(RTCSessionDescription(said.text, "answer"))
            await watching.until(3)
            await client.delete(session)
            over = await client.patch(session, content="\r\n".join(told), headers=fragment)
        await watching.peer.close()
        return refused.status_code, taken.status_code, over.status_code

    assert asyncio.run(watch()) == (422, 204, 404)
