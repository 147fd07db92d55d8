"""The annotated stream, sent to a server: RTSP (RECORD) or RTMP."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING

import av
from av.container import OutputContainer
from av.video.stream import VideoStream

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import OutputError
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.core.urls import redact_credentials
from sam3_stream.runtime.channel import Cancelled, Channel
from sam3_stream.stages.sinks.yuv_canvas import YuvCanvas

if TYPE_CHECKING:
    from sam3_stream.stages.sinks.object_painter import ObjectPainter

_log = logging.getLogger(__name__)

_FORMATS = {"rtsp": "rtsp", "rtsps": "rtsp", "rtmp": "flv", "rtmps": "flv"}
_PROCESS = Path(__file__).with_name("push_process.py")
_ENCODER_OPTIONS = {"preset": "veryfast", "tune": "zerolatency"}
_KEY_FRAME_INTERVAL_S = 2
_RATE = Fraction(25)  # what the header says; each frame has its own time
_QUEUE = 2
_CLOSE_TIMEOUT_S = 2.0


class PushSink:
    """Draws the objects, encodes H.264 without looking ahead, and sends it to a server.

    A server that is away, refuses or stops to take costs frames, which are counted, and no more: the sink connects
    again, with a wait that doubles up to `backoff_max_s`. Each connection is a process of its own; see `push_process`.

    Args:
        url: ``rtsp://``, ``rtsps://``, ``rtmp://`` or ``rtmps://``; may carry a user and a password.
        kbps: Bit rate.
        backoff_initial_s: How long to wait before the second attempt, in seconds.
        backoff_max_s: How long to wait at most.
        hang_timeout_s: A connection over which nothing could be sent for so long is given up; in seconds.
        clock: The machine's own when None.
    """

    name = "push"

    def __init__(
        self,
        url: str,
        *,
        kbps: int = 2000,
        backoff_initial_s: float = 1.0,
        backoff_max_s: float = 30.0,
        hang_timeout_s: int = 10,
        clock: Clock | None = None,
    ) -> None:
        if _scheme(url) not in _FORMATS:
            known = ", ".join(f"{each}://" for each in _FORMATS)
            raise OutputError(f"cannot push to {redact_credentials(url)}: expected an address with one of {known}")
        self._lost = 0
        self._sent = 0
        self._url = url
        self._kbps = kbps
        self._backoff_initial_s = self._backoff_s = backoff_initial_s
        self._backoff_max_s = backoff_max_s
        self._hang_timeout_s = hang_timeout_s
        self._clock = clock or SystemClock()
        self._not_before_s = float("-inf")
        self._publication: _Publication | None = None

    @property
    def sent_frames(self) -> int:
        """How many frames have been handed to a connection."""
        publication = self._publication
        return self._sent + (publication.sent if publication is not None else 0)

    @property
    def lost_frames(self) -> int:
        """How many frames have been dropped: there was no connection, or it was too slow."""
        publication = self._publication
        return self._lost + (publication.frames.dropped if publication is not None else 0)

    def check(self, source: Path | None = None) -> None:
        """Nothing can be known before the server has been asked, and that may be away and come back."""

    def open(self, info: StreamInfo, header: RunHeader) -> None:
        """Nothing to do: the first frame connects."""

    def write(self, tracked: TrackedFrame) -> None:
        now_s = self._clock.monotonic_s()
        publication = self._publication
        if publication is not None and publication.size != (tracked.frame.width, tracked.frame.height):
            self._end(publication)
            publication = None
        if publication is not None and publication.is_lost:
            self._lose(publication, now_s)
            publication = None
        if publication is None:
            if now_s < self._not_before_s:
                self._lost += 1
                return
            publication = self._publication = _Publication(self._url, self._kbps, tracked, self._hang_timeout_s)
        publication.frames.put(tracked)

    def close(self) -> None:
        if self._publication is not None:
            self._end(self._publication)

    def _end(self, publication: _Publication) -> None:
        publication.finish()
        self._settle(publication)

    def _lose(self, publication: _Publication, now_s: float) -> None:
        if publication.sent:
            self._backoff_s = self._backoff_initial_s
        _log.warning("push to %s: %s; again in %g s", redact_credentials(self._url), publication.why, self._backoff_s)
        self._not_before_s = now_s + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, self._backoff_max_s)
        publication.frames.cancel()
        self._settle(publication)

    def _settle(self, publication: _Publication) -> None:
        self._sent += publication.sent
        self._lost += publication.frames.dropped
        self._publication = None


class _Publication:
    """One connection to the server: a thread that draws and encodes, and a process that sends."""

    def __init__(self, url: str, kbps: int, first: TrackedFrame, hang_timeout_s: int) -> None:
        self.frames: Channel[TrackedFrame] = Channel(_QUEUE, "drop_oldest", "push")
        self.size = (first.frame.width, first.frame.height)
        self.sent = 0
        self.why = ""
        self._url = url
        self._kbps = kbps
        self._hang_timeout_s = hang_timeout_s
        self._origin = first.frame.pts
        self._time_base = first.frame.time_base
        self._canvas = YuvCanvas()
        self._process = subprocess.Popen(
            [sys.executable, str(_PROCESS), str(hang_timeout_s), _FORMATS[_scheme(url)]],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._thread = threading.Thread(target=self._run, name="sam3_stream-push-connection", daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Send what waits and end in order, if the server lets us."""
        self.frames.close()
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._process.kill()
        self._thread.join()

    def _run(self) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            with process.stdin, process.stderr:
                with contextlib.suppress(Cancelled, OSError, av.FFmpegError):  # the process has ended and says why
                    self._encode(process.stdin)
                with contextlib.suppress(OSError):
                    process.stdin.close()
                self.why = process.stderr.read(1000).decode(errors="replace").strip()
                process.wait()
        finally:
            self.frames.cancel()
        if not self.why:
            hung = process.returncode == -signal.SIGALRM
            self.why = f"nothing could be sent for {self._hang_timeout_s} s" if hung else "the connection ended"

    def _encode(self, pipe: IO[bytes]) -> None:
        from sam3_stream.stages.sinks.object_painter import ObjectPainter  # supervision takes a second to import

        pipe.write(self._url.encode() + b"\n")
        painter = ObjectPainter(*self.size)
        with av.open(pipe, "w", format="nut", options={"flush_packets": "1"}) as container:
            stream = self._add_stream(container)
            for tracked in self.frames:
                picture = self._draw(tracked, painter)
                picture.pts, picture.time_base = tracked.frame.pts - self._origin, self._time_base
                container.mux(stream.encode(picture))
                self.sent += 1
            container.mux(stream.encode(None))

    def _add_stream(self, container: OutputContainer) -> VideoStream:
        stream: VideoStream = container.add_stream("libx264", rate=_RATE, options=_ENCODER_OPTIONS)
        codec = stream.codec_context
        codec.width, codec.height = (side + side % 2 for side in self.size)
        codec.pix_fmt = "yuv420p"
        codec.time_base = self._time_base
        codec.gop_size = round(_KEY_FRAME_INTERVAL_S * _RATE)
        codec.bit_rate = self._kbps * 1000
        return stream

    def _draw(self, tracked: TrackedFrame, painter: ObjectPainter) -> av.VideoFrame:
        picture = self._canvas.frame_of(tracked.frame.picture)
        drawing = painter.plan(tracked)
        if drawing is not None:
            self._canvas.draw(picture, drawing.region, lambda scene: painter.paint(drawing, scene))
        return picture


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()
