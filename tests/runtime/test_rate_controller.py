"""The rate controller on a simulated clock, with a scripted machine: what issue 7 asks of it, case by case."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from sam3_stream.runtime.rate_controller import RateController
from sam3_stream.runtime.rate_records import Observation
from sam3_stream.runtime.rate_settings import RateSettings
from sam3_stream.runtime.shared_load import SharedLoad
from tests.support.rate_simulation import RESOLUTIONS, Script, Stream, constant, simulate, steps

SETTINGS = RateSettings(target_fps=30, resolutions=RESOLUTIONS, max_latency_s=0.3)
FULL_QUALITY = "448x256, every frame"
LOADS = (0.3, 0.6, 1.0, 1.3, 1.6, 2.0, 2.6, 3.3, 4.0, 5.0, 6.0, 7.0, 8.0)


def run(script: Script, duration_s: float, settings: RateSettings = SETTINGS, seed: int = 0) -> Stream:
    stream = Stream(settings, script, seed)
    simulate([stream], duration_s)
    return stream


def assert_rate(stream: Stream, start_s: float, end_s: float, source_fps: float = math.inf) -> None:
    """Every 10 s window from 2 s after `start_s` on is within 3% of what is asked for or possible."""
    window_s = start_s + 2.0
    while window_s + 10.0 <= end_s:
        feasible = stream.feasible_fps(window_s, window_s + 10.0)
        wanted = min(stream.settings.target_fps, stream.script.source_fps, source_fps, feasible)
        assert stream.fps(window_s, window_s + 10.0) == pytest.approx(wanted, rel=0.03), f"from {window_s} s"
        window_s += 0.25


def assert_calm(stream: Stream, start_s: float, end_s: float) -> None:
    """No more than 2 changes of the setting in any 10 s."""
    changes_s = [time_s for time_s, _ in stream.rungs[1:] if start_s <= time_s < end_s]
    for first_s in changes_s:
        within = sum(first_s <= time_s < first_s + 10.0 for time_s in changes_s)
        assert within <= 2, f"{within} changes from {first_s:.2f} s on"


def assert_in_time(stream: Stream, start_s: float, end_s: float) -> None:
    """From the second frame after `start_s` on, none is later than the limit."""
    begun = [frame for frame in stream.emitted if start_s <= frame.started_s < end_s]
    late = [frame for frame in begun[1:] if frame.latency_s > stream.settings.max_latency_s]
    assert not late, f"{len(late)} frames too late, the first at {late[0].started_s:.2f} s"


def assert_all(stream: Stream, bounds_s: Iterable[float]) -> None:
    starts = list(bounds_s)
    for start_s, end_s in pairwise(starts):
        assert_rate(stream, start_s, end_s)
        assert_calm(stream, start_s, end_s)
        assert_in_time(stream, start_s, end_s)


@pytest.mark.parametrize("load", LOADS)
def test_constant_load_is_held_from_the_start(load: float) -> None:
    assert_all(run(Script(load=constant(load)), 22.0), (0.0, 22.0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("load", [1.0, 1.6, 2.6, 4.0, 6.0, 8.0])
def test_noise_of_30_percent_neither_costs_frames_nor_makes_it_flap(load: float, seed: int) -> None:
    assert_all(run(Script(load=constant(load), noise=0.3), 32.0, seed=seed), (0.0, 32.0))


def test_noise_with_outliers_of_several_times_the_mean_is_held_too() -> None:
    script = Script(load=constant(2.6), noise=0.3, heavy_tail=True)
    assert_all(run(script, 42.0, seed=1), (0.0, 42.0))


@pytest.mark.parametrize(("factor", "noise"), [(4.0, 0.0), (4.0, 0.3), (8.0, 0.0)])
def test_step_of_the_load_and_back(factor: float, noise: float) -> None:
    stream = run(Script(load=steps((0.0, 1.0), (15.0, factor), (35.0, 1.0)), noise=noise), 52.0)

    assert_all(stream, (0.0, 15.0, 35.0, 52.0))
    assert str(stream.setting_at(14.9)) == FULL_QUALITY
    assert str(stream.setting_at(34.9)) != FULL_QUALITY
    assert str(stream.setting_at(40.0)) == FULL_QUALITY


def test_jumps_to_the_right_setting_instead_of_groping() -> None:
    stream = run(Script(load=steps((0.0, 1.0), (15.0, 4.0))), 45.0)

    assert len(stream.rungs) == 2, stream.rungs
    assert stream.rungs[1][0] < 15.5


def test_ramp_of_the_load_up_and_down() -> None:
    stream = run(Script(load=lambda time_s: max(0.8, 5.0 - abs(time_s - 30.0) / 5.0)), 60.0)

    assert_rate(stream, 0.0, 60.0)
    assert_in_time(stream, 0.0, 60.0)
    assert str(stream.setting_at(59.9)) == FULL_QUALITY


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_twenty_objects_in_place_of_two(noise: float) -> None:
    stream = run(Script(objects=steps((0.0, 2), (15.0, 20), (35.0, 2)), noise=noise), 52.0)

    assert_all(stream, (0.0, 15.0, 35.0, 52.0))
    assert str(stream.setting_at(34.9)) != FULL_QUALITY
    assert str(stream.setting_at(40.0)) == FULL_QUALITY


@pytest.mark.parametrize("load", [1.0, 2.0])
def test_gaps_of_400_ms_in_the_source_are_made_up_for(load: float) -> None:
    script = Script(source_fps=60.0, gaps=lambda time_s: time_s % 2.0 < 0.4, load=constant(load), noise=0.1)
    assert_all(run(script, 42.0), (0.0, 42.0))


def test_bursts_after_gaps_are_held_in_time() -> None:
    """A network that holds frames back for 400 ms every 2.5 s and then delivers them all at once."""
    stream = run(Script(burst_every_s=2.5, load=constant(1.6)), 42.0)

    assert_rate(stream, 0.0, 42.0)
    assert_calm(stream, 0.0, 42.0)
    assert_in_time(stream, 0.0, 42.0)


@pytest.mark.parametrize("phase_s", [0.0, 0.011, 0.02])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_second_stream_joins_and_leaves(noise: float, phase_s: float) -> None:
    shared = SharedLoad()
    first = Stream(SETTINGS, Script(noise=noise), 1, shared)
    second = Stream(SETTINGS, Script(noise=noise, starts_s=20.0 + phase_s, ends_s=40.0), 2, shared)
    simulate([first, second], 57.0)

    assert_all(first, (0.0, 20.0, 40.0, 57.0))
    assert_all(second, (20.0, 40.0))
    assert str(first.setting_at(19.9)) == str(first.setting_at(45.0)) == FULL_QUALITY
    in_the_middle = {str(first.setting_at(39.0)), str(second.setting_at(39.0))}
    assert in_the_middle != {FULL_QUALITY}


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_impossible_target_gets_the_highest_rate_that_the_limits_allow_and_is_told(noise: float) -> None:
    settings = replace(SETTINGS, max_skip=1, min_resolution=192)
    stream = run(Script(load=constant(6.0), noise=noise), 42.0, settings, seed=3)

    assert_all(stream, (0.0, 42.0))
    assert str(stream.setting_at(41.0)) == "320x192, 1 of 2 frames"
    assert [reason for _, reason in stream.changes if "out of reach" in reason]
    assert stream.emitted[-1].decision.impossible
    feasible = stream.script.feasible_fps(settings, 41.0)
    assert stream.emitted[-1].decision.admit_fps == pytest.approx(feasible, rel=0.08)


def test_impossible_target_gets_within_reach_again() -> None:
    settings = replace(SETTINGS, max_skip=1)
    stream = run(Script(load=steps((0.0, 6.0), (15.0, 1.0))), 30.0, settings)

    assert [reason for _, reason in stream.changes if "within reach again" in reason]
    assert str(stream.setting_at(20.0)) == FULL_QUALITY
    assert_rate(stream, 15.0, 30.0)


def test_surplus_source_frames_are_decimated_evenly_and_counted() -> None:
    stream = run(Script(source_fps=30.0), 20.0, replace(SETTINGS, target_fps=20.0))

    assert_rate(stream, 0.0, 20.0)
    assert stream.decimator.dropped == pytest.approx(200, abs=2)
    arrivals_s = [frame.started_s for frame in stream.emitted]
    gaps_s = [later - earlier for earlier, later in pairwise(arrivals_s)]
    assert max(gaps_s) == pytest.approx(2 / 30, abs=0.001)


def test_source_slower_than_the_target_is_the_measure() -> None:
    stream = run(Script(source_fps=10.0, load=constant(2.5)), 20.0)

    assert_rate(stream, 0.0, 20.0, source_fps=10.0)
    assert str(stream.setting_at(19.0)) == FULL_QUALITY, "2.5 times the load still leaves time at 10 fps"


@pytest.mark.parametrize(
    ("give_up", "load", "expected"),
    [(("resolution", "skip"), 2.0, "256x160, every frame"), (("skip", "resolution"), 1.8, "448x256, 1 of 2 frames")],
)
def test_levers_are_given_up_in_the_order_of_the_user(give_up: tuple[str, ...], load: float, expected: str) -> None:
    settings = replace(SETTINGS, give_up=give_up)
    assert str(run(Script(load=constant(load)), 12.0, settings).setting_at(11.0)) == expected


def test_a_skip_pattern_that_saves_nothing_is_not_used() -> None:
    """Carrying takes half of a step here, and again half before each step that follows a skipped frame."""
    settings = replace(SETTINGS, min_resolution=256)
    stream = run(Script(load=constant(1.6), carry_s=0.011), 22.0, settings)

    assert str(stream.setting_at(21.0)) == "448x256, 1 of 3 frames"
    assert_all(stream, (0.0, 22.0))


def test_detection_interval_is_a_lever() -> None:
    settings = replace(SETTINGS, detection_intervals=(1, 2, 4, 8))
    stream = run(Script(detect_s=0.02), 22.0, settings)

    assert_all(stream, (0.0, 22.0))
    setting = stream.setting_at(21.0)
    assert setting.resolution == RESOLUTIONS[0]
    detections = [frame.decision.detect for frame in stream.emitted if frame.time_s > 12.0]
    assert sum(detections) == pytest.approx(len(detections) / setting.detection_interval, abs=1)
    assert setting.detection_interval > 1


def test_never_more_skipped_in_a_row_and_never_smaller_than_the_user_allows() -> None:
    settings = replace(SETTINGS, max_skip=2, min_resolution=224)
    stream = run(Script(load=steps((0.0, 1.0), (5.0, 8.0), (15.0, 2.0)), noise=0.3), 25.0, settings)

    skipped = longest = 0
    for frame in stream.emitted:
        skipped = 0 if frame.decision.action == "track" else skipped + 1
        longest = max(longest, skipped)
    assert longest == 2
    assert {setting.resolution for _, setting in stream.rungs} <= {(448, 256), (384, 224)}


def test_file_without_latency_limit_loses_no_frame_and_keeps_to_the_target() -> None:
    settings = replace(SETTINGS, max_latency_s=math.inf)
    controller = RateController(settings)
    now_s, arrived_s, tracked = 0.0, 0.0, 0
    for frame in range(600):
        decision = controller.decide(now_s, arrived_s, waiting=2, prompted=frame == 0)
        assert decision.action != "drop"
        assert decision.admit_fps == 30
        started_s = arrived_s = now_s  # the next one comes into the full channel as this one leaves it
        now_s += 0.060 if decision.action == "track" else 0.003
        tracked += decision.action == "track"
        controller.observe(_observation(started_s, now_s, decision.action == "track", decision.setting.resolution))
    assert 30 <= 600 / now_s <= 45, "not slower than asked for, and no worse than it must be"
    assert tracked > 200


def test_one_odd_frame_changes_no_setting() -> None:
    stream = run(Script(load=lambda time_s: 6.0 if 10.0 <= time_s < 10.03 else 1.0), 20.0)

    assert [str(setting) for _, setting in stream.rungs] == [FULL_QUALITY]
    assert_in_time(stream, 10.03, 20.0)


def test_prompted_frame_is_always_tracked() -> None:
    stream = run(Script(load=constant(6.0)), 10.0)
    decisions = [stream.controller.decide(10.0, 9.0, waiting=5, prompted=True) for _ in range(5)]
    assert {decision.action for decision in decisions} == {"track"}


def test_slow_prompts_do_not_count_as_load() -> None:
    stream = run(Script(), 5.0)
    for number in range(6):
        stream.controller.decide(5.0 + number, 5.0 + number, prompted=True)
        seen = _observation(5.0 + number, 5.5 + number, True, RESOLUTIONS[0])
        stream.controller.observe(replace(seen, prompted=True))
    assert stream.controller.decide(11.0, 11.0).reason is None
    assert str(stream.controller.setting) == FULL_QUALITY


def test_every_change_says_why() -> None:
    stream = run(Script(load=steps((0.0, 1.0), (8.0, 4.0), (16.0, 1.0))), 24.0)

    assert [time_s for time_s, _ in stream.changes] == [time_s for time_s, _ in stream.rungs[1:]]
    down, up = stream.changes[0][1], stream.changes[-1][1]
    assert down.startswith("overload (2 objects")
    assert "load x4.0" in down
    assert "448x256, every frame -> 256x160" in down
    assert up.startswith("room again")
    assert up.endswith(f"-> {FULL_QUALITY}")


def test_same_observations_give_the_same_decisions() -> None:
    script = Script(load=steps((0.0, 1.0), (5.0, 5.0)), noise=0.3)
    first, second = (run(script, 12.0, seed=7) for _ in range(2))
    assert [frame.decision for frame in first.emitted] == [frame.decision for frame in second.emitted]


def test_stages_side_by_side_count_by_the_busiest() -> None:
    """Encoder and tracker in threads of their own, 25 ms each: 30 fps fit, though a frame takes 50 ms."""
    controller = RateController(SETTINGS)
    for frame in range(90):
        arrived_s = frame / 30
        decision = controller.decide(arrived_s, arrived_s, prompted=frame == 0)
        assert decision.action == "track"
        seen = _observation(arrived_s, arrived_s + 0.05, True, decision.setting.resolution)
        controller.observe(replace(seen, service_s={"encoder": 0.025, "memory_tracker": 0.025}))
    assert str(controller.setting) == FULL_QUALITY


def _observation(started_s: float, finished_s: float, tracked: bool, resolution: tuple[int, int]) -> Observation:
    return Observation(
        arrived_s=started_s,
        started_s=started_s,
        finished_s=finished_s,
        service_s={"model": finished_s - started_s},
        state="tracked" if tracked else "propagated",
        resolution=resolution if tracked else None,
        objects=1,
    )
