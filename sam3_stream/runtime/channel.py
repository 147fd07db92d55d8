"""A bounded channel between two stages, with a named overflow policy and a drop counter.

Three signals end a channel and never pass for one another:

* end of stream: `Channel.close`; the consumer gets every queued item, then iteration ends.
* error: `Channel.fail`; the consumer gets every queued item, then the error is raised.
* cancellation: `Channel.cancel`, by either side; queued items are discarded and both sides get `Cancelled` at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

OverflowPolicy = Literal["block", "drop_oldest", "latest"]

T = TypeVar("T")


class EndOfStream(Exception):
    """The producer has closed the channel and every item has been taken."""


class Cancelled(Exception):
    """Somebody cancelled the channel; there is nothing to finish."""


class Channel(Generic[T]):
    """A bounded first-in first-out queue between two threads.

    Args:
        capacity: How many items may wait, 1 or more.
        policy: What `put` does when the channel is full: ``block`` waits for room, ``drop_oldest`` discards the
            oldest waiting item, ``latest`` keeps only the newest item whatever the capacity.
        name: For error messages and metrics.
    """

    def __init__(self, capacity: int, policy: OverflowPolicy = "block", name: str = "") -> None:
        if capacity < 1:
            raise ValueError(f"a channel needs room for 1 item or more, got a capacity of {capacity}")
        self.capacity = 1 if policy == "latest" else capacity
        self.policy = policy
        self.name = name
        self._dropped = 0
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._not_empty = threading.Condition(self._lock)
        self._not_full = threading.Condition(self._lock)
        self._closed = False
        self._cancelled = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def dropped(self) -> int:
        """How many items the overflow policy has discarded so far."""
        return self._dropped

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled the channel."""
        return self._cancelled

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more: closed or cancelled, and everything taken."""
        return self._cancelled or (self._closed and not self._items)

    @property
    def error(self) -> BaseException | None:
        """The error that the producer ended the channel with, if it did."""
        return self._error

    def put(self, item: T) -> None:
        """Hand over an item, waiting for room if the policy is ``block``.

        Raises:
            Cancelled: The channel was cancelled, before or while waiting.
            RuntimeError: The channel was closed by its own producer.
        """
        with self._lock:
            while True:
                if self._cancelled:
                    raise Cancelled
                if self._closed:
                    raise RuntimeError(f"channel {self.name!r} was closed; nothing can be put into it any more")
                if len(self._items) < self.capacity:
                    break
                if self.policy == "block":
                    self._not_full.wait()
                else:
                    self._items.popleft()
                    self._dropped += 1
            self._items.append(item)
            self._not_empty.notify()

    def get(self, timeout_s: float | None = None) -> T:
        """Take the oldest item, waiting for one.

        Raises:
            EndOfStream: The producer closed the channel and it is empty.
            Cancelled: The channel was cancelled.
            TimeoutError: Nothing came within ``timeout_s`` seconds.
            BaseException: The error that the producer passed to `fail`, after all items.
        """
        with self._lock:
            while not self._items:
                if self._cancelled:
                    raise Cancelled
                if self._error is not None:
                    raise self._error
                if self._closed:
                    raise EndOfStream
                if not self._not_empty.wait(timeout_s):
                    raise TimeoutError(f"nothing came through channel {self.name!r} within {timeout_s} s")
            item = self._items.popleft()
            self._not_full.notify()
            return item

    def take_waiting(self, limit: int) -> list[T]:
        """Take up to ``limit`` items that wait already, without waiting for more."""
        with self._lock:
            taken = [self._items.popleft() for _ in range(min(limit, len(self._items)))]
            self._not_full.notify(len(taken))
            return taken

    def close(self) -> None:
        """Say that no more items come. Does nothing after `fail` or `cancel`."""
        self._end(error=None)

    def fail(self, error: BaseException) -> None:
        """Say that the producer broke; the consumer gets the error after all items."""
        self._end(error=error)

    def cancel(self) -> None:
        """Discard what waits and wake both sides with `Cancelled`."""
        with self._lock:
            self._cancelled = True
            self._items.clear()
            self._not_empty.notify_all()
            self._not_full.notify_all()

    def __iter__(self) -> Iterator[T]:
        """Yield items until end of stream; raises as `get` does."""
        while True:
            try:
                item = self.get()
            except EndOfStream:
                return
            yield item

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            if self._closed or self._cancelled:
                return
            self._closed = True
            self._error = error
            self._not_empty.notify_all()
            self._not_full.notify_all()
