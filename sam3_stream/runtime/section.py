"""A part of a pipeline that ends in an outbox, such as an edge to another process.

::

    source ─▶ stage ─▶ … ─▶ outbox          inbox ─▶ stage ─▶ … ─▶ outbox
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from sam3_stream.runtime.channel import Channel, OverflowPolicy
from sam3_stream.runtime.worker import Stage, Worker, feed


class Section:
    """Runs records through stages into an outbox, one thread each; the outbox ends the way the stages end.

    Args:
        source: Where records come from. What has a channel's consumer side is the first stage's inbox; anything else is
            iterated in a thread of its own, and when it raises, the outbox gets the error.
        stages: In flow order.
        outbox: Where the last stage puts its records: anything with a channel's producer side.
        queue_size: Capacity of the channels between, in records.
        policy: Their overflow policy.
    """

    def __init__(
        self,
        source: Iterable[Any],
        stages: Sequence[Stage],
        outbox: Channel[Any],
        *,
        queue_size: int = 4,
        policy: OverflowPolicy = "block",
    ) -> None:
        self._stop = threading.Event()
        self._workers: list[Worker] = []
        inbox: Any = source
        channels: list[Channel[Any]] = [Channel(queue_size, policy, stage.name) for stage in stages[1:]] + [outbox]
        if not hasattr(source, "take_waiting"):
            inbox = Channel(queue_size, policy, "source") if stages else outbox
            self._workers.append(_source_worker(source, inbox, self._stop))
        self._channels = [inbox, *channels]
        for stage, before, after in zip(stages, self._channels, channels, strict=False):
            self._workers.append(_stage_worker(stage, before, after))

    @property
    def errors(self) -> tuple[BaseException, ...]:
        """What went wrong here, in flow order."""
        return tuple(worker.error for worker in self._workers if worker.error is not None)

    def run(self) -> None:
        """Return when everything has ended. Errors are in `errors`."""
        for worker in self._workers:
            worker.start()
        for worker in self._workers:
            worker.join()

    def stop(self) -> None:
        """Take no more from the source; what is under way goes through."""
        self._stop.set()

    def cancel(self) -> None:
        """Drop what is under way."""
        self._stop.set()
        for channel in self._channels:
            channel.cancel()


def _source_worker(source: Iterable[Any], outbox: Channel[Any], stop: threading.Event) -> Worker:
    return Worker("source", lambda: feed(source, outbox, stop), outbox=outbox)


def _stage_worker(stage: Stage, inbox: Channel[Any], outbox: Channel[Any]) -> Worker:
    return Worker(stage.name, lambda: stage.run(inbox, outbox), inbox, outbox)
