"""What happens to cameras and networks: each fault alone, between a real server and the decoder."""

from __future__ import annotations

import itertools
import socket
import threading
import time

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.rtsp_server import Mount, RtspServer
from tests.support.watching import Watching, wait_until


@pytest.fixture
def camera():
    with RtspServer([Mount(gop=10)]) as server, FaultProxy(server.port) as proxy:
        yield server, proxy


def assert_time_goes_forward(watching: Watching) -> None:
    times_s = [each.time_s for each in watching.seen]
    assert all(later > earlier for earlier, later in itertools.pairwise(times_s))
    numbers = [each.sequence for each in watching.seen]
    assert all(later > earlier for earlier, later in itertools.pairwise(numbers))


def test_a_stall_is_told_and_a_long_one_ends_in_a_new_connection(camera):
    server, proxy = camera
    with Watching(server.url(port=proxy.port)) as watching:
        watching.wait_for_frames(20)
        proxy.stalled = True
        watching.wait_for_state("stalled")
        watching.wait_for_state("reconnecting")
        proxy.heal()
        healed_s = time.monotonic()
        watching.wait_for_state("live")
        # The attempt that was under way may have to time out first; then two steps of at most a second and jitter.
        assert time.monotonic() - healed_s < 4.0 + 2 * 1.2 + 2.0
        watching.wait_for_frames(10)
        status = watching.decoder.status
    assert_time_goes_forward(watching)
    assert status.connections == 2
    assert [each.discontinuity for each in watching.seen].count(True) == 1
    assert "nothing has come for 0.5 s" in watching.reasons[watching.states.index("stalled")]


def test_a_short_stall_costs_nothing_but_its_time(camera):
    server, proxy = camera
    with Watching(server.url(port=proxy.port)) as watching:
        watching.wait_for_frames(20)
        proxy.stalled = True
        watching.wait_for_state("stalled")
        proxy.heal()
        watching.wait_for_frames(40)
        assert watching.decoder.status.connections == 1
    assert_time_goes_forward(watching)
    assert not any(each.discontinuity for each in watching.seen)
    assert watching.seen[-1].age_s < 0.2, "what had queued up in the network has been caught up with"


def test_a_cut_connection_is_made_again_and_stream_time_takes_the_outage_in(camera):
    server, proxy = camera
    with Watching(server.url(port=proxy.port)) as watching:
        for cuts in (1, 2, 3):
            watching.wait_for_frames(15)
            proxy.cut()
            wait_until(lambda cuts=cuts: watching.decoder.status.connections == cuts + 1)
        watching.wait_for_frames(15)
    assert_time_goes_forward(watching)
    breaks = [pair for pair in itertools.pairwise(watching.seen) if pair[1].discontinuity]
    assert len(breaks) == 3
    for before, after in breaks:
        gap_s = ((after.clock.made_ms + after.age_s * 1000) - (before.clock.made_ms + before.age_s * 1000)) / 1000
        assert after.time_s - before.time_s == pytest.approx(gap_s, abs=0.4)


def test_a_server_that_dies_and_comes_back_with_another_size_and_codec(camera):
    server, proxy = camera
    with Watching(server.url(port=proxy.port)) as watching:
        watching.wait_for_frames(10)
        server.kill()
        watching.wait_for_state("reconnecting")
        time.sleep(2)  # several attempts fail meanwhile
        server.mounts = (Mount(codec="h265", width=400, height=304),)
        server.start()
        back_s = time.monotonic()
        watching.wait_for_state("live")
        assert time.monotonic() - back_s < 2 * 1.2 + 2.0
        watching.wait_for_frames(10)
    assert_time_goes_forward(watching)
    sizes = [each.size for each in watching.seen]
    assert sizes == sorted(sizes), "first the old size, then the new"
    assert set(sizes) == {(320, 240), (400, 304)}
    assert watching.seen[sizes.index((400, 304))].discontinuity


def test_a_path_that_is_unknown_for_a_while_after_a_reboot_does_not_end_the_stream(camera):
    server, proxy = camera
    with Watching(server.url(port=proxy.port)) as watching:
        watching.wait_for_frames(10)
        server.kill()
        mounts, server.mounts = server.mounts, (Mount("/booting"),)
        server.start()
        wait_until(lambda: any("knows no such path" in reason for reason in watching.reasons))
        server.kill()
        server.mounts = mounts
        server.start()
        watching.wait_for_frames(10)


def test_corrupt_bytes_never_crash_and_never_pass_for_good_pictures(camera):
    server, proxy = camera
    with Watching(server.url(port=proxy.port)) as watching:
        watching.wait_for_frames(10)
        proxy.corrupt_rate = 0.0005
        time.sleep(4)
        proxy.heal()
        watching.wait_for_frames(30)
        status = watching.decoder.status
    assert status.corrupt + status.dropped["undecodable"] + status.dropped["no_key_frame"] > 0
    assert_time_goes_forward(watching)


def test_without_waiting_for_key_frames_damaged_pictures_pass_and_are_counted(camera):
    server, proxy = camera
    with Watching(server.url(port=proxy.port), wait_for_key_frame=False) as watching:
        watching.wait_for_frames(10)
        proxy.corrupt_rate = 0.0005
        time.sleep(3)
        proxy.heal()
        watching.wait_for_frames(20)
        assert watching.decoder.status.dropped["no_key_frame"] == 0


def test_a_line_too_slow_for_the_stream_is_given_up_and_no_thread_is_left_when_it_is_well_again(camera):
    server, proxy = camera
    with Watching(server.url(port=proxy.port)) as watching:
        watching.wait_for_frames(10)
        proxy.bytes_per_s = 500.0
        watching.wait_for_state("reconnecting")
        proxy.heal()
        watching.wait_for_state("live")
        watching.wait_for_frames(10)
        wait_until(lambda: watching.decoder.status.hanging == 0, what="FFmpeg lets go of the slow connection")


def test_a_delay_makes_pictures_late_and_nothing_else(camera):
    server, proxy = camera
    with Watching(server.url(port=proxy.port)) as watching:
        watching.wait_for_frames(20)
        proxy.delay_s = 0.3
        watching.wait_for_frames(15)
        assert watching.decoder.status.connections == 1
    assert_time_goes_forward(watching)


def test_bytes_that_trickle_without_an_end_are_given_up_though_ffmpeg_waits_for_ever():
    """Half an RTSP answer, and then a byte now and then: no time-out of a socket ever fires."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            while not stop.is_set():
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nX: ")
                    while not stop.wait(0.2):
                        try:
                            client.sendall(b"x")
                        except OSError:
                            break

        server = threading.Thread(target=trickle, name="trickle")
        server.start()
        try:
            url = f"rtsp://127.0.0.1:{listener.getsockname()[1]}/cam"
            with Watching(url, connect_timeout_s=1.0, max_attempts=1) as watching:
                wait_until(lambda: watching.error is not None, 10)
                assert "no connection within 1 s" in str(watching.error) or "gives no rtsp stream" in str(
                    watching.error
                )
                wait_until(lambda: watching.decoder.status.hanging == 0, 10)
        finally:
            stop.set()
            listener.shutdown(socket.SHUT_RDWR)
            server.join()
