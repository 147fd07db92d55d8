"""Many streams side by side: added and removed while they run, none disturbed by another."""

from __future__ import annotations

import logging
import threading
from typing import Generic, Protocol, TypeVar

from sam3_stream.core.clock import SystemClock
from sam3_stream.core.errors import UsageError

_log = logging.getLogger(__name__)


class ServedStream(Protocol):
    """One stream, from its source to its sinks."""

    @property
    def name(self) -> str:
        """Unique among the streams of a service."""

    def run(self) -> None:
        """Run until the stream ends, is stopped or fails; raises when it fails."""

    def stop(self) -> None:
        """Take no more frames and finish the outputs; `run` then returns. From any thread, more than once."""


S = TypeVar("S", bound=ServedStream)


class StreamService(Generic[S]):
    """Runs each stream in a thread of its own. One that has failed stays until removed, so that it can be asked why."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may call `stop` while this thread is in here
        self._streams: dict[str, tuple[S, threading.Thread]] = {}

    @property
    def streams(self) -> tuple[S, ...]:
        """The streams, in the order in which they were added."""
        with self._lock:
            return tuple(stream for stream, _ in self._streams.values())

    def add(self, stream: S) -> None:
        """Start a stream.

        Raises:
            UsageError: There is one of this name already.
        """
        thread = threading.Thread(target=_run, args=(stream,), name=f"sam3_stream-{stream.name}", daemon=True)
        with self._lock:
            if stream.name in self._streams:
                raise UsageError(f"there is a stream {stream.name!r} already; remove it first, or take another name")
            self._streams[stream.name] = (stream, thread)
            thread.start()

    def remove(self, name: str) -> None:
        """Stop a stream, wait until its outputs are finished, and forget it.

        Raises:
            UsageError: There is no stream of this name.
        """
        with self._lock:
            if name not in self._streams:
                raise UsageError(f"there is no stream {name!r}; there are: {', '.join(self._streams) or 'none'}")
            stream, thread = self._streams[name]
        stream.stop()
        thread.join()
        with self._lock:
            self._streams.pop(name, None)

    def stop(self) -> None:
        """Stop every stream; `wait` returns when all outputs are finished."""
        for stream in self.streams:
            stream.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every stream has ended; True when they have."""
        with self._lock:
            threads = [thread for _, thread in self._streams.values()]
        clock = SystemClock()
        deadline_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
        for thread in threads:
            thread.join(None if deadline_s is None else max(0.0, deadline_s - clock.monotonic_s()))
        return not any(thread.is_alive() for thread in threads)


def _run(stream: ServedStream) -> None:
    try:
        stream.run()
    except Exception as error:
        _log.error("stream %s has failed: %s", stream.name, error)
