"""Results of live streams over ZeroMQ, to a program of its own."""

from __future__ import annotations

import itertools

import pytest

from sam3_stream import Client, LiveJobConfig, LiveService
from tests.support.rtsp_server import Mount, RtspServer
from tests.support.watching import QUICK


@pytest.mark.parametrize("stream", ["yard", "gate"])
def test_a_program_follows_one_of_two_cameras(tmp_path, stream):
    names = ["yard", "gate"]
    with RtspServer([Mount(f"/{name}", fps=15) for name in names]) as cameras:
        streams = [
            {
                "name": name,
                "source": {"url": cameras.url(f"/{name}"), **QUICK},
                "prompts": [{"type": "box", "x0": 10, "y0": 20, "x1": 40, "y1": 60, "name": f"thing in the {name}"}],
                "sinks": [{"type": "zeromq", "address": f"ipc://{tmp_path}/{name}.sock"}],
            }
            for name in names
        ]
        config = LiveJobConfig.model_validate({"streams": streams, "model": {"name": "fake"}})
        client = Client(f"ipc://{tmp_path}/{stream}.sock")
        with LiveService(config) as service:
            service.start()
            tracked = list(itertools.islice(client.results(stream, timeout_s=30), 20))
    assert {each.label for one in tracked for each in one.objects} == {f"thing in the {stream}"}
    assert all(one.frame.capture_time_s is not None for one in tracked), "so that a consumer can tell the age"
    numbers = [one.frame.sequence for one in tracked]
    assert numbers == sorted(set(numbers))
    assert client.counters.lost == 0
