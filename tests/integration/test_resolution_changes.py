"""On real video the tracks live through changes of resolution and skipped frames."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from sam3_stream.config.rate import RateConfig
from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import MaskPrompt, ObjectPrompt
from sam3_stream.core.records import Frame, MaskArray, StreamInfo, TrackedFrame
from sam3_stream.models.lite import LiteModel
from sam3_stream.models.protocols import Resolution
from sam3_stream.runtime.channel import Channel
from sam3_stream.stages.decoder.realtime import RealtimeSource
from sam3_stream.stages.memory_tracker import MemoryTracker, RateControlledTracker, RateGate

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from davis_metrics import contour_accuracy, region_similarity

FPS = 25


def load(root: Path, sequence: str, count: int) -> tuple[list[Frame], list[MaskArray]]:
    """So many frames, played to the end and back as often as it takes, with their ground truth."""
    pictures = sorted((root / "JPEGImages" / sequence).glob("*.jpg"))
    there_and_back = [*pictures, *pictures[-2:0:-1]]
    frames, masks = [], []
    for number in range(count):
        path = there_and_back[number % len(there_and_back)]
        rgb = np.asarray(cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB), np.uint8)
        frames.append(Frame(sequence, number, number, Fraction(1, FPS), ArrayPicture(rgb)))
        annotation = root / "Annotations" / sequence / f"{path.stem}.png"
        masks.append(cv2.imread(str(annotation), cv2.IMREAD_GRAYSCALE) > 127)
    return frames, masks


def quality(model: LiteModel, frames: list[Frame], truths: list[MaskArray], sizes: list[Resolution]) -> float:
    """J&F in percent with the resolution changed every second; fails unless the object keeps its id throughout."""
    session, scores = model.open_session(lambda: 99), []
    prompt = ObjectPrompt(7, "p1", "it", np.zeros((0, 2), np.float32), np.zeros(0, np.bool_), mask=truths[0])
    for number, frame in enumerate(frames):
        size = sizes[number // FPS % len(sizes)]
        tracked = session.step(model.encode([frame], size)[0], [prompt] if number == 0 else [])
        assert tracked.resolution == size
        assert [(each.object_id, each.present) for each in tracked.objects] == [(7, True)]
        mask = tracked.objects[0].mask
        if number % 5 == 3:
            scores.append((region_similarity(mask, truths[number]) + contour_accuracy(mask, truths[number])) / 2)
    return 100 * statistics.mean(scores)


def compare(root: Path, sequence: str, seconds: int) -> None:
    model = LiteModel(threads=1)
    frames, truths = load(root, sequence, seconds * FPS)
    sizes = list(model.resolutions(frames[0].width, frames[0].height))
    changing = quality(model, frames, truths, [sizes[0], sizes[3], sizes[1], sizes[2]])
    lowest = quality(model, frames, truths, [sizes[-1]])
    print(f"{sequence}, {seconds} s: {changing:.1f} with a change every second, {lowest:.1f} at the lowest resolution")
    assert changing >= lowest - 3


@pytest.mark.data
def test_ids_and_quality_live_through_a_change_every_second(davis_root: Path):
    compare(davis_root, "blackswan", 4)


@pytest.mark.data
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sequence", ["blackswan", "camel", "cows", "goat", "car-roundabout"])
def test_ids_and_quality_live_through_twenty_changes(davis_root: Path, sequence: str):
    compare(davis_root, sequence, 20)


@pytest.mark.data
def test_a_real_model_holds_a_live_rate_and_says_what_it_did(davis_root: Path):
    frames, truths = load(davis_root, "blackswan", 75)
    gate = RateGate(RateConfig(target_fps=FPS, max_latency_ms=5000), model := LiteModel(threads=1), live=True)
    outbox: Channel[TrackedFrame] = Channel(100)
    clip = RealtimeSource(Clip(frames))
    RateControlledTracker(MemoryTracker(model, [MaskPrompt(mask=truths[0])]), gate).run(clip, outbox)
    outbox.close()
    came = list(outbox)
    sequences = [each.frame.sequence for each in came]
    assert sequences == sorted(set(sequences))
    assert len(came) + sum(gate.dropped.values()) == len(frames)
    offered = model.resolutions(frames[0].width, frames[0].height)
    age = 0
    for each in came:
        age = 0 if each.state == "tracked" else age + 1
        assert each.mask_age == age <= 4
        assert [(found.object_id, found.present) for found in each.objects] == [(1, True)]
        assert each.rate is not None
        assert each.rate.resolution in offered
        assert each.resolution == (each.rate.resolution if age == 0 else None)


class Clip:
    """Frames as a source."""

    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames
        self.info = StreamInfo(frames[0].width, frames[0].height, frames[0].time_base)

    def __iter__(self) -> Iterator[Frame]:
        return iter(self._frames)

    def close(self) -> None:
        pass
