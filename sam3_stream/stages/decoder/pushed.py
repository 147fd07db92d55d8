"""A live source whose pictures somebody hands in: a browser's camera, for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import av

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import StreamError
from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.core.span_rate import SpanRate
from sam3_stream.core.stream_status import SourceStatus, StreamState
from sam3_stream.runtime.channel import Cancelled, Channel
from sam3_stream.stages.decoder.orientation import Orientation
from sam3_stream.stages.decoder.picture import VideoPicture
from sam3_stream.stages.decoder.stream_clock import STREAM_TIME_BASE, StreamClock, StreamTime

_STALLED_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class _Pushed:
    image: av.VideoFrame
    number: int
    time: StreamTime
    capture_time_s: float


class PushedDecoder:
    """Gives the newest picture that has been pushed; those that nobody took in time are dropped.

    Args:
        stream_id: The stream's name.
        clock: The machine's own when None.
        on_status: Called with the new status when the state changes.
    """

    def __init__(
        self,
        stream_id: str,
        *,
        clock: Clock | None = None,
        on_status: Callable[[SourceStatus], None] | None = None,
    ) -> None:
        self._stream_id = stream_id
        self._clock = clock or SystemClock()
        self._on_status = on_status
        self._pictures: Channel[_Pushed] = Channel(1, "latest", "source")
        self._stream_clock = StreamClock()
        self._rate = SpanRate()
        self._pushed = 0
        self._connections = 0
        self._last_s = 0.0
        self._state: StreamState = "connecting"
        self._first: Frame | None = None
        self._epoch = 0

    def connect(self) -> None:
        """Say that the pictures that follow come from somebody new."""
        self._connections += 1
        self._stream_clock.reconnected()

    def push(self, image: av.VideoFrame) -> None:
        """Hand in a picture; never waits. From one thread at a time."""
        now_s = self._clock.monotonic_s()
        time = self._stream_clock(None, STREAM_TIME_BASE, now_s)
        picture = _Pushed(image, self._pushed, time, self._clock.wall_s())
        self._pushed += 1
        self._last_s = now_s
        self._rate.count(now_s)
        self._enter("live")
        try:
            self._pictures.put(picture)
        except (Cancelled, RuntimeError):
            return  # the stream has ended; whoever pushes will learn of it

    @property
    def info(self) -> StreamInfo:
        """Facts of the first picture; waits for it.

        Raises:
            StreamError: The stream was closed before its first picture.
        """
        if self._first is None:
            self._first = next(self._frames(), None)
        if self._first is None:
            self._enter("ended")
            raise StreamError(f"stream {self._stream_id} was closed before its first picture")
        frame = self._first
        return StreamInfo(frame.width, frame.height, frame.time_base)

    @property
    def status(self) -> SourceStatus:
        """How the stream is now; from any thread."""
        now_s, state, reason = self._clock.monotonic_s(), self._state, ""
        if state == "connecting":
            reason = "waiting for somebody to share a camera"
        elif state == "live" and now_s - self._last_s > _STALLED_AFTER_S:
            state, reason = "stalled", "nobody shares a camera at present"
        return SourceStatus(
            state=state,
            reason=reason,
            connections=self._connections,
            decoded=self._pushed,
            dropped={"overflow": self._pictures.dropped},
            fps=self._rate.per_second(now_s),
        )

    def __iter__(self) -> Iterator[Frame]:
        """Yield frames until the stream is closed."""
        if self._first is not None:
            first, self._first = self._first, None
            yield first
        yield from self._frames()
        self._enter("ended")

    def close(self) -> None:
        """Take no more pictures; a waiting iteration ends. From any thread, more than once."""
        self._pictures.close()

    def _frames(self) -> Iterator[Frame]:
        for picture in self._pictures:
            discontinuity, self._epoch = picture.time.epoch != self._epoch, picture.time.epoch
            yield Frame(
                stream_id=self._stream_id,
                sequence=picture.number,
                pts=picture.time.pts,
                time_base=STREAM_TIME_BASE,
                picture=VideoPicture(picture.image, Orientation()),
                capture_time_s=picture.capture_time_s,
                discontinuity=discontinuity,
            )

    def _enter(self, state: StreamState) -> None:
        if state != self._state:
            self._state = state
            if self._on_status is not None:
                self._on_status(self.status)
