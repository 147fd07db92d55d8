"""A live edge between processes that are killed: it goes on with now, and what is missing is counted and marked."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from sam3_stream.runtime.supervisor import Supervisor


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
        for name in ("produce", "consume"):
            supervisor._children[name].exit_code = 0  # they have no end of their own
        supervisor.kill()
        running.join(20)
    got = entries(log)
    numbers = [number for number, _, _ in got]
    assert numbers == sorted(set(numbers)), "no frame twice, none out of order"
    gaps = [(number - before - 1, marked) for (before, _, _), (number, marked, _) in itertools.pairwise(got)]
    assert all(marked for missing, marked in gaps if missing > 50), "what comes behind an interruption says so"
    assert sum(marked for _, marked in gaps) >= len(victims), "and so it does when the numbers go on"
