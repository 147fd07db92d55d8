"""Faults of all kinds on several cameras at once: each comes back, nothing leaks, and the others do not notice."""

from __future__ import annotations

import gc
import itertools

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.rtsp_server import Mount, RtspServer
from tests.support.storm import RECOVERY_S, Resources, Rig, script
from tests.support.watching import Watching, wait_until


@pytest.mark.parametrize(
    ("events", "duration_s"),
    [
        pytest.param(6, 12.0, id="6 events"),
        pytest.param(60, 600.0, id="60 events", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
def test_every_stream_comes_back_from_a_storm_with_its_ids(tmp_path, events, duration_s):
    with Rig(tmp_path) as rig:
        before = Resources.now()
        rig.run(script(events, duration_s, len(rig.cameras)))
        wait_until(lambda: all(stream.report().state == "live" for stream in rig.streams))
        wait_until(lambda: all(stream.report().source.hanging == 0 for stream in rig.streams))
        after = Resources.now()
        reports = [stream.report() for stream in rig.streams]
    outcomes = [outcome for camera in rig.cameras for outcome in camera.outcomes]
    assert len(outcomes) == events
    late = [outcome for outcome in outcomes if outcome.recovered_s - outcome.healed_s > RECOVERY_S]
    assert not late
    assert [report.restarts for report in reports] == [0] * len(reports)
    assert [camera.sink.ids for camera in rig.cameras] == [{1}] * len(rig.cameras)
    assert after.threads <= before.threads
    assert after.descriptors <= before.descriptors
    for camera in rig.cameras:
        times_s = camera.sink.times_s
        rate = camera.quiet_rate(times_s[0], times_s[-1], RECOVERY_S)
        assert rate == pytest.approx(rig.fps, rel=0.2), "faults of other cameras disturbed this one"


@pytest.mark.parametrize(
    "reconnects", [15, pytest.param(201, marks=[pytest.mark.long, pytest.mark.timeout(900)])], ids=str
)
def test_reconnecting_leaks_no_thread_no_socket_and_no_memory(reconnects):
    with RtspServer([Mount(gop=5)]) as server, FaultProxy(server.port) as proxy:
        url = server.url(port=proxy.port)
        with Watching(url, backoff_initial_s=0.02, backoff_max_s=0.1) as watching:

            def reconnect(times: int) -> Resources:
                for _ in range(times):
                    wanted = watching.decoder.status.connections + 1
                    watching.wait_for_frames(3)
                    proxy.cut()
                    wait_until(lambda wanted=wanted: watching.decoder.status.connections >= wanted)
                watching.wait_for_frames(5)
                wait_until(lambda: watching.decoder.status.hanging == 0)
                gc.collect()
                return Resources.now()

            # What malloc keeps for new threads grows at first, and then no more.
            early, middle, late = (reconnect(reconnects // 3) for _ in range(3))
    assert late.threads == middle.threads == early.threads
    assert late.descriptors == middle.descriptors == early.descriptors
    assert late.rss_mb - middle.rss_mb < 5.0, f"memory grows with each connection: {early}, {middle}, {late}"
    times_s = [each.time_s for each in watching.seen]
    assert all(later > earlier for earlier, later in itertools.pairwise(times_s))
