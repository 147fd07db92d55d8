from __future__ import annotations

import random
from itertools import pairwise

import pytest

from sam3_stream.runtime.decimator import Decimator


def admitted(times_s: list[float], rate_fps: float, decimator: Decimator | None = None) -> list[int]:
    decimator = decimator or Decimator()
    return [index for index, time_s in enumerate(times_s) if decimator.admit(time_s, rate_fps)]


@pytest.mark.parametrize(("source_fps", "target_fps"), [(30, 15), (30, 20), (25, 15), (60, 25), (29.97, 10), (24, 23)])
def test_thins_out_evenly(source_fps: float, target_fps: float) -> None:
    frames = admitted([index / source_fps for index in range(1000)], target_fps)

    assert len(frames) == pytest.approx(1000 * target_fps / source_fps, abs=2)
    steps = {later - earlier for earlier, later in pairwise(frames[1:])}
    assert max(steps) - min(steps) <= 1


def test_keeps_every_frame_of_a_slower_source() -> None:
    decimator = Decimator()
    numbers = random.Random(5)
    times_s = [index / 15 + numbers.uniform(-0.02, 0.02) for index in range(500)]
    assert len(admitted(times_s, 15.0, decimator)) == 500
    assert decimator.dropped == 0


def test_counts_what_it_drops() -> None:
    decimator = Decimator()
    kept = admitted([index / 30 for index in range(300)], 15.0, decimator)
    assert decimator.dropped == 300 - len(kept) == pytest.approx(150, abs=1)


def test_makes_up_for_a_gap_without_a_burst() -> None:
    times_s = [index / 60 for index in range(1200) if not 5.0 <= index / 60 < 5.4]
    kept_s = [times_s[index] for index in admitted(times_s, 30.0)]

    after = [time_s for time_s in kept_s if 5.4 <= time_s < 6.4]
    assert 35 <= len(after) <= 46, "faster than 30 a second, at most one and a half times"
    assert sum(0.0 <= time_s < 10.0 for time_s in kept_s) == pytest.approx(300, abs=3)


@pytest.mark.parametrize("jump_s", [-100.0, 1000.0])
def test_goes_on_after_stream_time_jumps(jump_s: float) -> None:
    decimator = Decimator()
    admitted([index / 30 for index in range(90)], 15.0, decimator)
    assert len(admitted([jump_s + 3 + index / 30 for index in range(90)], 15.0, decimator)) == pytest.approx(45, abs=1)


def test_measures_the_source() -> None:
    decimator = Decimator()
    assert decimator.source_fps is None
    admitted([index / 50 for index in range(200)], 15.0, decimator)
    assert decimator.source_fps == pytest.approx(50.0)
    admitted([4.0 + index / 20 for index in range(200)], 15.0, decimator)
    assert decimator.source_fps == pytest.approx(20.0)
