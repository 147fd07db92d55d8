"""The masks file: one line of JSON a frame, whole at any moment."""

from __future__ import annotations

import json
import os
from pathlib import Path

from sam3_stream.core.errors import OutputError
from sam3_stream.core.masks_format import MasksHeader, row_to_line
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.output_place import check_output_file, reason, remove_if_empty, reporting


class MasksSink:
    """Writes the masks as JSON Lines; see `core.masks_format` and docs/masks-format.md.

    Every line goes out in one write to an unbuffered file, so that a kill leaves whole lines; a line that a full disk
    cut short is taken back.

    Args:
        path: The file.
        force: Replace a file that is there.
        resume: Go on where a file that is there ends: its rows stay, frames that they hold are passed over, and the
            other frames are appended. Its header must be the same. Without such a file, begin one.
    """

    name = "masks"

    def __init__(self, path: str | Path, *, force: bool = False, resume: bool = False) -> None:
        self.path = Path(path)
        self._force = force
        self._resume = resume
        self._fd: int | None = None
        self._size = 0
        self._next_sequence = 0

    @property
    def next_sequence(self) -> int:
        """Number of the first frame that a file to go on with does not hold."""
        if self._fd is None and self._resume and self.path.exists():
            self._find_end(None)
        return self._next_sequence

    def check(self, source: Path | None = None) -> None:
        check_output_file(self.path, force=self._force or self._resume, source=source, device=True)

    def open(self, info: StreamInfo, header: RunHeader) -> None:
        self.check()
        line = MasksHeader.of(info, header).to_line()
        kept_bytes = self._find_end(line) if self._resume and self.path.exists() else 0
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._keep(kept_bytes)
            if not kept_bytes:
                self._append(line)
        except OSError as error:
            self.close()
            remove_if_empty(self.path)
            raise OutputError(f"cannot write the masks file {self.path}: {reason(error)}") from error

    def write(self, tracked: TrackedFrame) -> None:
        if tracked.frame.sequence < self._next_sequence:
            return
        with reporting(self.path, f"write the masks of frame {tracked.frame.sequence} to"):
            self._append(row_to_line(tracked))

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with reporting(self.path, "close"):
                os.close(fd)

    def _append(self, line: bytes) -> None:
        if self._fd is None:
            raise ValueError("the masks sink is not open")
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            self._keep(self._size)
            raise
        self._size += len(line)

    def _keep(self, size: int) -> None:
        assert self._fd is not None
        if self.path.is_file():  # a pipe or a device takes bytes and cannot give them back
            if os.lseek(self._fd, 0, os.SEEK_END) > size:
                os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)
        self._size = size

    def _find_end(self, header_line: bytes | None) -> int:
        """Bytes of the whole lines in the file to go on with; also notes which frames they hold.

        Args:
            header_line: What the first line must be; anything when None.
        """
        size, last_line, rows = 0, b"", 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if size == 0 and header_line not in (None, line):
                    raise OutputError(
                        f"cannot go on with {self.path}: it was not written for this input, model and prompts; "
                        "give the same arguments again, or --force instead of --resume"
                    )
                size += len(line)
                last_line = line
                rows += 1
        if rows > 1:
            self._next_sequence = json.loads(last_line)["frame"] + 1
        return size
