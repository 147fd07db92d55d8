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
from sam3_stream.core.records import Frame
from sam3_stream.core.stream_status import SourceStatus
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


def test_a_camera_that_has_been_turned_when_it_comes_back(tmp_path: Path):
    options = {"movflags": "faststart"}
    upright = write_clip(tmp_path / "a.mp4", frames=20, size=SIZE, container_options=options)
    turned = write_clip(tmp_path / "b.mp4", frames=20, size=SIZE, rotation=90, container_options=options)
    answers = iter([upright, turned])

    class Turning(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = next(answers, turned).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with http_server(Turning) as address:
        decoder = decoder_of(f"{address}/cam.mp4")
        seen = []
        for frame in decoder:
            seen.append((frame.rotation, frame.discontinuity, frame.picture.to_ndarray().shape[:2]))
            if len(seen) > 1 and seen[-1][0] != seen[0][0]:
                break
        decoder.close()
    assert seen[0][0] == 0
    assert seen[0][2] == seen[-1][2] == (120, 160), "as displayed, so it is the camera that turned, not the scene"
    assert seen[-1][0] in (90, 270)
    assert seen[-1][1], "the first turned picture is marked as a discontinuity"


def test_mpeg_ts_over_tcp_with_every_frame_drops_nothing(tmp_path: Path):
    content = write_clip(tmp_path / "clip.ts", frames=50, size=SIZE, gop=10).read_bytes()
    frames, status = frames_over_tcp(content)
    assert [read_number(frame.picture.to_ndarray()) for frame in frames] == list(range(50))
    assert status.dropped == {"overflow": 0, "undecodable": 0, "no_key_frame": 0}


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


def frames_over_tcp(content: bytes, **options: object) -> tuple[list[Frame], SourceStatus]:
    """The frames of an MPEG-TS recording that somebody sends over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send(stop: threading.Event) -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(content)

        with in_thread(send):
            decoder = decoder_of(f"tcp://127.0.0.1:{listener.getsockname()[1]}", mode="every_frame", **options)
            return list(decoder), decoder.status


def test_size_and_time_that_change_in_mid_stream_are_taken_as_they_come(tmp_path: Path):
    first = write_clip(tmp_path / "first.ts", frames=30, size=(160, 120), gop=10)
    second = write_clip(tmp_path / "second.ts", frames=30, size=(320, 240), gop=10)
    frames, status = frames_over_tcp(first.read_bytes() + second.read_bytes() + first.read_bytes())
    assert status.state == "ended"
    sizes = [(frame.width, frame.height) for frame in frames]
    changes = [index for index in range(1, len(sizes)) if sizes[index] != sizes[index - 1]]
    assert [sizes[0], *(sizes[index] for index in changes)] == [(160, 120), (320, 240), (160, 120)]
    assert len(frames) >= 85
    assert all(later.pts > earlier.pts for earlier, later in itertools.pairwise(frames))
    assert [frame.discontinuity for frame in frames].count(True) == 2
    assert read_number(frames[-1].picture.to_ndarray()) == 29


@pytest.mark.parametrize("wait_for_key_frame", [True, False])
def test_lost_packets_damage_pictures_that_are_counted_and_crash_nothing(tmp_path: Path, wait_for_key_frame):
    small = {"preset": "ultrafast", "qp": "30"}
    content = write_clip(tmp_path / "a.ts", frames=150, size=(320, 240), gop=25, codec_options=small).read_bytes()
    packets = [content[start : start + 188] for start in range(0, len(content), 188)]
    kept = b"".join(packet for number, packet in enumerate(packets) if number % 61)
    frames, status = frames_over_tcp(kept, wait_for_key_frame=wait_for_key_frame)
    assert status.state == "ended"
    assert status.corrupt + status.dropped["undecodable"] > 3
    if wait_for_key_frame:
        assert len(frames) > 5
        assert frames[0].key_frame
        assert not any(frame.corrupt for frame in frames)
        assert status.dropped["no_key_frame"] >= status.corrupt
    else:
        assert sum(frame.corrupt for frame in frames) == status.corrupt
        assert status.dropped["no_key_frame"] == 0


def test_a_recording_with_every_key_frame_damaged_has_no_frames_and_ends(tmp_path: Path):
    content = write_clip(tmp_path / "a.ts", frames=50, size=(320, 240), gop=25).read_bytes()  # lossless: large
    packets = [content[start : start + 188] for start in range(0, len(content), 188)]
    frames, status = frames_over_tcp(b"".join(packet for number, packet in enumerate(packets) if number % 97))
    assert (frames, status.state) == ([], "ended")
    assert status.dropped["no_key_frame"] > 20
