"""Plays a video file like a camera, without end: forth and back, or over and over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.core.span_rate import SpanRate
from sam3_stream.core.stream_status import SourceStatus, StreamState
from sam3_stream.stages.decoder import open_source
from sam3_stream.stages.decoder.stream_clock import STREAM_TIME_BASE

_log = logging.getLogger(__name__)

_BYTES_HELD = 512 << 20
_BYTES_PER_PIXEL = 1.5
_TICKS_PER_S = STREAM_TIME_BASE.denominator
_MOST_BEHIND_S = 1.0


class LoopedFileDecoder:
    """Frames of a file, each when its time has come; those whose time is over when they are asked for are dropped.

    Forth and back, the picture never jumps. The decoded pictures of the whole clip are kept for that; where they do not
    fit into 512 MB, the clip is played over and over.

    Args:
        path: A video, or a folder of images.
        stream_id: The stream's name.
        forth_and_back: Whether every other pass goes backwards.
        clock: The machine's own when None.
        on_status: Called with the new status when the state changes.

    Raises:
        InputError: The file cannot be played.
    """

    def __init__(
        self,
        path: Path,
        stream_id: str,
        *,
        forth_and_back: bool = True,
        clock: Clock | None = None,
        on_status: Callable[[SourceStatus], None] | None = None,
    ) -> None:
        self._path = path
        self._stream_id = stream_id
        self._forth_and_back = forth_and_back
        self._clock = clock or SystemClock()
        self._on_status = on_status
        self._closed = threading.Event()
        self._state: StreamState = "connecting"
        self._rate = SpanRate()
        self._held: list[Frame] = []
        self._played = 0
        self._late = 0
        with open_source(path) as source:
            self._info = source.info
        self._step_s = 1 / float(self._info.average_rate or 25)

    @property
    def info(self) -> StreamInfo:
        """What the file says of itself, as a live stream without end."""
        return replace(self._info, time_base=STREAM_TIME_BASE, frame_count=None, duration_s=None, has_audio=False)

    @property
    def status(self) -> SourceStatus:
        """How the stream is now; from any thread."""
        return SourceStatus(
            state=self._state,
            connections=1,
            decoded=self._played,
            dropped={"overflow": self._late},
            fps=self._rate.per_second(self._clock.monotonic_s()),
        )

    def __iter__(self) -> Iterator[Frame]:
        """Yield frames until the stream is closed."""
        started_s: float | None = None
        for number, (frame, time_s) in enumerate(self._timed()):
            now_s = self._clock.monotonic_s()
            if started_s is None or now_s - started_s - time_s > _MOST_BEHIND_S:
                started_s = now_s - time_s
                self._enter("live")
            if self._closed.wait(max(0.0, started_s + time_s - now_s)):
                break
            self._played += 1
            self._rate.count(self._clock.monotonic_s())
            if now_s - started_s - time_s > self._step_s:
                self._late += 1
                continue
            yield replace(
                frame,
                stream_id=self._stream_id,
                sequence=number,
                pts=round(time_s * _TICKS_PER_S),
                time_base=STREAM_TIME_BASE,
                start_pts=0,
                capture_time_s=self._clock.wall_s(),
            )
        self._enter("ended")

    def close(self) -> None:
        """Give no more frames. From any thread, more than once."""
        self._closed.set()

    def _timed(self) -> Iterator[tuple[Frame, float]]:
        """The frames of pass after pass, with the time since the beginning of the first."""
        time_s, last_s = -self._step_s, None
        for frames in self._passes():
            for frame in frames:
                time_s += self._step_s if last_s is None else abs(frame.time_s - last_s) or self._step_s
                yield frame, time_s
                last_s = frame.time_s
            if not self._held:
                last_s = None  # the next pass begins anew, a step later

    def _passes(self) -> Iterator[Iterator[Frame]]:
        if self._forth_and_back:
            yield self._holding()
        while not self._held:
            yield self._decoded()
        if len(self._held) == 1:
            self._held *= 2  # a picture that stands still
        while True:
            self._held.reverse()
            yield iter(self._held[1:])  # the frame on which it turns has been shown

    def _holding(self) -> Iterator[Frame]:
        """The first pass; at its end `_held` has all its frames, or none where they are too many."""
        limit = _BYTES_HELD / (self._info.width * self._info.height * _BYTES_PER_PIXEL)
        held: list[Frame] | None = []
        for frame in self._decoded():
            if held is not None and len(held) >= limit:
                held = None
                _log.warning("%s is too long to be played backwards, too; it is played over and over", self._path)
            if held is not None:
                held.append(frame)
            yield frame
        self._held = held or []

    def _decoded(self) -> Iterator[Frame]:
        with open_source(self._path) as source:
            yield from source

    def _enter(self, state: StreamState) -> None:
        if state != self._state:
            self._state = state
            if self._on_status is not None:
                self._on_status(self.status)
