"""Plays a file as if it were a camera."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.stages.decoder import FrameSource


class RealtimeSource:
    """Gives each frame when its time has come, counted from when the first one was asked for.

    Frames carry the time at which they were given as their capture time.

    Args:
        source: Whose frames; closed with it.
        clock: The machine's own when None.
    """

    def __init__(self, source: FrameSource, clock: Clock | None = None) -> None:
        self._source = source
        self._clock = clock or SystemClock()
        self._closed = threading.Event()
        self._playing = False

    @property
    def info(self) -> StreamInfo:
        """See `FrameSource.info`."""
        return self._source.info

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames in order, none before its time."""
        self._playing = True
        started_s: float | None = None
        try:
            for frame in self._source:
                now_s = self._clock.monotonic_s()
                if started_s is None:
                    started_s = now_s - frame.time_s
                self._clock.sleep(max(0.0, started_s + frame.time_s - now_s))
                if self._closed.is_set():
                    return
                yield replace(frame, capture_time_s=self._clock.wall_s())
        finally:
            self._source.close()

    def close(self) -> None:
        """Give no more frames. From any thread, more than once."""
        self._closed.set()
        if not self._playing:
            self._source.close()
