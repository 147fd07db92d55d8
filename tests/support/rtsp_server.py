"""A real RTSP server that we did not write (GStreamer's), in a process of its own, and the clock in its pictures."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import pytest

from sam3_stream.core.records import ImageArray

SYSTEM_PYTHON = "/usr/bin/python3"
_SCRIPT = Path(__file__).with_name("gst_rtsp_server.py")
_PROBE = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
_CELLS, _CELL_HEIGHT = 24, 16


@dataclass(frozen=True)
class Mount:
    """One path of the server.

    Attributes:
        path: Such as ``/cam0``.
        codec: ``h264``, ``h265``, ``mjpeg``, or ``unknown``, which FFmpeg cannot decode.
        width: In pixels, even.
        height: In pixels, even.
        fps: Frames per second.
        gop: Frames from one key frame to the next.
        kbps: Bit rate.
        record: Take a stream (RECORD) instead of playing one.
        file: Play this MP4 with H.264 in it, without its clock, instead of drawing pictures.
    """

    path: str = "/cam0"
    codec: str = "h264"
    width: int = 320
    height: int = 240
    fps: int = 25
    gop: int = 25
    kbps: int = 500
    record: bool = False
    file: str | None = None


def skip_without_gstreamer() -> None:
    """Skip the calling test, with the reason, where GStreamer's RTSP server is not installed."""
    if (
        shutil.which(SYSTEM_PYTHON) is None
        or subprocess.run([SYSTEM_PYTHON, "-c", _PROBE], capture_output=True, check=False).returncode != 0
    ):
        pytest.skip("needs GStreamer's RTSP server: apt-get install $(cat scripts/apt-packages.txt)")


class RtspServer:
    """The server. `kill` and `start` again is what a camera does that reboots: the port stays the same.

    Args:
        mounts: What it serves.
        user: Ask for this user (digest authentication).
        password: And this password.
        certificate: PEM file with a certificate and its key: serve RTSPS.
        port: Port to listen on; a free one when 0.
    """

    def __init__(
        self,
        mounts: Sequence[Mount] = (Mount(),),
        *,
        user: str | None = None,
        password: str | None = None,
        certificate: Path | None = None,
        port: int = 0,
    ) -> None:
        self.mounts = tuple(mounts)
        self.port = port
        self._access = {"user": user, "password": password, "certificate": certificate and str(certificate)}
        self._scheme = "rtsps" if certificate else "rtsp"
        self._process: subprocess.Popen[str] | None = None

    def url(self, path: str = "/cam0", *, login: str = "", port: int | None = None) -> str:
        """Address of a mount; `login` is ``user:password``, `port` that of a proxy."""
        return f"{self._scheme}://{login + '@' if login else ''}127.0.0.1:{port or self.port}{path}"

    def start(self) -> None:
        """Start to serve, on the same port as before; returns when clients may connect."""
        config = {"port": self.port, "mounts": [asdict(mount) for mount in self.mounts], **self._access}
        self._process = subprocess.Popen(
            [SYSTEM_PYTHON, str(_SCRIPT), json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        answer = self._read()
        if not answer.startswith("ready"):
            raise RuntimeError(f"the RTSP server did not start on port {self.port}")
        self.port = int(answer.split()[1])

    def kill(self) -> None:
        """Die at once, as a camera without power does."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def received(self, path: str) -> tuple[int, int, int]:
        """Coded pictures that a RECORD mount has received, and their width and height."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"count {path}\n")
        self._process.stdin.flush()
        _, count, width, height = self._read().split()
        return int(count), int(width), int(height)

    def __enter__(self) -> RtspServer:
        skip_without_gstreamer()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _read(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@dataclass(frozen=True)
class PictureClock:
    """What the cells at the bottom of a picture say: when it was made, and its number since the mount started."""

    made_ms: int
    number: int

    def age_s(self, now_s: float | None = None) -> float:
        """Seconds since the picture was made; server and client share the machine's monotonic clock."""
        now_ms = int((time.monotonic() if now_s is None else now_s) * 1000)
        return ((now_ms - self.made_ms) & 0xFFFFFFFF) / 1000


def read_clock(rgb: ImageArray) -> PictureClock:
    """Read the clock of a picture at its own size: uint8 RGB (height, width, 3)."""
    height, width = rgb.shape[:2]
    bits = 0
    for row in (1, 0):
        y = height - 2 * _CELL_HEIGHT + row * _CELL_HEIGHT + _CELL_HEIGHT // 2
        columns = [(width * cell // _CELLS + width * (cell + 1) // _CELLS) // 2 for cell in range(_CELLS)]
        for column in reversed(columns):
            bits = bits << 1 | int(rgb[y, column].mean() > 128)
    return PictureClock(bits >> 16, bits & 0xFFFF)
