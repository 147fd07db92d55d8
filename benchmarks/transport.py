"""1080p frames through one edge: as a queue, over ipc and over tcp, raw and JPEG, beside a bare pyzmq loop.

The bare loop sends the same bytes, PUSH to PULL without copies, as many under way as the edge's window holds; with JPEG
both encode and decode. Producer and consumer are processes of their own; edge and bare loop take turns. Latency is that
of a frame at 30 frames a second, from `put` to `get`. The last table is a whole job, four processes beside one.

usage: python benchmarks/transport.py [--frames 300] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import zmq

from sam3_stream.core.records import Frame, RunHeader, StreamInfo
from sam3_stream.runtime.channel import Channel
from sam3_stream.stages.decoder.orientation import Orientation
from sam3_stream.stages.decoder.picture import VideoPicture
from sam3_stream.stages.decoder.wire_picture import RawPictures
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.pictures import JpegPictures
from sam3_stream.transport.receiver import ReceiverLink
from sam3_stream.transport.records import RecordCodec
from sam3_stream.transport.sender import SenderLink

RESULT = Path(__file__).parent / "results" / "transport.json"
SIZE = (1920, 1080)
WINDOW_MESSAGES = 8
INFO = StreamInfo(*SIZE, Fraction(1, 30))
LATENCY_FPS, LATENCY_FRAMES = 30, 60
CODECS: dict[str, Callable[[], Any]] = {"raw": RawPictures, "jpeg": JpegPictures}


def a_frame() -> Frame:
    """A smooth 1080p picture as a decoder gives it: yuv420p planes."""
    decoded = av.VideoFrame(*SIZE, "yuv420p")
    for plane in decoded.planes:
        rows = plane.buffer_size // plane.line_size
        pixels = np.frombuffer(memoryview(plane), np.uint8).reshape(rows, plane.line_size)
        pixels[:] = (np.arange(rows)[:, None] // 4 + np.arange(plane.line_size) // 4) % 200 + 20
    return Frame("0", 0, 0, Fraction(1, 30), VideoPicture(decoded, Orientation()), key_frame=False)


def paced(count: int, fps: float | None) -> Any:
    """Numbers up to `count`, as fast as possible or `fps` a second."""
    started_s = time.monotonic()
    for number in range(count):
        if fps is not None:
            time.sleep(max(0.0, started_s + number / fps - time.monotonic()))
        yield number


def edge_producer(address: str, encoding: str, count: int, fps: float | None) -> None:
    link = SenderLink(Endpoint(address), RecordCodec(CODECS[encoding]()), heartbeat_s=5, name="frames")
    link.wait_for_want()
    outbox, frame = link.begin(0, INFO, RunHeader("", "")), a_frame()
    for number in paced(count, fps):
        outbox.put(replace(frame, sequence=number, capture_time_s=time.time()))
    outbox.close()
    link.wait_for_want()
    link.stop()


def edge_consumer(address: str, encoding: str, count: int, fps: float | None, results: Any) -> None:
    codec = RecordCodec(CODECS[encoding]())
    link = ReceiverLink(Endpoint(address), codec, heartbeat_s=5, window_messages=WINDOW_MESSAGES, name="frames")
    inbox = link.begin(0)
    results.put(measure(inbox.get, lambda frame: frame.capture_time_s, count))
    link.say_farewell(5)
    link.stop()


def bare_producer(address: str, encoding: str, count: int, fps: float | None) -> None:
    socket = zmq.Context.instance().socket(zmq.PUSH)
    socket.sndhwm = WINDOW_MESSAGES // 2
    socket.bind(address)
    codec, picture = CODECS[encoding](), a_frame().picture
    for _ in paced(count, fps):
        _, buffers = codec.pack(picture)
        socket.send_multipart([str(time.time()).encode(), *buffers], copy=False)
    socket.close(linger=5000)
    zmq.Context.instance().term()


def bare_consumer(address: str, encoding: str, count: int, fps: float | None, results: Any) -> None:
    socket = zmq.Context.instance().socket(zmq.PULL)
    socket.rcvhwm = WINDOW_MESSAGES // 2
    socket.connect(address)
    layout, _ = CODECS[encoding]().pack(a_frame().picture)

    def get() -> float:
        sent, *buffers = socket.recv_multipart(copy=False)
        if encoding == "jpeg":
            CODECS[encoding]().unpack(layout, [buffer.buffer for buffer in buffers])
        return float(sent.bytes)

    results.put(measure(get, lambda sent: sent, count))
    socket.close(linger=0)


def measure(get: Callable[[], Any], sent_s: Callable[[Any], float], count: int) -> dict[str, float]:
    """Take so many frames; frames per second from the first to the last, and the median latency."""
    ages_s, first_s = [], 0.0
    for number in range(count):
        item = get()
        ages_s.append(time.time() - sent_s(item))
        if number == 0:
            first_s = time.monotonic()
    return {
        "fps": (count - 1) / (time.monotonic() - first_s),
        "latency_ms": statistics.median(ages_s[count // 10 :]) * 1000,
    }


def through_sockets(kind: str, address: str, encoding: str, count: int, fps: float | None) -> dict[str, float]:
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    producer, consumer = (edge_producer, edge_consumer) if kind == "edge" else (bare_producer, bare_consumer)
    processes = [
        spawn.Process(target=producer, args=(address, encoding, count, fps)),
        spawn.Process(target=consumer, args=(address, encoding, count, fps, results)),
    ]
    for process in processes:
        process.start()
    outcome: dict[str, float] = results.get(timeout=300)
    for process in processes:
        process.join()
    return outcome


def through_queue(count: int, fps: float | None) -> dict[str, float]:
    channel: Channel[Frame] = Channel(WINDOW_MESSAGES)
    frame = a_frame()

    def produce() -> None:
        for number in paced(count, fps):
            channel.put(replace(frame, sequence=number, capture_time_s=time.time()))

    thread = threading.Thread(target=produce)
    thread.start()
    outcome = measure(channel.get, lambda each: each.capture_time_s, count)
    thread.join()
    return outcome


def bench_edges(frames: int, rounds: int) -> list[dict[str, Any]]:
    rows = []
    queue = {"fps": through_queue(frames * 20, None)["fps"]}
    queue["latency_ms"] = through_queue(LATENCY_FRAMES, LATENCY_FPS)["latency_ms"]
    rows.append({"edge": "queue", "encoding": "as it is", "fps": queue["fps"], "latency_ms": queue["latency_ms"]})
    for transport in ("ipc", "tcp"):
        for encoding in CODECS:
            with tempfile.TemporaryDirectory() as folder:
                measured: dict[str, list[dict[str, float]]] = {"edge": [], "bare": []}
                latency_ms = {}
                for number in range(rounds):
                    for kind, outcomes in measured.items():
                        address = f"ipc://{folder}/{kind}{number}" if transport == "ipc" else free_tcp_address()
                        outcomes.append(through_sockets(kind, address, encoding, frames, None))
                for kind in measured:
                    address = f"ipc://{folder}/{kind}-paced" if transport == "ipc" else free_tcp_address()
                    paced_run = through_sockets(kind, address, encoding, LATENCY_FRAMES, LATENCY_FPS)
                    latency_ms[kind] = paced_run["latency_ms"]
            fps = {kind: statistics.median(each["fps"] for each in outcomes) for kind, outcomes in measured.items()}
            pairs = zip(measured["edge"], measured["bare"], strict=True)
            rows.append(
                {
                    "edge": transport,
                    "encoding": encoding,
                    "fps": fps["edge"],
                    "bare_fps": fps["bare"],
                    "ratio": statistics.median(edge["fps"] / bare["fps"] for edge, bare in pairs),
                    "latency_ms": latency_ms["edge"],
                    "bare_latency_ms": latency_ms["bare"],
                }
            )
            print_row(rows[-1])
    return rows


def bench_jobs(frames: int, rounds: int) -> dict[str, float]:
    """A whole job on a 1080p clip, masks and overlay, with the fake model: wall seconds, start-up included."""
    seconds: dict[str, list[float]] = {"one process": [], "four processes": []}
    with tempfile.TemporaryDirectory() as folder:
        clip = write_clip(Path(folder) / "clip.mp4", frames)
        for _ in range(rounds):
            for name, times in seconds.items():
                groups = {"decoder": "a", "encoder": "b", "memory_tracker": "c", "sinks": "d"}
                config = {
                    "source": {"path": str(clip)},
                    "model": {"name": "fake"},
                    "prompts": [{"type": "box", "x0": 600, "y0": 300, "x1": 900, "y1": 700}],
                    "sinks": [
                        {"type": "masks", "path": f"{folder}/out.jsonl"},
                        {"type": "overlay", "path": f"{folder}/out.mp4"},
                    ],
                    "force": True,
                    "processes": groups if name == "four processes" else {},
                }
                path = Path(folder) / "job.yaml"
                path.write_text(json.dumps(config))
                started_s = time.monotonic()
                program = "from sam3_stream.cli import main; main()"
                subprocess.run([sys.executable, "-c", program, "run", str(path), "--quiet"], check=True)
                times.append(time.monotonic() - started_s)
    return {name: frames / statistics.median(times) for name, times in seconds.items()}


def write_clip(path: Path, frames: int) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        picture = a_frame().picture.decoded
        for number in range(frames):
            picture.pts = number
            picture.time_base = Fraction(1, 30)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


def free_tcp_address() -> str:
    with zmq.Context.instance().socket(zmq.PUSH) as probe:
        return f"tcp://127.0.0.1:{probe.bind_to_random_port('tcp://127.0.0.1')}"


def print_row(row: dict[str, Any]) -> None:
    bare = "" if "ratio" not in row else f"{row['bare_fps']:9.0f} {row['ratio']:6.2f} {row['bare_latency_ms']:9.2f}"
    print(f"{row['edge']:6} {row['encoding']:9} {row['fps']:9.0f} {row['latency_ms']:8.2f} {bare}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{'edge':6} {'encoding':9} {'fps':>9} {'ms':>8} {'bare fps':>9} {'ratio':>6} {'bare ms':>9}")
    rows = bench_edges(options.frames, options.rounds)
    print_row(rows[0])
    jobs = bench_jobs(options.frames, options.rounds)
    print(", ".join(f"{name} {fps:.1f} fps" for name, fps in jobs.items()), "end to end, start-up included")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"size": SIZE, "edges": rows, "end_to_end_fps": jobs}, indent=2) + "\n")


if __name__ == "__main__":
    main()
