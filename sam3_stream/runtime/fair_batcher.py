"""One function for many callers: takes what they hand in, in batches, and starves none."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


class FairBatcher(Generic[In, Out]):
    """Runs a function over items from many threads, in one thread of its own and several items at a time.

    Each caller waits for its result, so it has one item in the queue at most; the queue is first come, first served.
    So callers take turns: none gets a second item in before every other that waits has had its first.

    Args:
        process: Gets a batch and gives one result for each item, in order.
        max_batch: How many items at most go into one call.
    """

    def __init__(self, process: Callable[[Sequence[In]], Sequence[Out]], max_batch: int = 8) -> None:
        if max_batch < 1:
            raise ValueError(f"max_batch must be 1 or more, got {max_batch}")
        self._process = process
        self._max_batch = max_batch
        self._waiting: queue.SimpleQueue[tuple[In, Future[Out]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="sam3_stream-batcher", daemon=True)
        self._thread.start()

    def __call__(self, item: In) -> Out:
        """The function's result for this item.

        Raises:
            Exception: What the function raised for this item. An item that breaks a batch breaks no other.
            RuntimeError: The batcher is closed.
        """
        future: Future[Out] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the batcher is closed")
            self._waiting.put((item, future))
        return future.result()

    @property
    def queue_depth(self) -> int:
        """How many items wait."""
        return self._waiting.qsize()

    def close(self) -> None:
        """Finish what waits, then end the thread. Safe to call twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        entry = self._waiting.get()
        while entry is not None:
            batch = [entry]
            entry = None
            while len(batch) < self._max_batch and not self._waiting.empty():
                entry = self._waiting.get()
                if entry is None:
                    self._finish(batch)
                    return
                batch.append(entry)
            self._finish(batch)
            entry = self._waiting.get()

    def _finish(self, batch: Sequence[tuple[In, Future[Out]]]) -> None:
        try:
            results = self._process([item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for entry in batch:
                self._finish([entry])
            return
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)
