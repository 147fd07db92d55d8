"""Results and requests of a job in processes: what was asked survives the death of the process that was asked."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading

import pytest

from sam3_stream import Client
from tests.support.clips import write_clip
from tests.support.group_runs import THREE_GROUPS, finish, kill_group, rows, start_run, wait_until, write_job

FRAMES = 1200


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", frames=FRAMES, size=(96, 64))


@pytest.mark.parametrize("groups", [{}, THREE_GROUPS], ids=["one process", "three processes"])
def test_requests_take_effect_and_results_are_published(clip, tmp_path, groups):
    results, control = f"ipc://{tmp_path}/results.sock", f"ipc://{tmp_path}/control.sock"
    masks = {"type": "masks", "path": str(tmp_path / "out.jsonl")}
    config = write_job(
        tmp_path,
        clip,
        "out",
        sinks=[masks, {"type": "zeromq", "address": results}],
        control={"address": control},
        processes=groups | {"restart_window_s": 0.1, "heartbeat_s": 0.5},
    )
    client = Client(results, control=control)
    received: list[int] = []

    def listen() -> None:
        with contextlib.suppress(TimeoutError):  # whoever is far behind when all ends may miss the end, too
            received.extend(each.frame.sequence for each in client.results("0", timeout_s=10))

    listening = threading.Thread(target=listen)
    listening.start()
    run = start_run(config)
    assert wait_until(lambda: len(rows(tmp_path / "out.jsonl")) > 10, run), finish(run)
    added = client.add({"type": "box", "xyxy": [5, 5, 20, 20], "name": "late"}).sequence
    if groups:
        assert kill_group(run, "track")
    code, err = finish(run)
    listening.join()
    assert code == 0, err
    lines = (tmp_path / "out.jsonl").read_text().splitlines()[1:]
    labels = [[each["label"] for each in json.loads(line)["objects"]] for line in lines]
    assert labels == [["thing"]] * added + [["thing", "late"]] * (FRAMES - added)
    assert received, "it had seconds to connect"
    assert received == sorted(set(received)), "each result is published once, in order"
    gaps = sum(number > before + 1 for before, number in itertools.pairwise(received))
    assert gaps == client.counters.lost, "the fake model is quicker than a subscriber; what that costs is counted"
    assert client.counters.malformed == 0
