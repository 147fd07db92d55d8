"""The other ways in which live video comes: RTMP, HTTP (MJPEG, HLS), MPEG-TS over UDP and TCP."""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import av
import cv2
import pytest

from sam3_stream.config.live import LiveSourceConfig
from sam3_stream.stages.decoder.live import LiveDecoder
from sam3_stream.stages.sinks import PushSink
from tests.stages.sinks.test_segments import live_frame
from tests.stages.sinks.tracked import HEADER
from tests.support.clips import draw_frame, read_number, write_clip
from tests.support.rtmp_server import RtmpServer
from tests.support.watching import QUICK, wait_until

SIZE = (160, 120)


def decoder_of(url: str, **options: object) -> LiveDecoder:
    return LiveDecoder(LiveSourceConfig.model_validate({"url": url, **QUICK, **options}), "cam")


def numbers_of(decoder: LiveDecoder, count: int) -> list[int]:
    """The numbers that the first pictures show."""
    try:
        return [read_number(frame.picture.to_ndarray()) for frame in itertools.islice(decoder, count)]
    finally:
        decoder.close()


@contextlib.contextmanager
def in_thread(target, *arguments: object) -> Iterator[threading.Event]:
    """Run a function in a thread until the end of the block; it gets an event that says when to stop."""
    stop = threading.Event()
    thread = threading.Thread(target=target, args=(*arguments, stop))
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def http_server(handler) -> Iterator[str]:
    """Serve over HTTP on a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send_transport_stream(port: int, stop: threading.Event) -> None:
    """Send numbered pictures as MPEG-TS over UDP, at 25 per second, until told to stop."""
    with av.open(f"udp://127.0.0.1:{port}?pkt_size=1316", "w", format="mpegts") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast", "tune": "zerolatency"})
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = *SIZE, "yuv420p", 10
        for number in itertools.count():
            frame = av.VideoFrame.from_ndarray(draw_frame(number, SIZE), "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
            if stop.wait(0.04):
                return


def test_mpeg_ts_over_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with in_thread(send_transport_stream, port):
        numbers = numbers_of(decoder_of(f"udp://127.0.0.1:{port}"), 40)
    assert numbers == sorted(set(numbers))
    assert numbers[-1] - numbers[0] < 120


def test_udp_that_nobody_sends_to_is_given_up_in_time():
    decoder = decoder_of("udp://127.0.0.1:50999", connect_timeout_s=1.0, max_attempts=1)
    started_s = time.monotonic()
    with pytest.raises(Exception, match=r"udp://127\.0\.0\.1:50999"):
        next(iter(decoder))
    assert time.monotonic() - started_s < 10
    decoder.close()


class MjpegCamera(BaseHTTPRequestHandler):
    """A web camera as many are: JPEG after JPEG in one answer without an end."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        with contextlib.suppress(OSError):
            for number in itertools.count():
                _, jpeg = cv2.imencode(".jpg", cv2.cvtColor(draw_frame(number, SIZE), cv2.COLOR_RGB2BGR))
                part = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg)
                self.wfile.write(part + jpeg.tobytes() + b"\r\n")
                time.sleep(0.04)

    def log_message(self, *_: object) -> None: ...


def test_mjpeg_over_http_has_the_times_of_arrival():
    with http_server(MjpegCamera) as address:
        decoder = decoder_of(f"{address}/video")
        frames = list(itertools.islice(decoder, 40))
        decoder.close()
    numbers = [read_number(frame.picture.to_ndarray()) for frame in frames]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 40
    times_s = [frame.time_s for frame in frames]
    assert all(later > earlier for earlier, later in itertools.pairwise(times_s))


def test_hls_ends_where_its_playlist_ends_when_every_frame_is_wanted(tmp_path: Path):
    write_clip(
        tmp_path / "live.m3u8",
        frames=60,
        size=SIZE,
        gop=10,
        codec="libx264",
        container_options={"hls_time": "1", "hls_list_size": "0"},
    )

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with http_server(functools.partial(Quiet, directory=str(tmp_path))) as address:
        decoder = decoder_of(f"{address}/live.m3u8", mode="every_frame")
        assert numbers_of(decoder, 1000) == list(range(60))
    assert decoder.status.state == "ended"


def test_mpeg_ts_over_tcp_with_every_frame_blocks_and_drops_nothing(tmp_path: Path):
    content = write_clip(tmp_path / "clip.ts", frames=50, size=SIZE, gop=10).read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send(stop: threading.Event) -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(content)

        with in_thread(send):
            decoder = decoder_of(f"tcp://127.0.0.1:{listener.getsockname()[1]}", mode="every_frame")
            numbers = []
            for frame in decoder:
                numbers.append(read_number(frame.picture.to_ndarray()))
                time.sleep(0.01)
    assert numbers == list(range(50))
    assert decoder.status.dropped["overflow"] == 0


def test_rtmp(tmp_path: Path):
    def publish(url: str, stop: threading.Event) -> None:
        sink = PushSink(url, backoff_initial_s=0.2)
        sink.open(None, HEADER)
        for number in itertools.count():
            sink.write(live_frame(number, size=SIZE))
            if stop.wait(0.04):
                sink.close()
                return

    with RtmpServer(tmp_path) as server, in_thread(publish, server.url("/live/cam")):
        wait_until(lambda: server.publishes("cam"))
        decoder = decoder_of(server.url("/live/cam"))
        frames = list(itertools.islice(decoder, 30))
        decoder.close()
    numbers = [read_number(frame.picture.to_ndarray()) for frame in frames]
    times_s = [frame.time_s - frames[0].time_s for frame in frames]
    assert times_s == pytest.approx([(number - numbers[0]) / 25 for number in numbers], abs=0.002)
