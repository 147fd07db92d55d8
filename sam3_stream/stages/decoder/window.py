"""Which frames of a source are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from sam3_stream.core.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a stream. Frames are numbered from 0 at its first frame.

    Attributes:
        start_s: The first frame is the first at or after this time; None for the beginning.
        end_s: The last frame is the last before this time; None for the end.
        max_frames: How many frames at most.
        first_sequence: Frames before this number are left out; the others keep their numbers.
    """

    start_s: float | None = None
    end_s: float | None = None
    max_frames: int | None = None
    first_sequence: int = 0

    def __post_init__(self) -> None:
        if self.start_s is not None and self.start_s < 0:
            raise UsageError(f"the start must be 0 or more seconds, got {self.start_s:g}")
        if self.end_s is not None and self.end_s <= (self.start_s or 0):
            raise UsageError(f"the end ({self.end_s:g} s) must come after the start ({self.start_s or 0:g} s)")
        if self.max_frames is not None and self.max_frames < 1:
            raise UsageError(f"the number of frames must be 1 or more, got {self.max_frames}")

    def select(self, timed: Iterable[tuple[float, T]], first_number: int = 0) -> Iterator[tuple[int, T]]:
        """Number the items of the window and leave the others out.

        Args:
            timed: Items with their times in seconds, in increasing order.
            first_number: Number of the first item that lies in the window.
        """
        number = first_number
        for time_s, item in timed:
            if self.start_s is not None and time_s < self.start_s:
                continue
            if self.end_s is not None and time_s >= self.end_s:
                return
            if number >= self.first_sequence:
                yield number, item
            number += 1
            if number == self.max_frames:  # asked here, so that no frame beyond the last is decoded
                return
