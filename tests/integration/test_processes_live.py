"""A live edge between processes that are killed: it goes on with now, and what is missing is counted and marked."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from sam3_stream import Client
from sam3_stream.runtime.supervisor import Supervisor
from tests.support.clips import write_clip
from tests.support.group_runs import THREE_GROUPS, finish, kill_group, rows, start_run, wait_until, write_job


def entries(log: Path) -> list[tuple[int, int, int]]:
    if not log.exists():
        return []
    return [tuple(map(int, line.split())) for line in log.read_text().split("\n")[:-1]]


def wait_for(condition, timeout_s=30):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.01)


def test_either_end_killed_the_stream_goes_on_and_gaps_are_counted_and_marked(tmp_path):
    log, address = tmp_path / "log", f"ipc://{tmp_path}/live.sock"
    program = [sys.executable, "-m", "tests.support.live_edge"]
    supervisor = Supervisor(
        {"produce": [*program, "produce", address], "consume": [*program, "consume", address, str(log)]},
        max_restarts=100,
        restart_window_s=0.1,
    )
    running = threading.Thread(target=supervisor.run)
    running.start()
    chance = random.Random(3)
    victims = ["produce", "consume"] * 3
    chance.shuffle(victims)
    try:
        for victim in victims:
            seen = len(entries(log))
            wait_for(lambda at=seen: len(entries(log)) >= at + 20)
            time.sleep(chance.random() * 0.2)
            os.kill(supervisor.pid(victim), signal.SIGKILL)
        seen = len(entries(log))
        wait_for(lambda: len(entries(log)) >= seen + 20)
        assert supervisor.restarts == {"produce": 3, "consume": 3}
    finally:
        supervisor.kill()  # they have no end of their own
        running.join(20)
    got = entries(log)
    numbers = [number for number, _, _ in got]
    assert numbers == sorted(set(numbers)), "no frame twice, none out of order"
    gaps = [(number - before - 1, marked) for (before, _, _), (number, marked, _) in itertools.pairwise(got)]
    assert all(marked for missing, marked in gaps if missing > 50), "what comes behind an interruption says so"
    assert sum(marked for _, marked in gaps) >= len(victims), "and so it does when the numbers go on"


def test_a_job_played_like_a_camera_outlives_every_death_and_keeps_its_ids(tmp_path):
    """Each group is killed in mid-stream; objects keep their ids, and frames behind an interruption say so."""
    fps, frames = 24, 400
    clip = write_clip(tmp_path / "clip.mp4", frames=frames, size=(160, 120))
    results = f"ipc://{tmp_path}/results.sock"
    config = write_job(
        tmp_path,
        clip,
        "out",
        source={"path": str(clip), "realtime": True},
        sinks=[
            {"type": "masks", "path": str(tmp_path / "out.jsonl")},
            {"type": "overlay", "path": str(tmp_path / "out.mp4")},
            {"type": "zeromq", "address": results},
        ],
        processes=THREE_GROUPS | {"restart_window_s": 0.1, "heartbeat_s": 0.5},
    )
    seen: list[tuple[int, bool]] = []

    def listen():
        frames = (tracked.frame for tracked in Client(results).results("0", timeout_s=60))
        seen.extend((frame.sequence, frame.discontinuity) for frame in frames)

    listening = threading.Thread(target=listen)
    listening.start()
    run = start_run(config)
    for victim in ("track", "decode", "write"):
        before = len(rows(tmp_path / "out.jsonl"))
        assert wait_until(lambda at=before: len(rows(tmp_path / "out.jsonl")) > at + fps, run), finish(run)
        assert wait_until(lambda name=victim: kill_group(run, name), run)
    code, err = finish(run)
    listening.join()
    assert code == 0, err
    assert err.count("died") == 3
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()[1:]]
    numbers = [line["frame"] for line in lines]
    assert numbers == sorted(set(numbers)), "no frame twice, none out of order"
    assert numbers[-1] == frames - 1
    assert {each["id"] for line in lines for each in line["objects"]} == {1}
    assert all(line["objects"] for line in lines), "the restarted tracker goes on with what it followed"
    assert sum(marked for _, marked in seen) >= 2, "what comes behind the death of decoder and tracker says so"
