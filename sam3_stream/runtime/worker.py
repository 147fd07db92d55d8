"""One thread a stage, and how its end is passed on.

A stage reads from its inbox and writes to its outbox; it never thinks about threads. The worker turns the three ways in
which a stage can end into the channel signals of the same meaning, so that errors travel downstream behind the last
good item and a broken stage never leaves its neighbours waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from sam3_stream.core.errors import Sam3StreamError, StageError
from sam3_stream.runtime.channel import Cancelled, Channel
from sam3_stream.runtime.fan_out import FanOut

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Stage(Protocol):
    """A step of the pipeline: takes records from one channel and puts others into the next."""

    @property
    def name(self) -> str:
        """Name for errors, thread names and metrics."""

    def run(self, inbox: Channel[Any], outbox: Channel[Any]) -> None:
        """Handle every item of the inbox; return at its end. The worker ends the outbox."""


class Worker:
    """Runs one function in a thread and ends its channels the way it ended.

    Args:
        name: Name of the stage.
        target: What to run; it uses the channels by itself.
        inbox: Cancelled when the target raises, so that the producer stops. None for a source.
        outbox: Closed, failed or cancelled when the target returns, raises or is cancelled. None for a sink.
    """

    def __init__(
        self,
        name: str,
        target: Callable[[], None],
        inbox: Channel[Any] | None = None,
        outbox: Channel[Any] | FanOut[Any] | None = None,
    ) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._target = target
        self._inbox = inbox
        self._outbox = outbox
        self._thread = threading.Thread(target=self._run, name=f"sam3_stream-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread to end; True when it has, or was never started."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._target()
        except Cancelled:
            self._end_both()
        except BaseException as error:
            self._pass_on(error)
        else:
            if self._outbox is not None:
                self._outbox.close()

    def _end_both(self) -> None:
        for channel in (self._inbox, self._outbox):
            if channel is not None:
                channel.cancel()

    def _pass_on(self, error: BaseException) -> None:
        came_from_upstream = self._inbox is not None and self._inbox.error is error
        if not came_from_upstream:
            if not isinstance(error, Sam3StreamError):
                error = StageError(self.name, error)
            self.error = error
            if self._inbox is not None:
                self._inbox.cancel()
        if self._outbox is not None:
            self._outbox.fail(error)


def feed(items: Iterable[Any], outbox: Channel[Any], stop: threading.Event) -> None:
    """Put every item of a source into a channel, until there is no more or `stop` is set."""
    for item in items:
        if stop.is_set():
            return
        outbox.put(item)
        del item  # or the last picture would be kept while the next is decoded, at a twentieth of the speed
