"""Ctrl-C and SIGTERM, which ask a command to finish in order."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stopping_on_signals(stop: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `stop` on Ctrl-C and SIGTERM, instead of ending the process, until the end of the ``with`` block."""
    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
