"""Glass to glass on loopback: from a camera shared over WHIP, through the model, to a viewer over WHEP.

Each picture carries the time when it was made; the viewer reads it from what it has decoded. Camera and viewer are
aiortc in processes of their own, beside the server (`sam3-stream serve`, `lite` with one object): video is encoded and
decoded twice on the way, and aiortc's jitter buffer counts. The model's step is timed alone, on the same pictures.

usage: python benchmarks/webrtc.py [--seconds 30] [--fps 25]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.core.records import Frame
from sam3_stream.models.lite import load_lite
from tests.support.clips import draw_frame
from tests.support.preview_server import PreviewServer

RESULT = Path(__file__).parent / "results" / "webrtc.json"
SIZE = (640, 360)
CELL, BITS = 16, 40
TOP = SIZE[1] - CELL
SDP = {"content-type": "application/sdp"}
CONFIG = "streams: [{name: cam, source: {type: whip}}]\npreview: {port: 0}\n"


def draw(number: int) -> np.ndarray:
    """A picture with a moving disc and the time, in milliseconds, as black and white cells: RGB uint8 (360, 640, 3)."""
    picture = draw_frame(number % 400, SIZE)
    now_ms = int(time.monotonic() * 1000)
    for bit in range(BITS):
        picture[TOP:, bit * CELL : (bit + 1) * CELL] = 235 * (now_ms >> bit & 1)
    return picture


def age_ms(picture: np.ndarray) -> float:
    """How long ago a received picture was made."""
    cells = picture[TOP + CELL // 2, CELL // 2 : BITS * CELL : CELL].mean(axis=1) > 128
    return time.monotonic() * 1000 - sum(int(bit) << place for place, bit in enumerate(cells))


class Camera(MediaStreamTrack):
    """The pictures, as often as asked for."""

    kind = "video"

    def __init__(self, fps: float) -> None:
        super().__init__()
        self._fps = fps
        self._numbers = count()
        self._begin_s = time.monotonic()

    async def recv(self) -> av.VideoFrame:
        number = next(self._numbers)
        await asyncio.sleep(max(0.0, self._begin_s + number / self._fps - time.monotonic()))
        frame = av.VideoFrame.from_ndarray(draw(number), format="rgb24")
        frame.pts, frame.time_base = int(number * 90_000 / self._fps), Fraction(1, 90_000)
        return frame


async def negotiate(url: str, path: str, peer: RTCPeerConnection) -> None:
    """Offer, and take the answer."""
    await peer.setLocalDescription(await peer.createOffer())
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        said = await client.post(path, content=peer.localDescription.sdp, headers=SDP)
    said.raise_for_status()
    await peer.setRemoteDescription(RTCSessionDescription(said.text, "answer"))


def share(url: str, fps: float) -> None:
    """Share the camera until killed."""

    async def run() -> None:
        peer = RTCPeerConnection()
        peer.addTrack(Camera(fps))
        await negotiate(url, "/whip/cam", peer)
        await asyncio.Event().wait()

    asyncio.run(run())


async def watch(url: str, seconds: float) -> list[float]:
    """The age of each picture that comes, in milliseconds."""
    peer, ages = RTCPeerConnection(), []
    peer.addTransceiver("video", direction="recvonly")
    arrived: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    peer.on("track", arrived.set_result)
    await negotiate(url, "/whep/cam", peer)
    track = await arrived
    await track.recv()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        frame = await track.recv()
        ages.append(age_ms(frame.to_ndarray(format="rgb24")))
    await peer.close()
    return ages


def model_step_ms() -> float:
    """The median step of the model, encoder included, on the same pictures."""
    model, times = load_lite(), []
    session = model.open_session(count(2).__next__)
    mask = np.zeros(SIZE[::-1], np.bool_)
    mask[100:200, 200:300] = True
    for number in range(60):
        frame = Frame("0", number, number, Fraction(1, 25), ArrayPicture(draw(number)))
        begin_s = time.perf_counter()
        session.step(model.encode([frame])[0], [ObjectPrompt(1, "p1", "disc", mask=mask)] if number == 0 else [])
        times.append(time.perf_counter() - begin_s)
    return 1000 * statistics.median(times[10:])


def main() -> None:
    """Run it, print a table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--fps", type=float, default=25)
    options = parser.parse_args()
    step_ms = model_step_ms()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "preview.yaml"
        config.write_text(CONFIG)
        server = PreviewServer(str(config), state=Path(folder))
        camera = multiprocessing.get_context("spawn").Process(target=share, args=(server.url, options.fps), daemon=True)
        camera.start()
        try:
            while server.api("GET", "/streams")[0]["state"] != "live":
                time.sleep(0.1)
            server.api("POST", "/streams/cam/prompts", json={"type": "click", "x": 320, "y": 180})
            ages = asyncio.run(watch(server.url, options.seconds))
        finally:
            camera.kill()
            server.close()
    kept = sorted(ages[int(2 * options.fps) :])  # without the time until the buffers have filled
    median, p99 = statistics.median(kept), kept[int(0.99 * len(kept))]
    print(f"{len(ages) / options.seconds:.1f} fps of {options.fps:g}; model's step {step_ms:.0f} ms")
    print(f"glass to glass: median {median:.0f} ms, p99 {p99:.0f} ms, worst {kept[-1]:.0f} ms")
    print(f"less the model's step: median {median - step_ms:.0f} ms (aim 150), p99 {p99 - step_ms:.0f} ms (aim 300)")
    RESULT.write_text(
        json.dumps(
            {
                "fps": len(ages) / options.seconds,
                "asked_fps": options.fps,
                "model_step_ms": step_ms,
                "median_ms": median,
                "p99_ms": p99,
                "worst_ms": kept[-1],
                "frames": len(kept),
            },
            indent=2,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
