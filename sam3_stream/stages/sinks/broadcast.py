"""The newest results to any number of subscribers, none of which holds up the stream or another."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from sam3_stream.core.errors import CapacityError
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.runtime.channel import Cancelled, Channel

Subscription = Channel[TrackedFrame]


class BroadcastSink:
    """Hands each frame to every subscriber through a channel that drops its oldest.

    It outlives the pipelines that it is a sink of: subscribers stay through a restart.

    Args:
        most_subscribers: How many there may be.

    Attributes:
        latest: The newest frame; None before the first.
    """

    name = "broadcast"

    def __init__(self, most_subscribers: int = 200) -> None:
        self.latest: TrackedFrame | None = None
        self._most_subscribers = most_subscribers
        self._lock = threading.Lock()
        self._subscriptions: list[Subscription] = []
        self._ended = False

    def subscribe(self, capacity: int = 2) -> Subscription:
        """Get frames from now on; cancel what is returned to get no more.

        Args:
            capacity: How many frames may wait; then the oldest are dropped.

        Raises:
            CapacityError: There are too many subscribers.
        """
        subscription: Subscription = Channel(capacity, "drop_oldest", "subscription")
        with self._lock:
            self._drop_cancelled()
            if len(self._subscriptions) >= self._most_subscribers:
                raise CapacityError(f"{self._most_subscribers} subscribers are there already; come back later")
            if self._ended:
                subscription.close()
            self._subscriptions.append(subscription)
        return subscription

    def check(self, source: Path | None = None) -> None:
        """There is nothing that could be wrong."""

    def open(self, info: StreamInfo, header: RunHeader) -> None:
        """There is nothing to open."""

    def write(self, tracked: TrackedFrame) -> None:
        self.latest = tracked
        with self._lock:
            self._drop_cancelled()
            for subscription in self._subscriptions:
                with contextlib.suppress(Cancelled):  # it has left in this moment
                    subscription.put(tracked)

    def close(self) -> None:
        """The subscribers stay; see `end`."""

    def end(self) -> None:
        """Say that no more frames come, ever."""
        with self._lock:
            self._ended = True
            for subscription in self._subscriptions:
                subscription.close()

    def _drop_cancelled(self) -> None:
        self._subscriptions = [each for each in self._subscriptions if not each.cancelled]
