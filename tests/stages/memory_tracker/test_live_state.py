"""What a live stream keeps over a restart of the process, and what it does not take for its own."""

from __future__ import annotations

import contextlib

import pytest

from sam3_stream.core.clock import SimulatedClock
from sam3_stream.core.prompts import PointPrompt
from sam3_stream.stages.memory_tracker import LiveTracker
from sam3_stream.stages.memory_tracker.live_state import LiveState
from tests.stages.memory_tracker.test_live_tracker import MODEL, encode, frames, ids, track

CLICK = PointPrompt(x=20, y=20, name="door")


def run(path, model="fake", size=(80, 60)):
    return track(LiveTracker(MODEL, encode, state=LiveState(path, model)), frames(0, 5, size))


@pytest.fixture
def kept(tmp_path):
    path = tmp_path / "state.npz"
    track(LiveTracker(MODEL, encode, [CLICK], state=LiveState(path, "fake")), frames(0, 5))
    return path


def test_objects_go_on_with_their_ids(kept):
    assert [ids(each) for each in run(kept)] == [[1]] * 5


@pytest.mark.parametrize(("model", "size"), [("lite", (80, 60)), ("fake", (160, 120))])
def test_a_state_of_another_model_or_size_is_set_aside(kept, caplog, model, size):
    assert [ids(each) for each in run(kept, model, size)] == [[]] * 5
    assert "begins anew" in caplog.text
    assert kept.with_name("state.npz.unusable").exists()


def test_a_state_that_cannot_be_read_is_set_aside(kept, caplog):
    kept.write_bytes(kept.read_bytes()[:100])
    assert [ids(each) for each in run(kept)] == [[]] * 5
    assert "cannot be read" in caplog.text


def test_it_is_written_from_time_to_time_and_when_something_was_asked(tmp_path):
    clock, taken = SimulatedClock(), []
    state = LiveState(tmp_path / "s.npz", "fake", interval_s=30, clock=clock)
    state.begin((80, 60))

    def take():
        taken.append(clock.now_s)
        raise RuntimeError("far enough")

    for step, now in [(0, False), (10, False), (1, True), (29, False), (1, False)]:
        clock.sleep(step)
        with contextlib.suppress(RuntimeError):
            state.offer(1, take, now=now)
    assert taken == [0, 11, 41]
