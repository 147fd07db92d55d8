"""`sam3-stream serve` as people start and stop it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

COMMAND = [sys.executable, "-c", "from sam3_stream.cli import main; main()", "serve"]


def start(*arguments: str, state: Path) -> tuple[subprocess.Popen[str], str]:
    environment = os.environ | {"XDG_STATE_HOME": str(state)}
    process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=environment)
    said = ""
    assert process.stderr is not None
    while "media:" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return process, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_the_demo_until_it_is_told_to_stop(tmp_path, number):
    process, said = start("--port", "0", state=tmp_path)
    url = re.search(r"http://127\.0\.0\.1:\d+/", said)[0]
    assert httpx.get(url).status_code == 200
    made = httpx.post(f"{url}api/v1/streams/bunny/prompts", json={"type": "click", "x": 460, "y": 400}, timeout=30)
    assert made.status_code == 201
    process.send_signal(number)
    _, rest = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "")
    assert (tmp_path / "sam3_stream" / "stream-bunny.npz").exists()


def test_other_machines_need_a_token_that_is_shown_once(tmp_path):
    for is_first in (True, False):
        process, said = start("--host", "0.0.0.0", "--port", "0", state=tmp_path)
        port = re.search(r":(\d+)/", said)[1]
        assert httpx.get(f"http://127.0.0.1:{port}/api/v1/streams").status_code == 401
        shown = re.search(r"shown this once: (\S+)", said)
        assert (shown is not None) == is_first
        if shown is not None:
            bearer = {"authorization": f"Bearer {shown[1]}"}
            assert httpx.get(f"http://127.0.0.1:{port}/api/v1/streams", headers=bearer).status_code == 200
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == 0


@pytest.mark.parametrize("text", ["preview: {prot: 1}", "streams: []", "preview: {port: 70000}"])
def test_a_config_that_makes_no_sense_is_one_line_and_exit_code_2(tmp_path, text):
    path = tmp_path / "preview.yaml"
    path.write_text(text)
    done = subprocess.run([*COMMAND, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("sam3-stream: error: ")
    assert done.stderr.count("\n") == 1
