"""The file job split into processes: the same results, whatever is killed on the way."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import av
import psutil
import pytest

from tests.support.clips import read_number, write_clip
from tests.support.group_runs import (
    FOUR_GROUPS,
    THREE_GROUPS,
    finish,
    group_processes,
    kill_group,
    names_of,
    rows,
    start_run,
    wait_until,
    write_job,
)

SIZE = (160, 120)
FRAMES = 200


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", frames=FRAMES, size=SIZE, audio=True)


@pytest.fixture(scope="module")
def masks_of_one_process(clip, tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("one")
    run_well(write_job(folder, clip, "one"))
    return (folder / "one.jsonl").read_bytes()


def numbers(video: Path) -> list[int]:
    with av.open(str(video)) as container:
        return [read_number(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]


def run_well(config: Path, *more: str) -> None:
    code, err = finish(start_run(config, *more))
    assert code == 0, err


def test_four_processes_give_the_bytes_of_one(clip, masks_of_one_process, tmp_path):
    run_well(write_job(tmp_path, clip, "four", processes=FOUR_GROUPS))
    assert (tmp_path / "four.jsonl").read_bytes() == masks_of_one_process
    assert numbers(tmp_path / "four.mp4") == list(range(FRAMES))
    with av.open(str(tmp_path / "four.mp4")) as container:
        assert container.streams.audio, "the sound goes along"
    assert not (tmp_path / "run").exists(), "nothing is left behind"


def test_four_processes_give_the_bytes_of_one_with_a_real_model(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", frames=25, size=(320, 180))
    changes = {"model": {"name": "lite"}, "prompts": [{"type": "click", "x": 20, "y": 60}]}
    run_well(write_job(tmp_path, clip, "one", **changes))
    run_well(write_job(tmp_path, clip, "four", **changes, processes=FOUR_GROUPS))
    assert (tmp_path / "four.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()


def killed_at_random(clip: Path, folder: Path, frames: int, kills_each: int, expected: bytes) -> None:
    """Kill every group so many times, at random places of the file, and compare with an undisturbed run."""
    chance = random.Random(11)
    groups = THREE_GROUPS
    # Nothing here depends on luck, so there is no limit to the deaths; back-off would only make the test longer.
    processes = groups | {"max_restarts": 1000, "restart_window_s": 0.1, "heartbeat_s": 0.5}
    run = start_run(write_job(folder, clip, "many", processes=processes))
    victims = names_of(groups) * kills_each
    chance.shuffle(victims)
    places = sorted(chance.randrange(1, frames - 10) for _ in victims)
    masks = folder / "many.jsonl"
    for place, victim in zip(places, victims, strict=True):
        assert wait_until(lambda at=place: len(rows(masks)) >= at, run), finish(run)
        assert wait_until(lambda name=victim: kill_group(run, name), run), finish(run)
    code, err = finish(run, timeout_s=600)
    assert code == 0, err
    assert err.count("died") == len(victims)
    assert masks.read_bytes() == expected, "complete, in order, no doubles"
    assert numbers(folder / "many.mp4") == list(range(frames))


def test_killed_at_random_the_outputs_are_complete_in_order_and_without_doubles(clip, masks_of_one_process, tmp_path):
    killed_at_random(clip, tmp_path, FRAMES, 2, masks_of_one_process)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_group_killed_twenty_times_over_two_thousand_frames(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", frames=2000, size=SIZE)
    run_well(write_job(tmp_path, clip, "one"))
    killed_at_random(clip, tmp_path, 2000, 20, (tmp_path / "one.jsonl").read_bytes())


def test_a_run_that_was_killed_as_a_whole_is_resumed(clip, masks_of_one_process, tmp_path):
    config = write_job(tmp_path, clip, "two", processes=THREE_GROUPS)
    run = start_run(config)
    assert wait_until(lambda: len(rows(tmp_path / "two.jsonl")) > 110, run)
    children = list(group_processes(run).values())
    run.kill()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive, "groups end with their supervisor"
    finish(run)
    code, err = finish(start_run(config))
    assert code == 2
    assert "exists already" in err
    run_well(config, "--set", "resume=true")
    assert (tmp_path / "two.jsonl").read_bytes() == masks_of_one_process
    assert numbers(tmp_path / "two.mp4") == list(range(FRAMES))


def test_a_group_that_dies_too_often_is_given_up(clip, tmp_path):
    run = start_run(write_job(tmp_path, clip, "out", processes=THREE_GROUPS | {"max_restarts": 1}))
    for _ in range(2):
        assert wait_until(lambda: kill_group(run, "track"), run)
        wait_until(lambda: "track" not in group_processes(run), run)
    code, err = finish(run)
    assert code == 1
    assert "the process group 'track' died 2 times within 60 s, the last time by killed by signal 9; giving up" in err
    assert "Traceback" not in err


def test_an_error_in_one_process_is_said_once_and_what_came_before_is_written(clip, tmp_path):
    late = [{"type": "click", "x": 5, "y": 5, "time_s": 8.32}]
    run = start_run(write_job(tmp_path, clip, "out", prompts=late, processes=FOUR_GROUPS))
    code, err = finish(run)
    assert code == 1, err
    assert err.count("the video ended before the time of a prompt") == 1
    assert rows(tmp_path / "out.jsonl") == list(range(FRAMES))
    assert "Traceback" not in err


def test_what_cannot_be_done_is_said_before_anything_is_started(clip, tmp_path):
    outside = [{"type": "click", "x": 500, "y": 5}]
    code, err = finish(start_run(write_job(tmp_path, clip, "out", prompts=outside, processes=FOUR_GROUPS)))
    assert code == 2
    assert "outside the picture" in err
    config = write_job(tmp_path, clip, "out", processes=FOUR_GROUPS)
    code, err = finish(start_run(config, "--only", "trakc"))
    assert code == 2
    assert "there is no group 'trakc'; the config's groups are decode, encode, track, write" in err
    assert not (tmp_path / "out.jsonl").exists()


def test_an_interrupt_finishes_the_outputs(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", frames=800, size=SIZE)
    run = start_run(write_job(tmp_path, clip, "out", processes=THREE_GROUPS))
    assert wait_until(lambda: len(rows(tmp_path / "out.jsonl")) > 20, run)
    run.send_signal(signal.SIGINT)
    code, err = finish(run)
    assert code == 1
    assert "stopped by SIGINT" in err
    done = rows(tmp_path / "out.jsonl")
    assert done == list(range(len(done)))
    assert len(done) < 800
    assert numbers(tmp_path / "out.mp4") == done


def test_groups_started_apart_find_each_other_in_any_order(clip, masks_of_one_process, tmp_path):
    config = write_job(tmp_path, clip, "apart", processes=THREE_GROUPS)
    writing = start_run(config, "--only", "write")
    decoding = start_run(config, "--only", "decode")
    time.sleep(1)
    tracking = start_run(config, "--only", "track")
    for run in (writing, decoding, tracking):
        code, err = finish(run)
        assert code == 0, err
    assert (tmp_path / "apart.jsonl").read_bytes() == masks_of_one_process
