from __future__ import annotations

import math

import pytest

from sam3_stream.core.errors import ConfigError
from sam3_stream.runtime.rate_settings import RateSettings, build_ladder
from sam3_stream.runtime.skip_pattern import SkipPattern

RESOLUTIONS = ((448, 256), (384, 224), (320, 192))


def test_ladder_goes_down_lever_by_lever() -> None:
    settings = RateSettings(target_fps=30, resolutions=RESOLUTIONS, detection_intervals=(1, 4), max_skip=2)
    assert [str(setting) for setting in build_ladder(settings)] == [
        "448x256, every frame",
        "448x256, every frame, detection every 4",
        "384x224, every frame, detection every 4",
        "320x192, every frame, detection every 4",
        "320x192, 3 of 4 frames, detection every 4",
        "320x192, 2 of 3 frames, detection every 4",
        "320x192, 1 of 2 frames, detection every 4",
        "320x192, 1 of 3 frames, detection every 4",
    ]


def test_a_lever_left_out_is_not_given_up() -> None:
    settings = RateSettings(target_fps=30, resolutions=RESOLUTIONS, give_up=("resolution",))
    assert {setting.of for setting in build_ladder(settings)} == {1}


def test_limits_shorten_the_ladder() -> None:
    settings = RateSettings(target_fps=30, resolutions=RESOLUTIONS, max_skip=0, min_resolution=200)
    assert [setting.resolution for setting in build_ladder(settings)] == [(448, 256), (384, 224)]
    assert {setting.of for setting in build_ladder(settings)} == {1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target_fps": 0}, "target_fps"),
        ({"target_fps": math.nan}, "target_fps"),
        ({"resolutions": ()}, "one resolution or more"),
        ({"detection_intervals": (0,)}, "detection intervals"),
        ({"max_skip": -1}, "max_skip"),
        ({"max_latency_s": 0.0}, "max_latency_ms"),
        ({"give_up": ("skip", "skip")}, "give_up"),
        ({"give_up": ("speed",)}, "detection, resolution, skip"),
        ({"min_resolution": 300}, "448x256"),
    ],
)
def test_says_what_is_wrong(changes: dict[str, object], words: str) -> None:
    arguments: dict[str, object] = {"target_fps": 30, "resolutions": RESOLUTIONS} | changes
    with pytest.raises(ConfigError, match=words):
        RateSettings(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("tracked", "of"), [(1, 1), (3, 4), (2, 3), (1, 2), (1, 3), (1, 5)])
def test_skip_pattern_is_even(tracked: int, of: int) -> None:
    pattern = SkipPattern()
    pattern.change(tracked, of)
    runs = []
    for _ in range(10 * of):
        runs.append(pattern.due)
        pattern.count(tracked=pattern.due)

    assert runs[0], "a change begins with a tracked frame"
    for start in range(len(runs) - of + 1):
        assert sum(runs[start : start + of]) == tracked


def test_a_frame_skipped_beyond_the_pattern_is_made_up_for() -> None:
    pattern = SkipPattern()
    pattern.change(1, 3)
    pattern.count(tracked=False)
    assert pattern.due
    assert pattern.skipped == 1
    pattern.count(tracked=True)
    assert not pattern.due
    assert pattern.skipped == 0
