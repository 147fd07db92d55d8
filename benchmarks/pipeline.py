"""Frames per second through decoder, channels, a no-op model and the overlay sink, beside the shortest PyAV loop.

Both decode the same clip, draw the same object with supervision's annotators and encode with the same x264 settings; a
second pair only decodes, the clip eight times over. Each run is a process of its own, pinned to one core or to two, and
the pair takes turns.

usage: python benchmarks/pipeline.py [--rounds 5] [--clip CLIP]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import numpy as np
import supervision as sv

from sam3_stream import ImageEncoder, MemoryTracker, OverlaySink, Pipeline, RunHeader, VideoDecoder
from sam3_stream.cli.demo import demo_clip
from sam3_stream.core.records import EncodedFrame, Frame, TrackedFrame, TrackedObject
from sam3_stream.stages.sinks.mp4_writer import ENCODER, ENCODER_OPTIONS

RESULT = Path(__file__).parent / "results" / "pipeline.json"


def disc(height: int, width: int) -> np.ndarray:
    """An object of a common size: a disc a quarter of the picture's height across, in the middle."""
    rows, columns = np.ogrid[:height, :width]
    return (rows - height / 2) ** 2 + (columns - width / 2) ** 2 < (height / 8) ** 2


class StillModel:
    """Finds the same object on every frame and does no work for it."""

    name = "still"

    def __init__(self) -> None:
        self._objects: tuple[TrackedObject, ...] = ()

    def check_prompt(self, prompt) -> None:
        """There are no prompts."""

    def encode(self, frames: list[Frame]) -> list[EncodedFrame]:
        """Pass the frames on."""
        return [EncodedFrame(frame, None, (frame.width, frame.height)) for frame in frames]

    def open_session(self, new_object_id: Callable[[], int], max_objects: int | None = None) -> StillModel:
        """Be the session, too."""
        self._id = new_object_id()
        return self

    def step(self, encoded: EncodedFrame, prompts=()) -> TrackedFrame:
        """The same object as on every frame."""
        if not self._objects:
            mask = disc(encoded.frame.height, encoded.frame.width)
            self._objects = (TrackedObject(self._id, "p1", "disc", 1.0, mask),)
        return TrackedFrame(encoded.frame, self._objects)

    def close(self) -> None:
        """Nothing to free."""


def straight_overlay(clip: Path, out: Path) -> int:
    """Decode, draw and encode, with nothing in between."""
    tint = sv.MaskAnnotator(opacity=0.4, color_lookup=sv.ColorLookup.TRACK)
    outline = sv.PolygonAnnotator(thickness=2, color_lookup=sv.ColorLookup.TRACK)
    label = sv.LabelAnnotator(color_lookup=sv.ColorLookup.TRACK)
    frames = 0
    with av.open(str(clip)) as source, av.open(str(out), "w") as target:
        video = source.streams.video[0]
        video.thread_type = "AUTO"
        encoded = target.add_stream(ENCODER, rate=video.average_rate, options=ENCODER_OPTIONS)
        encoded.width, encoded.height, encoded.pix_fmt = video.width, video.height, "yuv420p"
        encoded.codec_context.time_base = video.time_base
        mask = disc(video.height, video.width)
        detections = sv.Detections(
            xyxy=sv.mask_to_xyxy(mask[None]), mask=mask[None], tracker_id=np.array([1]), confidence=np.array([1.0])
        )
        for frame in source.decode(video):
            scene = frame.to_ndarray(format="bgr24")
            scene = label.annotate(
                outline.annotate(tint.annotate(scene, detections), detections), detections, ["#1 disc 1.00"]
            )
            drawn = av.VideoFrame.from_ndarray(scene, format="bgr24")
            drawn.pts, drawn.time_base = frame.pts, frame.time_base
            target.mux(encoded.encode(drawn))
            frames += 1
        target.mux(encoded.encode(None))
    return frames


def pipeline_overlay(clip: Path, out: Path) -> int:
    """The same through the pipeline."""
    return sum(1 for _ in pipeline(clip, [OverlaySink(out, force=True)]))


def straight_decode(clip: Path, _: Path) -> int:
    """PyAV's own decode rate."""
    with av.open(str(clip)) as source:
        source.streams.video[0].thread_type = "AUTO"
        return sum(1 for _ in source.decode(video=0))


def pipeline_decode(clip: Path, _: Path) -> int:
    """The pipeline without a sink."""
    return sum(1 for _ in pipeline(clip, []))


def pipeline(clip: Path, sinks: list[OverlaySink]) -> Iterator[TrackedFrame]:
    model = StillModel()
    stages = [ImageEncoder(model), MemoryTracker(model)]
    return iter(Pipeline(VideoDecoder(clip), stages, header=RunHeader("clip", "still"), sinks=sinks))


WORK = {each.__name__: each for each in (straight_overlay, pipeline_overlay, straight_decode, pipeline_decode)}
PAIRS = {
    "decode, draw, encode": ("straight_overlay", "pipeline_overlay"),
    "decode": ("straight_decode", "pipeline_decode"),
}


def eight_times_over(clip: Path, out: Path) -> Path:
    """The clip's packets again and again, so that opening the file does not count."""
    with av.open(str(out), "w") as target:
        stream, offset = None, 0
        for _ in range(8):
            with av.open(str(clip)) as source:
                video = source.streams.video[0]
                stream = stream or target.add_stream_from_template(video)
                for packet in source.demux(video):
                    if packet.dts is not None:
                        packet.pts, packet.dts, packet.stream = packet.pts + offset, packet.dts + offset, stream
                        target.mux(packet)
                offset += video.duration
    return out


def measure_here(name: str, clip: Path, cores: int) -> None:
    """Do one kind of work in this process and print its frames per second."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    with tempfile.TemporaryDirectory() as folder:
        if "decode" in name:
            clip = eight_times_over(clip, Path(folder) / "clip.mp4")
        WORK[name](clip, Path(folder) / "warm.mp4")
        started_s = time.perf_counter()
        frames = WORK[name](clip, Path(folder) / "out.mp4")
        print(frames / (time.perf_counter() - started_s))


def measure(name: str, clip: Path, cores: int) -> float:
    command = [sys.executable, __file__, "--clip", str(clip), "--work", name, "--cores", str(cores)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clip", type=Path, default=demo_clip())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        measure_here(arguments.work, arguments.clip, arguments.cores)
        return
    rows = []
    print(f"{'':22} {'cores':>5} {'PyAV fps':>9} {'ours fps':>9} {'ratio':>6}   (medians of {arguments.rounds})")
    for cores in (1, 2):
        for title, names in PAIRS.items():
            rounds = [[measure(name, arguments.clip, cores) for name in names] for _ in range(arguments.rounds)]
            straight, ours = (statistics.median(column) for column in zip(*rounds, strict=True))
            ratio = statistics.median(b / a for a, b in rounds)
            rows.append({"work": title, "cores": cores, "pyav_fps": straight, "pipeline_fps": ours, "ratio": ratio})
            print(f"{title:22} {cores:5} {straight:9.1f} {ours:9.1f} {ratio:6.2f}")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"clip": arguments.clip.name, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
