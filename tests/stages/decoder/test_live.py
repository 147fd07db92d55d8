"""Live sources of every kind come in: right pictures, right times, nothing queued."""

from __future__ import annotations

import glob
import itertools
import time

import pytest

from sam3_stream.config.live import LiveSourceConfig
from sam3_stream.core.errors import StreamError
from sam3_stream.stages.decoder.live import LiveDecoder
from tests.support.rtsp_server import Mount, RtspServer
from tests.support.watching import Watching


@pytest.fixture(scope="module")
def server():
    mounts = [Mount("/h264"), Mount("/h265", codec="h265"), Mount("/mjpeg", codec="mjpeg", fps=10)]
    with RtspServer(mounts) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "transport"), [("/h264", "tcp"), ("/h264", "udp"), ("/h265", "tcp"), ("/mjpeg", "tcp")]
)
def test_rtsp_pictures_come_in_order_with_the_cameras_own_times(server, path, transport):
    with Watching(server.url(path), transport=transport) as watching:
        watching.wait_for_frames(50)
    seen = watching.seen[-40:]
    assert {each.size for each in seen} == {(320, 240)}
    for earlier, later in itertools.pairwise(seen):
        assert later.clock.number > earlier.clock.number
        made_s = (later.clock.made_ms - earlier.clock.made_ms) / 1000
        assert later.time_s - earlier.time_s == pytest.approx(made_s, abs=0.03)
    assert not any(each.discontinuity for each in watching.seen)
    assert watching.states[:1] == ["live"]
    assert watching.state == "ended"


def test_the_time_of_capture_is_the_cameras_once_it_has_sent_a_report(server):
    with Watching(server.url("/h264")) as watching:
        watching.wait_for_frames(75)
    # From the report on, the capture time is the sender's: as old as the clock in the picture says.
    assert watching.seen[-1].capture_age_s == pytest.approx(watching.seen[-1].age_s, abs=0.03)


def test_a_slow_taker_gets_the_newest_picture_and_the_others_are_counted(server):
    with Watching(server.url("/h264"), work_s=0.4) as watching:
        watching.wait_for_frames(8)
        status = watching.decoder.status
    seen = watching.seen[2:]
    assert all(each.age_s < 0.2 for each in seen), "what was handed out had waited in a queue"
    gaps = [later.sequence - earlier.sequence for earlier, later in itertools.pairwise(seen)]
    assert sorted(gaps)[len(gaps) // 2] in range(8, 13), "about ten pictures pass in 0.4 s"
    assert status.dropped["overflow"] >= sum(gaps) - len(gaps)
    assert status.fps == pytest.approx(25, rel=0.3)


def test_info_waits_for_the_first_picture_and_loses_none(server):
    decoder = LiveDecoder(LiveSourceConfig(url=server.url("/h264"), mode="every_frame"), "cam")
    try:
        assert (decoder.info.width, decoder.info.height) == (320, 240)
        assert [frame.sequence for frame in itertools.islice(decoder, 5)] == [0, 1, 2, 3, 4]
    finally:
        decoder.close()


def test_closing_before_the_first_picture_ends_a_wait_for_info_at_once():
    decoder = LiveDecoder(LiveSourceConfig(url="rtsp://127.0.0.1:9/cam", backoff_initial_s=30, backoff_max_s=60), "cam")
    decoder.close()
    started_s = time.monotonic()
    with pytest.raises(StreamError, match="closed before its first picture"):
        _ = decoder.info
    assert time.monotonic() - started_s < 5


def test_closing_wakes_a_stream_that_waits_for_its_next_attempt():
    with Watching("rtsp://127.0.0.1:9/cam", backoff_initial_s=60, backoff_max_s=60) as watching:
        time.sleep(0.5)
        watching.decoder.close()
        watching.wait_for_state("ended", 3)


def test_a_capture_device_that_is_not_there_is_named():
    with pytest.raises(StreamError, match=r"/dev/video97: No such file or directory; expected a camera"):
        _ = LiveDecoder(LiveSourceConfig(url="/dev/video97"), "cam").info


def test_a_capture_device_delivers():
    devices = glob.glob("/dev/video*")  # noqa: PTH207
    if not devices:
        pytest.skip("no /dev/video* on this machine")
    decoder = LiveDecoder(LiveSourceConfig(url=devices[0]), "cam")
    try:
        assert decoder.info.width > 0
    finally:
        decoder.close()
