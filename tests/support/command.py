"""Runs the `sam3-stream` command as a user would, in this process (quick) or in one of its own (to kill it)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sam3_stream.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a user sees of a finished command."""

    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The one line that a failed command ends with; fails the test when there is a traceback or more than one."""
        lines = [line for line in self.err.splitlines() if line.startswith("sam3-stream: error: ")]
        assert "Traceback" not in self.err, self.err
        assert len(lines) == 1, self.err
        return lines[0]


@dataclass(frozen=True)
class Command:
    """Calls the command's own entry point with arguments."""

    monkeypatch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", ["sam3-stream", *map(str, arguments)])
        self.capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        captured = self.capfd.readouterr()
        return Outcome(code, captured.out, captured.err)


def start_command(*arguments: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    program = "from sam3_stream.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )
