"""Weights that are there when they are needed and gone when they have not been for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sam3_stream.core.clock import Clock
from sam3_stream.models.sam3.engine import Engine
from sam3_stream.models.sam3.oom import free_cached_memory, logger


class EngineHolder:
    """Loads the engine when it is first used, and unloads it when nobody has used it for a time.

    Args:
        load: Makes the engine.
        clock: Time.
        idle_unload_s: After so many seconds without use it goes; None keeps it.
        on_unload: Called when it has gone, so that what else is in memory goes with it.
    """

    def __init__(
        self, load: Callable[[], Engine], clock: Clock, idle_unload_s: float | None, on_unload: Callable[[], None]
    ) -> None:
        self._load = load
        self._on_unload = on_unload
        self._clock = clock
        self._idle_unload_s = idle_unload_s
        self._engine: Engine | None = None
        self._users = 0
        self._last_use_s = 0.0
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None

    @property
    def loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._engine is not None

    @contextmanager
    def use(self) -> Iterator[Engine]:
        """The engine, loaded if need be; it stays while the context lasts."""
        with self._lock:
            if self._engine is None:
                self._engine = self._load()
                self._start_watch()
            engine = self._engine
            self._users += 1
        try:
            yield engine
        finally:
            with self._lock:
                self._users -= 1
                self._last_use_s = self._clock.monotonic_s()

    def unload_if_idle(self) -> bool:
        """Unload if nobody has used the engine for long enough; whether it was unloaded."""
        with self._lock:
            if self._engine is None or self._users or self._idle_unload_s is None:
                return False
            if self._clock.monotonic_s() - self._last_use_s < self._idle_unload_s:
                return False
            self._engine = None
        self._on_unload()
        free_cached_memory()
        logger.info("unloaded the SAM 3 weights after %g s without a frame", self._idle_unload_s)
        return True

    def close(self) -> None:
        """Unload for good. Safe to call twice."""
        self._closed.set()
        with self._lock:
            self._engine = None
        self._on_unload()
        free_cached_memory()

    def _start_watch(self) -> None:
        if self._idle_unload_s is None or (self._watch is not None and self._watch.is_alive()):
            return
        self._watch = threading.Thread(target=self._run_watch, name="sam3-idle-watch", daemon=True)
        self._watch.start()

    def _run_watch(self) -> None:
        assert self._idle_unload_s is not None
        while not self._closed.wait(max(0.05, self._idle_unload_s / 4)):
            if self.unload_if_idle():
                return
