"""The annotated stream arrives at real servers, and a server that is away or hangs costs frames and nothing else."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import av
import numpy as np
import pytest

from sam3_stream.core.errors import OutputError
from sam3_stream.stages.sinks.push import PushSink
from tests.stages.sinks.test_segments import live_frame
from tests.stages.sinks.tracked import HEADER
from tests.support.clips import disc_center, read_number
from tests.support.fault_proxy import FaultProxy
from tests.support.rtmp_server import RtmpServer
from tests.support.rtsp_server import Mount, RtspServer
from tests.support.watching import wait_until

SIZE = (320, 240)


class Streaming:
    """Gives a sink 25 frames per second until the end of the ``with`` block; each write must return at once."""

    def __init__(self, sink: PushSink) -> None:
        self.sink = sink
        self.slowest_write_s = 0.0
        self.size = SIZE
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.04):
            tracked = live_frame(number, size=self.size)
            started_s = time.monotonic()
            self.sink.write(tracked)
            self.slowest_write_s = max(self.slowest_write_s, time.monotonic() - started_s)
            number += 1

    def __enter__(self) -> Streaming:
        self.sink.open(None, HEADER)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.sink.close()


def quick(url: str) -> PushSink:
    return PushSink(url, backoff_initial_s=0.2, backoff_max_s=1.0, hang_timeout_s=2)


def test_a_real_rtsp_server_receives_every_frame_that_was_sent():
    with RtspServer([Mount("/annotated", record=True)]) as server:
        with Streaming(quick(server.url("/annotated"))) as streaming:
            wait_until(lambda: server.received("/annotated")[0] > 40)
        # The last packets of a connection that is being closed may go down with it.
        received, *size = server.received("/annotated")
        assert streaming.sink.sent_frames - 5 <= received <= streaming.sink.sent_frames
        assert tuple(size) == SIZE
        assert streaming.sink.lost_frames < 100, "only what came while the connection was made is lost"


def test_a_real_rtmp_server_receives_the_picture_with_the_object_drawn(tmp_path: Path):
    with RtmpServer(tmp_path) as server, Streaming(quick(server.url("/live/annotated"))):
        wait_until(lambda: server.publishes("annotated"))
        with av.open(server.url("/live/annotated"), options={"analyzeduration": "1000000"}, timeout=10) as viewer:
            images = [
                frame.to_ndarray(format="rgb24") for _, frame in zip(range(40), viewer.decode(video=0), strict=False)
            ]
    numbers = [read_number(image) for image in images]
    assert numbers == list(range(numbers[0], numbers[0] + 40)), "a frame was lost or doubled on the way"
    x, y = disc_center(numbers[-1], SIZE)
    drawn = images[-1].astype(int)[int(y), int(x)]
    assert np.abs(drawn - live_frame(numbers[-1], size=SIZE).frame.picture.to_ndarray()[int(y), int(x)]).max() > 20


def test_a_server_that_dies_and_comes_back_gets_the_stream_again():
    with (
        RtspServer([Mount("/annotated", record=True)]) as server,
        Streaming(quick(server.url("/annotated"))) as streaming,
    ):
        wait_until(lambda: server.received("/annotated")[0] > 10)
        server.kill()
        time.sleep(1.5)
        lost = streaming.sink.lost_frames
        server.start()
        wait_until(lambda: server.received("/annotated")[0] > 10)
        assert lost > 0
        assert streaming.slowest_write_s < 0.5


def test_a_server_that_hangs_holds_up_nobody_and_leaves_nothing_behind():
    with RtspServer([Mount("/annotated", record=True)]) as server, FaultProxy(server.port) as proxy:
        sink = quick(server.url("/annotated", port=proxy.port))
        with Streaming(sink) as streaming:
            wait_until(lambda: server.received("/annotated")[0] > 10)
            proxy.stalled = True  # the server's answers to a new connection will not come either
            proxy.cut()
            time.sleep(4)
            assert sink.lost_frames > 20
            proxy.heal()
            before = server.received("/annotated")[0]
            wait_until(lambda: server.received("/annotated")[0] > before + 10)
        assert streaming.slowest_write_s < 0.5, "a hanging server held up the writer"
    assert not [thread for thread in threading.enumerate() if "push" in thread.name]


def test_another_size_is_another_connection():
    with (
        RtspServer([Mount("/annotated", record=True)]) as server,
        Streaming(quick(server.url("/annotated"))) as streaming,
    ):
        wait_until(lambda: server.received("/annotated")[1:] == SIZE)
        streaming.size = (160, 120)
        wait_until(lambda: server.received("/annotated")[1:] == (160, 120))


def test_a_password_is_in_no_list_of_processes_and_no_log(caplog):
    sink = quick("rtsp://admin:secret-word@127.0.0.1:9/annotated")
    with Streaming(sink):
        wait_until(lambda: "again in" in caplog.text)
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert "rtsp://***@127.0.0.1:9/annotated: Connection refused" in caplog.text
    assert "secret-word" not in caplog.text
    assert not any(b"secret-word" in command for command in commands)


def test_an_address_that_nothing_can_be_pushed_to_is_refused():
    with pytest.raises(
        OutputError, match=r"cannot push to http://\*\*\*@host/x: expected an address with one of rtsp://"
    ):
        PushSink("http://admin:secret@host/x")
