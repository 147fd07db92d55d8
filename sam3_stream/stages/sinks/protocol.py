"""What every output is: checked before any work, opened once, written frame by frame, closed."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame


class Sink(Protocol):
    """One output of a stream. Owned by one thread; a failing sink touches no other."""

    name: str

    def check(self, source: Path | None = None) -> None:
        """See, before any work is done, whether the output can be made; changes nothing.

        Args:
            source: The input, where it is a file or a folder; an output never overwrites it, `force` or not.

        Raises:
            OutputError: It exists already, it is the source, or its place does not exist or cannot be written.
        """

    def open(self, info: StreamInfo, header: RunHeader) -> None:
        """Begin the output. Called once, before the first frame.

        Raises:
            OutputError: It cannot be made.
        """

    def write(self, tracked: TrackedFrame) -> None:
        """Add a frame's results.

        Raises:
            SinkError: It cannot be written any more (a full disk, …). What was written before stays usable; no more
                frames may follow, but `close` must.
        """

    def close(self) -> None:
        """Finish the output. Safe after a failed write, before `open`, and twice.

        Raises:
            SinkError: It cannot be finished; what was written before stays usable.
        """


class ResumableSink(Sink, Protocol):
    """A sink that can go on where a killed process ended. Frames that it holds already are passed over."""

    @property
    def next_sequence(self) -> int:
        """Number of the first frame that it does not hold."""
