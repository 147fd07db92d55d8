"""A real RTMP server that we did not write: nginx with its RTMP module, on free loopback ports."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType

import pytest

_MODULE = Path("/usr/lib/nginx/modules/ngx_rtmp_module.so")
_CONFIG = """
daemon off; worker_processes 1; user root; pid {folder}/nginx.pid; error_log {folder}/error.log;
load_module {module};
events {{}}
rtmp {{ server {{ listen 127.0.0.1:{rtmp_port}; application live {{ live on; }} }} }}
http {{ access_log off; server {{ listen 127.0.0.1:{http_port}; location /stat {{ rtmp_stat all; }} }} }}
"""


class RtmpServer:
    """Takes and gives streams at ``url("/live/NAME")``.

    Args:
        folder: For its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self._http_port = _free_port(), _free_port()

    def url(self, path: str) -> str:
        """Address of a stream."""
        return f"rtmp://127.0.0.1:{self.port}{path}"

    def publishes(self, name: str) -> bool:
        """Whether a stream of this name is being published."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/stat") as answer:
            return f"<name>{name}</name>" in answer.read().decode()

    def __enter__(self) -> RtmpServer:
        if shutil.which("nginx") is None or not _MODULE.exists():
            pytest.skip("needs nginx with its RTMP module: apt-get install $(cat scripts/apt-packages.txt)")
        config = self._folder / "nginx.conf"
        config.write_text(
            _CONFIG.format(folder=self._folder, module=_MODULE, rtmp_port=self.port, http_port=self._http_port)
        )
        self._process = subprocess.Popen(["nginx", "-c", str(config), "-p", str(self._folder)])
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        raise RuntimeError(f"nginx did not start: {(self._folder / 'error.log').read_text()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
