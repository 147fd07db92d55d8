"""Holds 30 fps on one core while a second process takes that core for 10 of every 30 seconds.

A clip of DAVIS at 854x480 is looped as a live source at 30 fps: decoded, tracked and metered, all on one core. The
other process spins on the same core at the same priority. The table has frames a second over windows of 10 s (one
begins every second from 5 s on), how old frames are when they come out, and on how many of them the model ran; and the
same without rate control, where the newest frame is taken whenever the model is free.

The small SAM 3 checkpoint has random weights: its masks mean nothing, its structure and its time are what they are.

usage: OMP_NUM_THREADS=1 python benchmarks/rate_control.py DAVIS_ROOT [--models lite sam3] [--seconds 120]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2

from sam3_stream.config.rate import RateConfig
from sam3_stream.core.prompts import BoxPrompt
from sam3_stream.core.records import Frame, RunHeader, StreamInfo
from sam3_stream.models.protocols import VideoModel
from sam3_stream.runtime.pipeline import Pipeline
from sam3_stream.stages.decoder import open_source
from sam3_stream.stages.decoder.realtime import RealtimeSource
from sam3_stream.stages.encoder import ImageEncoder
from sam3_stream.stages.memory_tracker import MemoryTracker, RateControlledTracker, RateGate

HERE = Path(__file__).parent
FPS, EVERY_S, BUSY_S, WINDOW_S, SETTLED_S = 30, 30.0, 10.0, 10.0, 5.0


def write_clip(root: Path, sequence: str, path: Path) -> BoxPrompt:
    """Encode a sequence as H.264; the box around its object on the first frame."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=FPS, options={"preset": "veryfast", "crf": "23"})
        jpegs = sorted((root / "JPEGImages" / sequence).glob("*.jpg"))
        stream.height, stream.width = cv2.imread(str(jpegs[0])).shape[:2]
        stream.pix_fmt = "yuv420p"
        for number, jpeg in enumerate(jpegs):
            frame = av.VideoFrame.from_ndarray(cv2.imread(str(jpeg)), format="bgr24").reformat(format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    mask = cv2.imread(str(sorted((root / "Annotations" / sequence).glob("*.png"))[0]), cv2.IMREAD_GRAYSCALE)
    x, y, width, height = cv2.boundingRect((mask > 127).astype("uint8"))
    return BoxPrompt(x0=x, y0=y, x1=x + width, y1=y + height)


class LoopedClip:
    """Decodes a clip again and again, with time going on, until it has lasted long enough."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._frames = path, round(seconds * FPS)
        with_info = open_source(path)
        self.info: StreamInfo = replace(with_info.info, time_base=Fraction(1, FPS))
        with_info.close()

    def __iter__(self) -> Iterator[Frame]:
        number = 0
        while True:
            source = open_source(self._path)
            for frame in source:
                if number == self._frames:
                    source.close()
                    return
                yield replace(frame, sequence=number, pts=number, time_base=Fraction(1, FPS), start_pts=0)
                number += 1
            source.close()

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Out:
    """One frame that came out."""

    at_s: float
    age_s: float
    state: str
    height: int
    share: float


def spin(began_s: float, core: int) -> None:
    """Take the core for the last third of every period."""
    os.sched_setaffinity(0, {core})
    while True:
        into_s = (time.monotonic() - began_s) % EVERY_S
        if into_s < EVERY_S - BUSY_S:
            time.sleep(EVERY_S - BUSY_S - into_s)


def play(model: VideoModel, clip: Path, box: BoxPrompt, seconds: float, target_fps: float | None) -> dict[str, Any]:
    """Play the clip into the model; what came out, and what did not."""
    source, tracker = RealtimeSource(LoopedClip(clip, seconds)), MemoryTracker(model, [box])
    gate = None
    if target_fps is None:
        pipeline = Pipeline(source, [ImageEncoder(model), tracker], header=RunHeader("", ""), policy="latest")
    else:
        gate = RateGate(RateConfig(target_fps=target_fps), model, live=True, stream_id="clip")
        stages = [RateControlledTracker(tracker, gate)]
        pipeline = Pipeline(source, stages, header=RunHeader("", ""), policy="latest", on_demand=True)
    began_s = time.monotonic()
    core = min(os.sched_getaffinity(0))
    other = multiprocessing.get_context("spawn").Process(target=spin, args=(began_s, core), daemon=True)
    other.start()
    came: list[Out] = []
    for each in pipeline:
        rate = each.rate
        size = rate.resolution if rate is not None else each.resolution or (0, 0)
        age_s = time.time() - (each.frame.capture_time_s or 0.0)
        share = 1.0 if rate is None else rate.tracked / rate.of
        came.append(Out(time.monotonic() - began_s, age_s, each.state, size[1], share))
    other.terminate()
    other.join()
    return {"out": came, "dropped": {} if gate is None else dict(gate.dropped), "changes": gate.changes if gate else 0}


def windows(came: list[Out], seconds: float) -> list[float]:
    """Frames a second of every window."""
    starts = [SETTLED_S + step for step in range(int(seconds - WINDOW_S - SETTLED_S) + 1)]
    return [sum(start <= out.at_s < start + WINDOW_S for out in came) / WINDOW_S for start in starts]


def describe(name: str, played: dict[str, Any], seconds: float) -> dict[str, Any]:
    came = [out for out in played["out"] if out.at_s >= SETTLED_S]
    fps = windows(played["out"], seconds)
    ages = sorted(out.age_s for out in came)
    row = {
        "run": name,
        "fps_min": min(fps),
        "fps_median": statistics.median(fps),
        "fps_max": max(fps),
        "age_ms_median": 1000 * ages[len(ages) // 2],
        "age_ms_p99": 1000 * ages[int(0.99 * len(ages))],
        "age_ms_max": 1000 * ages[-1],
        "model_ran_on": sum(out.state == "tracked" for out in came) / len(came),
        "changes": played["changes"],
        "dropped": played["dropped"],
    }
    print(
        f"{name:<18}{row['fps_min']:9.1f}{row['fps_median']:9.1f}{row['fps_max']:9.1f}{row['age_ms_median']:10.0f}"
        f"{row['age_ms_p99']:9.0f}{row['age_ms_max']:9.0f}{100 * row['model_ran_on']:9.0f}%{row['changes']:9}"
        f"  {row['dropped']}",
        flush=True,
    )
    return row


def draw(path: Path, title: str, runs: dict[str, dict[str, Any]], seconds: float) -> None:
    """Load, frames a second, settings and age over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (fps, setting, age) = pyplot.subplots(3, 1, sharex=True, figsize=(9, 7), layout="constrained")
    fps.set_title(title)
    for axes in (fps, setting, age):
        for start in range(int(EVERY_S - BUSY_S), int(seconds), int(EVERY_S)):
            axes.axvspan(start, min(seconds, start + BUSY_S), color="tab:red", alpha=0.12, lw=0)
        axes.grid(alpha=0.3)
    for name, played in runs.items():
        came: list[Out] = played["out"]
        counts = [sum(second <= out.at_s < second + 1 for out in came) for second in range(int(seconds))]
        fps.step([second + 0.5 for second in range(int(seconds))], counts, where="mid", label=name)
        age.plot([out.at_s for out in came], [1000 * out.age_s for out in came], lw=0.7, label=name)
    held = runs["30 fps asked for"]["out"]
    setting.plot([out.at_s for out in held], [out.height for out in held], label="height of the model's picture, px")
    shares = setting.twinx()
    shares.plot([out.at_s for out in held], [100 * out.share for out in held], color="tab:green", lw=1)
    shares.set_ylabel("model runs on, % of frames", color="tab:green")
    shares.set_ylim(0, 105)
    setting.set_ylim(bottom=0)
    setting.legend(loc="lower left")
    fps.set_ylabel("frames in each second")
    fps.set_ylim(0, 40)
    fps.legend(loc="lower left")
    age.set_ylabel("age, ms")
    age.set_yscale("log")
    age.set_xlabel("seconds (red: the other process takes the core)")
    figure.savefig(path, dpi=100)


def load_model(name: str, folder: Path) -> VideoModel:
    """`lite`, or the small SAM 3 checkpoint, on one thread."""
    if name == "lite":
        from sam3_stream.models.lite import load_lite

        return load_lite(threads=1)
    import sys

    import torch

    sys.path.insert(0, str(HERE.parent))
    from sam3_stream.models.sam3 import load_sam3
    from tests.support.sam3_checkpoints import calibrated_model

    torch.set_num_threads(1)
    calibrated_model().save_pretrained(folder / "sam3")
    return load_sam3(folder / "sam3", device="cpu", warmup=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--models", nargs="+", default=["lite", "sam3"], choices=["lite", "sam3"])
    parser.add_argument("--sequence", default="cows")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--core", type=int, default=0, help="the core that all runs on")
    arguments = parser.parse_args()
    free_s = min(arguments.seconds, EVERY_S + SETTLED_S)
    os.sched_setaffinity(0, {arguments.core})
    cv2.setNumThreads(1)
    head = ("fps min", "median", "max", "age ms", "p99", "max", "model on", "changes")
    print(f"{'10 s windows':<18}" + "".join(f"{each:>{10 if each == 'age ms' else 9}}" for each in head))
    with tempfile.TemporaryDirectory() as scratch:
        clip = Path(scratch) / "clip.mp4"
        box = write_clip(arguments.root, arguments.sequence, clip)
        for name in arguments.models:
            model = load_model(name, Path(scratch))
            runs = {
                "30 fps asked for": play(model, clip, box, arguments.seconds, FPS),
                "no rate asked for": play(model, clip, box, free_s, None),
            }
            rows = [
                describe(f"{name}, rate held", runs["30 fps asked for"], arguments.seconds),
                describe(f"{name}, free", runs["no rate asked for"], free_s),
            ]
            result = HERE / "results" / f"rate_control_{name}.json"
            result.write_text(json.dumps({"rows": rows, "seconds": arguments.seconds}, indent=1) + "\n")
            draw(HERE / f"rate_control_{name}.png", f"{name}, 854x480 at 30 fps, one core", runs, arguments.seconds)


if __name__ == "__main__":
    main()
