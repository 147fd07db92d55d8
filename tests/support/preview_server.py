"""`sam3-stream serve` in a process of its own, and what its streams say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

COMMAND = [sys.executable, "-c", "from sam3_stream.cli import main; main()", "serve"]


class PreviewServer:
    """A preview that is served on a free port, with its state in a folder."""

    def __init__(self, *arguments: str, state: Path) -> None:
        environment = os.environ | {"XDG_STATE_HOME": str(state)}
        command = [*COMMAND, *arguments, "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.said = ""
        assert self.process.stderr is not None
        while "media:" not in self.said:
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line
        found = re.search(r"http://127\.0\.0\.1:\d+", self.said)
        self.url = "" if found is None else found[0]

    def api(self, method: str, path: str, **keywords: Any) -> Any:
        """Ask the API; its answer's JSON."""
        answer = httpx.request(method, f"{self.url}/api/v1{path}", timeout=30, **keywords)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def close(self) -> str:
        """Stop it as a service manager does; what it said at the end."""
        self.process.terminate()
        return self.process.communicate(timeout=30)[1]


class Results:
    """The results of a stream's frames, as server-sent events bring them."""

    def __init__(self, server: PreviewServer, stream: str, kept: int = 400) -> None:
        self.rows: deque[dict[str, Any]] = deque(maxlen=kept)
        self._arrived = threading.Condition()
        self._stop = False
        self._address = f"{server.url}/api/v1/streams/{stream}/results?masks=rle"
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with httpx.stream("GET", self._address, timeout=30) as answer:
            for line in answer.iter_lines():
                if self._stop:
                    return
                if line.startswith("data:"):
                    with self._arrived:
                        self.rows.append(json.loads(line[5:]))
                        self._arrived.notify_all()

    def next_rows(self, timeout_s: float = 60.0) -> Iterator[dict[str, Any]]:
        """Each row from the next one on, waited for."""
        last = self._newest()
        while True:
            with self._arrived:
                assert self._arrived.wait_for(lambda last=last: self._newest() > last, timeout_s)
                fresh = [row for row in self.rows if row["frame"] > last]
            last = fresh[-1]["frame"]
            yield from fresh

    def _newest(self) -> int:
        return self.rows[-1]["frame"] if self.rows else -1

    def close(self) -> None:
        """Listen no more."""
        self._stop = True
        self._thread.join()
