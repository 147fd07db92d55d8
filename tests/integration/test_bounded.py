"""Memory does not grow with the length of the video, and neither does the work of a step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sam3_stream import (
    ImageEncoder,
    MasksSink,
    MemoryTracker,
    OverlaySink,
    Pipeline,
    PointPrompt,
    VideoDecoder,
    load_model,
    run_header,
)
from tests.support.clips import write_clip

GROWTH_LIMIT_BYTES_PER_FRAME = 1000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def slope_of_second_half(samples: list[tuple[int, int]]) -> float:
    """Bytes a frame, by least squares over the second half of the (frame, bytes) samples."""
    half = np.array(samples[len(samples) // 2 :], dtype=np.float64)
    return float(np.polyfit(half[:, 0], half[:, 1], 1)[0])


def memory_samples(clip: Path, out: Path, every: int) -> Iterator[tuple[int, int]]:
    model = load_model("lite")
    prompts = [PointPrompt(x=40, y=30, name="disc")]
    pipeline = Pipeline(
        VideoDecoder(clip),
        [ImageEncoder(model), MemoryTracker(model, prompts)],
        header=run_header(str(clip), model.name, prompts),
        sinks=[OverlaySink(out / "out.mp4"), MasksSink(out / "out.jsonl")],
    )
    with pipeline:
        for tracked in pipeline:
            if tracked.frame.sequence % every == 0:
                yield tracked.frame.sequence, resident_bytes()


@pytest.mark.parametrize("frames", [1500, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident set size from Linux's /proc")
def test_memory_is_flat(frames, tmp_path, record_property):
    clip = write_clip(tmp_path / "clip.mp4", frames=frames, gop=48)
    samples = list(memory_samples(clip, tmp_path, every=frames // 150))
    slope = slope_of_second_half(samples)
    record_property("bytes_per_frame", slope)
    print(f"{frames} frames: {slope:.0f} bytes a frame over the second half, {samples[-1][1] / 1e6:.0f} MB at the end")
    assert slope < GROWTH_LIMIT_BYTES_PER_FRAME
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == frames + 1
