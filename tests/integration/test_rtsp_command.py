"""`sam3-stream run configs/ingest_rtsp.yaml`, as a person or a service manager runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from sam3_stream import read_masks
from tests.support.rtsp_server import Mount, RtspServer
from tests.support.watching import wait_until

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from sam3_stream.cli import main; main()"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


def overrides(url: str, folder: Path) -> list[str]:
    values = {
        "model.name": "fake",
        "health.port": "0",
        "streams.0.source.url": url,
        "streams.0.sinks.0.folder": str(folder / "video"),
        "streams.0.sinks.1.folder": str(folder / "masks"),
    }
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


def test_the_shipped_config_tracks_a_camera_until_it_is_told_to_stop(tmp_path):
    with RtspServer([Mount("/entrance", width=640, height=360, fps=10)]) as server:
        arguments = ["run", "configs/ingest_rtsp.yaml", *overrides(server.url("/entrance"), tmp_path)]
        process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stderr is not None
        try:
            address = process.stderr.readline().split()[-1]
            wait_until(lambda: _frames_out(address) > 20, 40)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0, said
    masks = next((tmp_path / "masks").iterdir())
    rows = list(read_masks(masks))
    assert len(rows) > 20
    assert rows[-1].objects[0].label == "door"
    assert not read_masks(masks).ends_in_cut_line
    assert len(list((tmp_path / "video").glob("*.mp4"))) == 1


def _frames_out(address: str) -> int:
    with urllib.request.urlopen(f"{address}/streams") as answer:
        return int(json.load(answer)[0]["frames_out"])


def test_a_camera_that_refuses_is_one_line_and_exit_code_1_and_no_password(tmp_path):
    with RtspServer(user="admin", password="right") as server:
        done = command("run", "configs/ingest_rtsp.yaml", *overrides(server.url(login="admin:wrong-one"), tmp_path))
    assert done.returncode == 1
    assert "sam3-stream: error: stream entrance has failed: rtsp://***@127.0.0.1" in done.stderr
    assert "refused the user name or password" in done.stderr
    assert "wrong-one" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_check_and_schema_know_both_kinds_of_config():
    done = command("check", "configs/ingest_rtsp.yaml", "configs/track_file.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    schema = json.loads(command("schema").stdout)
    assert {"JobConfig", "LiveJobConfig"} <= set(schema["$defs"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("streams.0.source.ulr=rtsp://x/y", "unknown key 'streams.0.source.ulr'; did you mean 'url'?"),
        ("streams.0.source.url=ftp://u:secret-word@x/y", "expected an address that begins with one of rtsp://"),
        (
            "streams.0.source.read_timeout_s=-1",
            "streams.0.source.read_timeout_s: input should be greater than 0, got -1",
        ),
        ("streams.0.source.url=[rtsp://u:secret-word@x/y]", "input should be a valid string"),
        ("streams.0.prompts=[]", "streams.0.prompts"),
        ("streams.0.sinks.1.folder=out/entrance/video", "two outputs go to the folder"),
        ("streams.0.name=a b", "streams.0.name"),
    ],
)
def test_a_wrong_config_is_one_line_and_exit_code_2(override, message):
    done = command("run", "configs/ingest_rtsp.yaml", "--set", override)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "secret-word" not in done.stderr


def test_the_pipeline_wired_by_hand_runs(tmp_path):
    with RtspServer([Mount("/cam", width=320, height=240, fps=10)]) as server:
        script = [sys.executable, str(ROOT / "pipelines" / "ingest_rtsp.py"), server.url("/cam"), "60,80"]
        process = subprocess.Popen(
            script, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        process.kill()
        process.communicate()
    assert all(" s  [(" in line for line in lines), lines
    assert list((tmp_path / "masks").iterdir())
