"""Objects that concepts find are born and end by the hundred; state and work of a step stay the same."""

from __future__ import annotations

import gc
import os
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.models.sam3 import TrackerOptions, load_sam3
from sam3_stream.models.sam3.concept_options import ConceptOptions
from sam3_stream.models.sam3.detect_interval import DetectInterval
from tests.models.sam3.conftest import frame_of
from tests.support.sam3_checkpoints import moving_picture
from tests.support.sam3_concepts import phrases, save_concept_model

CAPACITY = 10
RESTLESS = AssociationConfig(
    score_threshold=0.5,
    new_score=0.5,
    track_match_iou=0.9,
    hot_start_ticks=6,
    hot_start_unmatched_ticks=3,
    hot_start_duplicate_ticks=4,
    expire_after_s=0.3,
    settle_ticks=3,
)


def rss_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def state_bytes(root, leave_out):
    """Bytes of everything that an object holds, tensors and arrays by their contents."""
    seen, pending, total = set(), [root], 0
    while pending:
        one = pending.pop()
        if id(one) in seen or isinstance(one, type) or callable(one) or one is leave_out:
            continue
        seen.add(id(one))
        total += one.nbytes if isinstance(one, torch.Tensor | np.ndarray) else 32
        if isinstance(one, dict):
            pending += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            pending += one
        elif isinstance(one, str | bytes):
            total += len(one)
        else:
            pending += [
                getattr(one, name, None) for name in (*getattr(one, "__slots__", ()), *getattr(one, "__dict__", ()))
            ]
    return total


@pytest.mark.parametrize("frames", [240, pytest.param(5000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])])
def test_state_work_and_memory_stay_the_same_over_hundreds_of_objects(tmp_path, frames):
    model = load_sam3(
        save_concept_model(tmp_path, resolution=56),
        device="cpu",
        dtype="fp32",
        options=TrackerOptions(max_objects=CAPACITY),
        concepts=ConceptOptions(association=RESTLESS, detect_interval=DetectInterval(frames=1), prompt_bank=None),
    )
    ids = count(1)
    session = model.open_session(lambda: next(ids))
    pictures = [moving_picture(number * 5, 80, 48) for number in range(40)]
    listed, retracted, live, tokens, sizes, rss, tensors = set(), 0, [], [], [], [], []
    with model.engine() as engine:
        layer = engine.network.tracker.memory_attention.layers[0].cross_attn_image
    layer.register_forward_hook(
        lambda _module, _inputs, options, _out: tokens.__setitem__(-1, tokens[-1] + options["key"].shape[0]),
        with_kwargs=True,
    )
    for number in range(frames):
        tokens.append(0)
        if number % 20 == 10:  # and phrases come and go as well
            session.remove_prompt("red cat")
        prompts = phrases("dog", "red cat") if number == 0 else phrases("red cat") if number % 20 == 0 else []
        result = session.step(model.encode([frame_of(pictures[number % 40], number)])[0], prompts)
        listed |= {tracked.object_id for tracked in result.objects}
        retracted += len(result.retracted)
        live.append(len(result.objects))
        rss.append(rss_bytes())
        if number % 20 == 19:
            gc.collect()
            sizes.append(state_bytes(session, model))
            tensors.append(sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects()))

    slope = float(np.polyfit(np.arange(frames // 2), rss[-(frames // 2) :], 1)[0])
    print(f"{frames} frames: {len(listed)} ids, {slope:.0f} bytes a frame over the second half")
    assert len(listed) > frames / 4, "objects come and go all the time"
    assert retracted > 10
    assert max(live) <= CAPACITY
    assert max(tokens) <= CAPACITY, "each object is attended to once a frame"
    half = len(sizes) // 2
    slack = CAPACITY * 128 * 4 * 4 * 4  # what the latest frame keeps of each object for a click on it
    assert max(sizes[half:]) <= max(sizes[1:half]) + slack
    assert max(tensors[half:]) <= max(tensors[1:half]) + CAPACITY
    # The allocator warms up in steps of megabytes, which a short run is too short to average out.
    assert rss[-1] - rss[frames // 2] < max(16 << 20, 1000 * frames // 2)
    assert frames < 5000 or slope < 1000
    lifecycle = session._concepts._planner.lifecycle.state()
    assert all(CAPACITY in value.shape or value.size == 2 for value in lifecycle.values())
