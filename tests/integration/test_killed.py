"""A run that is killed or stopped: what was made stays usable, and `--resume` gives what an undisturbed run gives."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import av
import pytest

from tests.support.clips import write_clip
from tests.support.command import start_command

FPS = 24


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    """So long that the fake model cannot reach its end before a test has killed it."""
    return write_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", frames=4000, audio=True)


def arguments(clip: Path, out: Path, *more: str, model: str = "fake") -> list[object]:
    return [
        "track", clip, "--model", model, "--click", "40,30#disc", "--quiet",
        "--overlay", out / "out.mp4", "--masks", out / "out.jsonl", *more,
    ]  # fmt: skip


def whole_lines(path: Path) -> int:
    """Frames in a masks file; fails the test when one of its lines is cut."""
    if not path.exists():
        return 0
    text = path.read_bytes()
    assert text == b"" or text.endswith(b"\n"), text[-80:]
    return max(0, len([json.loads(line) for line in text.splitlines()]) - 1)


def wait_for_frames(process: subprocess.Popen[str], masks: Path, count: int) -> None:
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s and process.poll() is None:
        if masks.exists() and masks.read_bytes().count(b"\n") > count:
            return
        time.sleep(0.005)
    raise AssertionError(f"the run did not reach frame {count}: {process.communicate()}")


def playable_seconds(path: Path) -> float:
    with av.open(str(path)) as container:
        return max(float(frame.time) for frame in container.decode(video=0))


def test_killed_at_any_moment(clip, tmp_path):
    """What the masks file holds has been handed to the overlay, too, less what its own channel holds."""
    chance = random.Random(7)
    for attempt in range(3):
        out = tmp_path / str(attempt)
        out.mkdir()
        process = start_command(*arguments(clip, out))
        wait_for_frames(process, out / "out.jsonl", chance.randrange(60, 1200))
        process.kill()
        process.communicate()
        frames = whole_lines(out / "out.jsonl")
        assert playable_seconds(out / "out.mp4") > frames / FPS - 1.5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal_the_outputs_are_finished(clip, tmp_path, number):
    process = start_command(*arguments(clip, tmp_path))
    wait_for_frames(process, tmp_path / "out.jsonl", 50)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"stopped by {number.name}" in err
    assert "Traceback" not in err
    frames = whole_lines(tmp_path / "out.jsonl")
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert container.streams.video[0].frames == frames, "the finished file reports its true frame count"


def test_resume_after_a_kill_gives_what_an_undisturbed_run_gives(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", frames=260, audio=True)

    def resuming(out: Path) -> list[object]:
        return arguments(clip, out, "--resume", model="lite")

    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    undisturbed.mkdir()
    killed.mkdir()
    _, err = (process := start_command(*resuming(undisturbed))).communicate()
    assert process.returncode == 0, err
    for count in (130, 215):
        process = start_command(*resuming(killed))
        wait_for_frames(process, killed / "out.jsonl", count)
        process.kill()
        process.communicate()
    with (killed / "out.jsonl").open("ab") as masks:
        masks.write(b'{"frame":')  # as a power cut may leave it
    _, err = (process := start_command(*resuming(killed))).communicate()
    assert process.returncode == 0, err
    for name in ("out.jsonl", "out.mp4"):
        same = (killed / name).read_bytes() == (undisturbed / name).read_bytes()
        assert same, f"{name} differs from that of the undisturbed run"
    assert sorted(path.name for path in killed.iterdir()) == ["out.jsonl", "out.mp4"]

    _, err = (process := start_command(*resuming(killed))).communicate()
    assert process.returncode == 2
    assert "nothing to resume" in err


def test_resume_refuses_another_job(clip, tmp_path):
    process = start_command(*arguments(clip, tmp_path))
    wait_for_frames(process, tmp_path / "out.jsonl", 20)
    process.kill()
    process.communicate()
    other = [each if each != "40,30#disc" else "90,30#disc" for each in arguments(clip, tmp_path, "--resume")]
    _, err = (process := start_command(*other)).communicate()
    assert process.returncode == 2
    assert "same arguments" in err
