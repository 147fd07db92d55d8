"""Which frames the model runs on: evenly spread, whatever the share."""

from __future__ import annotations


class SkipPattern:
    """Runs the model on `tracked` of every `of` frames, as evenly as whole frames allow.

    A frame that had to be skipped although it was due is made up for by the next one.
    """

    def __init__(self) -> None:
        self._credit = 0
        self._tracked, self._of = 1, 1
        self.skipped = 0
        """Frames in a row that went without the model."""

    @property
    def due(self) -> bool:
        """Whether the model is to run on this frame."""
        return self._credit + self._tracked >= self._of

    def change(self, tracked: int, of: int) -> None:
        """Use another share from now on, beginning with a tracked frame."""
        self._tracked, self._of = tracked, of
        self._credit = of - tracked

    def count(self, tracked: bool) -> None:
        """Tell what was done with this frame."""
        self._credit = min(self._credit + self._tracked, self._of + self._tracked - 1)
        if tracked:
            self._credit = max(0, self._credit - self._of)
        self.skipped = 0 if tracked else self.skipped + 1
