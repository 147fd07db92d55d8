"""Jobs in several processes, started as a user would, and their processes found and killed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.support.command import start_command

FOUR_GROUPS = {"decoder": "decode", "encoder": "encode", "memory_tracker": "track", "sinks": "write"}
THREE_GROUPS = {"decoder": "decode", "encoder": "track", "memory_tracker": "track", "sinks": "write"}


def write_job(folder: Path, clip: Path, name: str, **changes: Any) -> Path:
    """A config that tracks one box with the fake model into NAME.jsonl and NAME.mp4."""
    tree: dict[str, Any] = {
        "source": {"path": str(clip)},
        "model": {"name": "fake"},
        "prompts": [{"type": "box", "x0": 20, "y0": 20, "x1": 60, "y1": 60, "name": "thing"}],
        "sinks": [
            {"type": "masks", "path": str(folder / f"{name}.jsonl")},
            {"type": "overlay", "path": str(folder / f"{name}.mp4")},
        ],
    } | changes
    if "processes" in tree:
        tree["processes"] = {"directory": str(folder / "run")} | tree["processes"]
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def start_run(config: Path, *more: str) -> subprocess.Popen[str]:
    """Start ``sam3-stream run CONFIG --quiet``."""
    return start_command("run", config, "--quiet", *more)


def group_processes(supervisor: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """The processes of a run's groups that are alive."""
    found = {}
    for child in psutil.Process(supervisor.pid).children():
        try:
            arguments = child.cmdline()
        except psutil.Error:
            continue
        if "sam3_stream.cli.group_process" in arguments and child.status() != psutil.STATUS_ZOMBIE:
            found[arguments[arguments.index("sam3_stream.cli.group_process") + 2]] = child
    return found


def rows(masks: Path) -> list[int]:
    """Frame numbers of the whole lines of a masks file."""
    if not masks.exists():
        return []
    lines = masks.read_bytes().split(b"\n")[1:-1]
    return [json.loads(line)["frame"] for line in lines]


def wait_until(condition: Callable[[], bool], run: subprocess.Popen[str], timeout_s: float = 120) -> bool:
    """Wait for a condition; False when the run ended before."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if run.poll() is not None:
            return False
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.005)
    return True


def finish(run: subprocess.Popen[str], timeout_s: float = 240) -> tuple[int, str]:
    """Wait for a run to end: exit code and what it wrote to stderr."""
    try:
        _, err = run.communicate(timeout=timeout_s)
    finally:
        run.kill()
    return run.returncode, err


def kill_group(run: subprocess.Popen[str], name: str) -> bool:
    """Kill a group's process as ``kill -9`` does; False when it is not there."""
    process = group_processes(run).get(name)
    if process is None:
        return False
    process.kill()
    return True


def names_of(groups: dict[str, str]) -> Sequence[str]:
    return list(dict.fromkeys(groups.values()))
