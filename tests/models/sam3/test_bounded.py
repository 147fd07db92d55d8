"""Memory and work of a step do not depend on how many frames there have been."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from sam3_stream.models.sam3 import Sam3Model, load_sam3
from sam3_stream.models.sam3.session import Sam3Session
from tests.models.sam3.conftest import SaveCheckpoint, clicks, disc, frame_of, mask
from tests.support.sam3_checkpoints import moving_picture

OBJECTS = 8
LIFE = 40  # frames, after which an object is removed and a new one takes its place


@dataclass
class Observations:
    """What was seen frame by frame."""

    tokens: list[int] = field(default_factory=list)
    state_bytes: list[int] = field(default_factory=list)
    live_tensors: list[int] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_stream(model: Sam3Model, session: Sam3Session, frames: int) -> Observations:
    """Track objects that come and go; a new one every `LIFE / OBJECTS` frames."""
    seen = Observations()
    pictures = [moving_picture(number, 80, 48) for number in range(50)]
    next_id = 1
    with model.engine() as engine:
        keys = engine.network.tracker.memory_attention.layers[0].cross_attn_image.k_proj
    keys.register_forward_hook(
        lambda _module, inputs, _out: seen.tokens.__setitem__(-1, seen.tokens[-1] + inputs[0][..., 0].numel())
    )
    for number in range(frames):
        seen.tokens.append(0)
        prompts = []
        if number % (LIFE // OBJECTS) == 0:
            place = (5 + 7.0 * (next_id % 10), 5 + 9.0 * (next_id % 5))
            session.remove(next_id - OBJECTS)
            prompts = [clicks(next_id, place) if next_id % 2 else mask(next_id, disc(place, 8, 80, 48))]
            next_id += 1
        session.step(model.encode([frame_of(pictures[number % 50], number)])[0], prompts)
        seen.state_bytes.append(session.nbytes)
        seen.rss_bytes.append(rss_bytes())
        if number % 100 == 99:
            gc.collect()
            seen.live_tensors.append(sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects()))
    return seen


def slope(values: list[int], start: int) -> float:
    """Growth a frame, by least squares from frame `start` on."""
    return float(np.polyfit(np.arange(start, len(values)), values[start:], 1)[0])


@pytest.mark.parametrize("frames", [600, pytest.param(5000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_state_work_and_memory_stay_the_same(checkpoint: SaveCheckpoint, frames: int):
    model = load_sam3(checkpoint(), device="cpu", max_objects=OBJECTS, resolution=56)
    session = model.open_session(lambda: 1)
    seen = run_stream(model, session, frames)

    print(f"{frames} frames: {slope(seen.rss_bytes, frames // 2):.0f} bytes a frame over the second half")
    assert len(set(seen.state_bytes)) == 1
    period = LIFE
    early, late = seen.tokens[2 * period : 4 * period], seen.tokens[-2 * period :]
    assert sum(early) == sum(late) > 0
    assert len(set(seen.live_tensors[1:])) == 1
    # The allocator warms up in steps of megabytes, which a short run is too short to average out.
    assert seen.rss_bytes[-1] - seen.rss_bytes[frames // 2] < max(16 << 20, 1000 * frames // 2)
    assert frames < 5000 or slope(seen.rss_bytes, frames // 2) < 1000
    assert len(session.snapshot()["object_ids"]) == OBJECTS
