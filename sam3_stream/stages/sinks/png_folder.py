"""A folder of PNGs named by frame number."""

from __future__ import annotations

import itertools
from pathlib import Path

from sam3_stream.core.errors import OutputError
from sam3_stream.stages.sinks.output_place import check_output_folder, reason, reporting


class PngFolder:
    """Writes ``00000.png``, ``00001.png``, …; every file that has its name is whole, whenever the process is killed.

    Args:
        path: The folder; made if it is not there.
        force: Whether the folder may hold something already. Its numbered PNGs are then replaced, all of them.
        resume: Go on where an earlier, killed process ended: pictures that are there stay.
    """

    def __init__(self, path: Path, *, force: bool, resume: bool = False) -> None:
        self.path = path
        self._force = force or resume
        self._resume = resume

    @property
    def next_sequence(self) -> int:
        """Number of the first frame that has no picture."""
        return next(number for number in itertools.count() if not (self.path / f"{number:05d}.png").exists())

    def check(self, source: Path | None) -> None:
        """Raise `OutputError` unless the folder can be written, or made."""
        check_output_folder(self.path, force=self._force, source=source)

    def open(self) -> None:
        """Make the folder, without pictures of an earlier run."""
        self.check(None)
        try:
            self.path.mkdir(exist_ok=True)
            if self._resume:
                return
            for old in self.path.glob("*.png"):
                if old.stem.isdecimal():
                    old.unlink()
        except OSError as error:
            raise OutputError(f"cannot write the folder {self.path}: {reason(error)}") from error

    def write(self, sequence: int, png: bytes) -> None:
        """Add the picture of a frame.

        Raises:
            SinkError: It cannot be written; the pictures before it are whole.
        """
        growing = self.path / ".growing.part"
        with reporting(self.path, f"write frame {sequence} to"):
            try:
                growing.write_bytes(png)
                growing.replace(self.path / f"{sequence:05d}.png")
            except OSError:
                growing.unlink(missing_ok=True)
                raise
