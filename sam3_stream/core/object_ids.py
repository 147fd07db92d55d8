"""The one owner of public object ids."""

from __future__ import annotations

import threading


class ObjectIds:
    """Hands out public object ids from 1 up; none is ever given twice in the life of a stream."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self) -> int:
        """The next id."""
        with self._lock:
            self._last += 1
            return self._last

    @property
    def last(self) -> int:
        """The id given last; 0 when none has been."""
        return self._last

    def resume_after(self, last: int) -> None:
        """Go on after an id that an earlier run gave."""
        with self._lock:
            self._last = max(self._last, last)
