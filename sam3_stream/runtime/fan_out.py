"""The producer's side of several channels at once: everything put in goes to each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

from sam3_stream.runtime.channel import Cancelled, Channel

T = TypeVar("T")


class FanOut(Generic[T]):
    """Copies every item to every outlet that still takes items; the outlets end as it ends.

    Args:
        on_last_sink_gone: Called when every outlet that was added as a sink's has been cancelled.

    Attributes:
        error: The error that it was ended with, if it was.
    """

    def __init__(self, on_last_sink_gone: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._on_last_sink_gone = on_last_sink_gone
        self._outlets: list[Channel[T]] = []
        self._sinks: list[Channel[T]] = []
        self._cancelled = False

    def add(self, outlet: Channel[T], *, sink: bool) -> None:
        """Add an outlet, before the first item."""
        self._outlets.append(outlet)
        if sink:
            self._sinks.append(outlet)

    def put(self, item: T) -> None:
        """Hand an item to every outlet, waiting for room as their policies say.

        Raises:
            Cancelled: The whole was cancelled.
        """
        if self._cancelled:
            raise Cancelled
        for outlet in self._outlets:
            with contextlib.suppress(Cancelled):
                outlet.put(item)
        if self._sinks and all(outlet.cancelled for outlet in self._sinks):
            self._on_last_sink_gone()

    def close(self) -> None:
        """Say that no more items come."""
        for outlet in self._outlets:
            outlet.close()

    def fail(self, error: BaseException) -> None:
        """Say that the producer broke; every outlet gives the error after all items."""
        self.error = error
        for outlet in self._outlets:
            outlet.fail(error)

    def cancel(self) -> None:
        """Discard what waits."""
        self._cancelled = True
        for outlet in self._outlets:
            outlet.cancel()
