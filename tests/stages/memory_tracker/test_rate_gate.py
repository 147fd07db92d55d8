"""A gate holds the rate: every frame comes out once, says how old its masks are, and prompts win."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from sam3_stream.config.rate import RateConfig
from sam3_stream.core.clock import SimulatedClock, SystemClock
from sam3_stream.core.errors import ConfigError, DecodeError
from sam3_stream.core.prompts import BoxPrompt, Prompt
from sam3_stream.core.records import EncodedFrame, Frame, TrackedFrame
from sam3_stream.models.fake import FakeModel
from sam3_stream.runtime.channel import Cancelled, Channel
from sam3_stream.stages.memory_tracker import MemoryTracker, RateControlledTracker, RateGate
from tests.support.frames import blank_frame

SIZE = (128, 96)
BOX = BoxPrompt(x0=10, y0=20, x1=30, y1=40)


class CostlyModel(FakeModel):
    """Takes time on a simulated clock, by the pixels of the resolution, once enough frames wait for it."""

    def __init__(self, clock: SimulatedClock, full_s: float) -> None:
        self.clock = clock
        self.full_s = full_s
        self.gate: RateGate | None = None
        self.last = False

    def encode(self, frames: Sequence[Frame], resolution: tuple[int, int] | None = None) -> list[EncodedFrame]:
        while self.gate is not None and not self.last and self.gate.waiting < 2:
            time.sleep(0.0005)  # what waits must not depend on how threads are scheduled
        assert resolution is not None
        self.clock.sleep(self.full_s * resolution[0] * resolution[1] / (SIZE[0] * SIZE[1]))
        return super().encode(frames, resolution)

    def frames(self, count: int) -> Iterator[Frame]:
        for sequence in range(count):
            yield blank_frame(sequence, SIZE, fps=30)
        self.last = True


def track_file(
    full_s: float, count: int, config: RateConfig, prompts: Sequence[Prompt] = (BOX,)
) -> tuple[list[TrackedFrame], RateGate, SimulatedClock]:
    """What comes out of a file of so many frames, with a model that takes so long at full resolution."""
    clock = SimulatedClock()
    model = CostlyModel(clock, full_s)
    gate = model.gate = RateGate(config, model, live=False, stream_id="clip", clock=clock)
    outbox: Channel[TrackedFrame] = Channel(10_000)
    RateControlledTracker(MemoryTracker(model, prompts), gate).run(model.frames(count), outbox)
    outbox.close()
    return list(outbox), gate, clock


def check_ages(results: Sequence[TrackedFrame]) -> None:
    """Every state and age is right, and masks are those of the tracked frame."""
    age = 0
    for tracked in results:
        age = 0 if tracked.state == "tracked" else age + 1
        assert tracked.mask_age == age
        assert tracked.rate is not None
        assert (tracked.resolution is not None) == (tracked.state == "tracked")


def test_a_file_comes_out_whole_and_unchanged_when_the_model_is_quick_enough():
    results, gate, _ = track_file(0.01, 60, RateConfig(target_fps=30))
    assert [each.frame.sequence for each in results] == list(range(60))
    assert {each.state for each in results} == {"tracked"}
    assert {each.rate.resolution for each in results if each.rate} == {SIZE}
    assert gate.changes == 0


def test_a_slow_model_runs_on_fewer_frames_evenly_and_the_target_is_reached():
    results, gate, clock = track_file(0.2, 400, RateConfig(target_fps=30))
    assert [each.frame.sequence for each in results] == list(range(400))
    check_ages(results)
    tracked_at = [each.frame.sequence for each in results if each.state == "tracked"]
    gaps = np.diff(tracked_at[-20:])
    assert gaps.min() >= gaps.max() - 1 >= 1
    assert results[-1].rate is not None
    assert results[-1].rate.resolution != SIZE
    assert 400 / clock.now_s > 28
    assert gate.changes <= 4
    assert sum(gate.dropped.values()) == 0


def test_limits_are_kept_and_said_to_be_too_narrow(caplog):
    config = RateConfig(target_fps=30, min_resolution=72, max_skip=1)
    with caplog.at_level("INFO"):
        results, _, _ = track_file(0.5, 120, config)
    check_ages(results)
    assert max(each.mask_age for each in results) == 1
    assert results[-1].rate is not None
    assert results[-1].rate.resolution == (96, 72)
    assert not results[-1].rate.reachable
    assert any("out of reach" in record.message and "clip" in record.message for record in caplog.records)


def test_held_masks_stay_where_they_were():
    results, _, _ = track_file(0.5, 60, RateConfig(target_fps=30, carry="held"))
    states = {each.state for each in results}
    assert states == {"tracked", "held"}
    for before, after in itertools.pairwise(results):
        if after.state == "held":
            assert np.array_equal(before.objects[0].mask, after.objects[0].mask)


def test_a_prompt_is_never_left_to_a_skipped_frame():
    later = [BoxPrompt(x0=40, y0=20, x1=60, y1=40, time_s=sequence / 30) for sequence in (50, 51, 52, 53)]
    results, _, _ = track_file(0.5, 80, RateConfig(target_fps=30), [BOX, *later])
    assert any(each.state == "propagated" for each in results[40:50])
    for number, sequence in enumerate((50, 51, 52, 53), start=2):
        assert results[sequence].state == "tracked"
        assert [each.object_id for each in results[sequence].objects] == list(range(1, number + 1))
    check_ages(results)


def test_a_resolution_limit_that_leaves_nothing_is_refused():
    with pytest.raises(ConfigError, match="min_resolution 500 leaves none"):
        track_file(0.01, 5, RateConfig(target_fps=30, min_resolution=500))


class LiveModel(FakeModel):
    """As slow as it is told to be, in real time."""

    def __init__(self) -> None:
        self.full_s = 0.0

    def encode(self, frames: Sequence[Frame], resolution: tuple[int, int] | None = None) -> list[EncodedFrame]:
        time.sleep(self.full_s)
        return super().encode(frames, resolution)


def camera(model: LiveModel, fps: int, seconds: float) -> Iterator[Frame]:
    """A real-time source; the model needs 100 ms in its second half."""
    started_s = time.monotonic()
    for sequence in range(round(fps * seconds)):
        time.sleep(max(0.0, started_s + sequence / fps - time.monotonic()))
        if sequence > fps * seconds / 2:
            model.full_s = 0.1
        yield blank_frame(sequence, SIZE, fps)


def test_a_live_stream_is_thinned_out_evenly_and_goes_on_when_the_model_gets_slow():
    model = LiveModel()
    gate = RateGate(RateConfig(target_fps=20), model, live=True, clock=SystemClock())
    outbox: Channel[TrackedFrame] = Channel(1000)
    RateControlledTracker(MemoryTracker(model, [BOX]), gate).run(camera(model, 40, 3.0), outbox)
    outbox.close()
    results = list(outbox)
    sequences = [each.frame.sequence for each in results]
    assert sequences == sorted(set(sequences))
    assert len(results) + sum(gate.dropped.values()) == 120
    assert gate.dropped["decimated"] >= 50
    assert {each.state for each in results[-8:]} == {"tracked", "propagated"}


def test_an_error_of_the_source_arrives_behind_its_frames():
    def broken() -> Iterator[Frame]:
        yield blank_frame(0, SIZE)
        raise DecodeError("the file is cut")

    gate = RateGate(RateConfig(target_fps=30), FakeModel(), live=False)
    outbox: Channel[TrackedFrame] = Channel(10)
    with pytest.raises(DecodeError, match="the file is cut"):
        RateControlledTracker(MemoryTracker(FakeModel(), [BOX]), gate).run(broken(), outbox)
    assert len(outbox) == 1


def test_the_thread_that_takes_frames_in_ends_when_nobody_wants_them():
    gate = RateGate(RateConfig(target_fps=30), FakeModel(), live=False)
    outbox: Channel[TrackedFrame] = Channel(1)
    outbox.cancel()
    endless = (blank_frame(sequence, SIZE) for sequence in iter(lambda: 0, 1))
    with pytest.raises(Cancelled):
        RateControlledTracker(MemoryTracker(FakeModel(), [BOX]), gate).run(endless, outbox)
    deadline_s = time.monotonic() + 10
    while any(thread.name == "sam3_stream-intake" for thread in threading.enumerate()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
