"""Decoding on one host, tracking on another, with keys, over a cable that is slow, lossy, or cut."""

from __future__ import annotations

import time

import pytest

from sam3_stream.transport.keys import make_keys
from tests.support.clips import write_clip
from tests.support.group_runs import finish, rows, start_run, wait_until, write_job
from tests.support.namespaces import TwoHosts

FRAMES = 600
GROUPS = {"decoder": "camera", "encoder": "gpu", "memory_tracker": "gpu", "sinks": "gpu"}


@pytest.fixture
def hosts():
    hosts = TwoHosts()
    yield hosts
    hosts.close()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", frames=FRAMES, size=(160, 120))


def run_on(hosts, clip, tmp_path, disturb):
    """Run the job on two hosts, disturbing it on the way; its masks file must be that of one process on one host."""
    make_keys(tmp_path / "keys")
    masks = {"type": "masks", "path": str(tmp_path / "two.jsonl")}
    address = f"tcp://{hosts.addresses[0]}:5555"
    processes = GROUPS | {"keys": str(tmp_path / "keys"), "edges": {"frames": {"address": address}}}
    config = write_job(tmp_path, clip, "two", sinks=[masks], processes=processes)
    runs = [hosts.start(hosts.second, config, "gpu"), hosts.start(hosts.first, config, "camera")]
    assert wait_until(lambda: len(rows(tmp_path / "two.jsonl")) > 50, runs[0]), finish(runs[0])
    disturb()
    for run in runs:
        code, err = finish(run)
        assert code == 0, err
        assert err == ""
    one = write_job(tmp_path, clip, "one", sinks=[masks | {"path": str(tmp_path / "one.jsonl")}])
    code, err = finish(start_run(one))
    assert code == 0, err
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()


@pytest.mark.parametrize("cut_s", [2, pytest.param(10, marks=pytest.mark.long)])
def test_a_cut_heals(hosts, clip, tmp_path, cut_s):
    def cut():
        hosts.cut()
        before = len(rows(tmp_path / "two.jsonl"))
        time.sleep(cut_s)
        assert before < FRAMES, "the cut came too late to disturb anything"
        assert len(rows(tmp_path / "two.jsonl")) < FRAMES
        hosts.heal()

    run_on(hosts, clip, tmp_path, cut)


def test_delay_and_loss(hosts, clip, tmp_path):
    if not hosts.slow_down("delay", "20ms", "5ms", "loss", "1%"):
        pytest.skip("this kernel has no netem (sch_netem), so packets cannot be delayed and lost")
    run_on(hosts, clip, tmp_path, lambda: None)
