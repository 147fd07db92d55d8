"""A live source as frames: connects, watches, reconnects, and keeps stream time going forward."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import tenacity

from sam3_stream.config.live import LiveSourceConfig
from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import StreamError
from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.core.stream_status import SourceStatus, StreamState
from sam3_stream.runtime.channel import Cancelled, EndOfStream
from sam3_stream.stages.decoder.connection import Connection, LivePicture, SourceTally
from sam3_stream.stages.decoder.opening_live import display_address
from sam3_stream.stages.decoder.picture import VideoPicture
from sam3_stream.stages.decoder.stream_clock import STREAM_TIME_BASE, StreamClock

_log = logging.getLogger(__name__)

# FFmpeg's own time-out is to come first, so that it can close in order; ours is for where it has none.
_GRACE_S = 1.0
# Packets may come that make no picture (a long distance between key frames); not for ever.
_NO_PICTURE_FACTOR = 3.0
_MAX_HANGING = 4
_WATCH_INTERVAL_S = 0.1
_CLOSE_TIMEOUT_S = 1.0


class LiveDecoder:
    """Frames of a camera or another live stream, for as long as it takes.

    Iterate it once. With `mode: latest` it yields the newest picture whenever it is asked and drops what came between;
    pictures are numbered as they are decoded, so gaps in `Frame.sequence` show what was dropped. It reconnects by
    itself, with exponential back-off and jitter. `close` ends it from any thread.

    Args:
        config: What to open, and how.
        stream_id: The stream's name.
        clock: For deadlines and arrival times; the machine's own when None.
        on_status: Called with the new status whenever the state changes, from the iterating thread.
    """

    def __init__(
        self,
        config: LiveSourceConfig,
        stream_id: str,
        *,
        clock: Clock | None = None,
        on_status: Callable[[SourceStatus], None] | None = None,
    ) -> None:
        self.stream_id = stream_id
        self._config = config
        self._clock = clock or SystemClock()
        self._on_status = on_status
        self._closed = threading.Event()
        self._tally = SourceTally()
        self._stream_clock = StreamClock()
        self._state: StreamState = "connecting"
        self._reason = ""
        self._connection: Connection | None = None
        self._given_up: list[Connection] = []
        self._epoch = 0
        self._first: Frame | None = None
        self._frames = self._generate()

    @property
    def info(self) -> StreamInfo:
        """Facts of the first picture; waits for it.

        Raises:
            StreamError: The stream cannot be had, or was closed before its first picture.
        """
        if self._first is None:
            self._first = next(self._frames, None)
        if self._first is None:
            raise StreamError(f"{display_address(self._config)} was closed before its first picture")
        frame = self._first
        return StreamInfo(frame.width, frame.height, frame.time_base, rotation=frame.rotation)

    @property
    def status(self) -> SourceStatus:
        """How the stream is now; from any thread."""
        connection, tally = self._connection, self._tally
        overflow = tally.overflow + (connection.pictures.dropped if connection is not None else 0)
        return SourceStatus(
            state=self._state,
            reason=self._reason,
            connections=tally.connections,
            decoded=tally.decoded,
            corrupt=tally.corrupt,
            dropped={"overflow": overflow, "undecodable": tally.undecodable, "no_key_frame": tally.no_key_frame},
            fps=tally.rate.per_second(self._clock.monotonic_s()),
            hanging=sum(each.is_alive for each in self._given_up),
        )

    def __iter__(self) -> Iterator[Frame]:
        """Yield frames until the stream is closed.

        Raises:
            StreamError: The stream has failed for good: too many attempts, or an answer that only a person can change
                (a wrong password, an unknown path, …) before the first picture ever.
        """
        if self._first is not None:
            first, self._first = self._first, None
            yield first
        yield from self._frames

    def close(self) -> None:
        """Take no more pictures; a waiting iteration ends. Safe to call twice, and from any thread."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            connection.abandon()

    def _generate(self) -> Iterator[Frame]:
        try:
            while not self._closed.is_set():
                opened = self._connect_with_backoff()
                if opened is None:
                    break
                yield from self._frames_of(*opened)
        except StreamError as error:
            self._enter("failed", str(error))
            raise
        self._enter("ended")

    def _frames_of(self, connection: Connection, picture: LivePicture | None) -> Iterator[Frame]:
        """Yield frames until the connection is lost or the stream is closed."""
        try:
            while picture is not None:
                yield self._frame(picture)
                picture = self._next(connection)
        except EndOfStream:
            self._closed.set()
        except StreamError as error:
            self._enter("reconnecting", str(error))
            # Also before the first new attempt, or a server that drops each client at once would be beaten without end.
            self._closed.wait(self._config.backoff_initial_s)
        finally:
            self._retire(connection)

    def _connect_with_backoff(self) -> tuple[Connection, LivePicture] | None:
        """Connect and wait for the first picture, as often as it takes; None when the stream was closed meanwhile."""
        config = self._config
        stop: tenacity.stop.stop_base = tenacity.stop_when_event_set(self._closed)
        if config.max_attempts is not None:
            stop |= tenacity.stop_after_attempt(config.max_attempts)
        # stamina, which wraps tenacity, cannot be woken from its sleep; `close` must not wait for half a minute.
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._is_worth_another_try),
            wait=tenacity.wait_exponential(config.backoff_initial_s, config.backoff_max_s)
            + tenacity.wait_random(0, config.backoff_initial_s),
            stop=stop,
            sleep=tenacity.sleep_using_event(self._closed),
            before_sleep=self._say_why_not,
            reraise=True,
        )
        try:
            return retrying(self._connect)
        except EndOfStream:
            return None
        except StreamError:
            if self._closed.is_set():
                return None
            raise

    def _is_worth_another_try(self, error: BaseException) -> bool:
        """A wrong password, an unknown path and their like are final, unless all was well with them before."""
        return isinstance(error, StreamError) and not (error.lasting and self._tally.connections == 0)

    def _say_why_not(self, attempt: tenacity.RetryCallState) -> None:
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        self._enter("reconnecting" if self._tally.connections else "connecting", str(error))

    def _connect(self) -> tuple[Connection, LivePicture] | None:
        if sum(each.is_alive for each in self._given_up) >= _MAX_HANGING:
            raise StreamError(f"{display_address(self._config)}: {_MAX_HANGING} earlier connections still hang")
        self._stream_clock.reconnected()
        connection = self._connection = Connection(self._config, self._stream_clock, self._tally, self._clock)
        if self._closed.is_set():
            connection.abandon()
        try:
            picture = self._next(connection)
        except (StreamError, EndOfStream):
            self._retire(connection)
            raise
        if picture is None:
            self._retire(connection)
            return None
        self._tally.connections += 1
        return connection, picture

    def _next(self, connection: Connection) -> LivePicture | None:
        """Wait for a picture; None when the stream is closed.

        Raises:
            StreamError: The connection is lost.
            EndOfStream: The stream came to its end, and that is the end (`mode: every_frame`).
        """
        while True:
            try:
                picture = connection.pictures.get(timeout_s=_WATCH_INTERVAL_S)
            except TimeoutError:
                self._check_deadlines(connection)
            except Cancelled:
                return None
            except EndOfStream:
                if connection.failure is not None:
                    raise StreamError(connection.failure.message, lasting=connection.failure.lasting) from None
                if self._config.mode == "every_frame":
                    raise
                raise StreamError(f"{display_address(self._config)}: the other side ended the stream") from None
            else:
                self._enter("live")
                return picture

    def _check_deadlines(self, connection: Connection) -> None:
        """Notice a stall, and give up on a connection whose time is over."""
        config, now_s = self._config, self._clock.monotonic_s()
        name = display_address(config)
        if not connection.opened.is_set():
            if now_s - connection.started_s > config.connect_timeout_s + _GRACE_S:
                raise StreamError(f"{name}: no connection within {config.connect_timeout_s:g} s")
            return
        silent_s = now_s - connection.last_packet_s
        if silent_s > config.read_timeout_s + _GRACE_S:
            raise StreamError(f"{name}: nothing came for {config.read_timeout_s:g} s")
        if now_s - connection.last_picture_s > _NO_PICTURE_FACTOR * config.read_timeout_s:
            raise StreamError(f"{name}: no picture came for {now_s - connection.last_picture_s:.0f} s, only packets")
        if silent_s > config.stalled_after_s and self._state == "live":
            self._enter("stalled", f"{name}: nothing has come for {config.stalled_after_s:g} s")

    def _retire(self, connection: Connection) -> None:
        connection.abandon()
        if self._closed.is_set():
            connection.join(_CLOSE_TIMEOUT_S)
        self._tally.overflow += connection.pictures.dropped
        self._connection = None
        self._given_up = [each for each in [*self._given_up, connection] if each.is_alive]

    def _frame(self, picture: LivePicture) -> Frame:
        discontinuity = picture.time.epoch != self._epoch
        self._epoch = picture.time.epoch
        return Frame(
            stream_id=self.stream_id,
            sequence=picture.number,
            pts=picture.time.pts,
            time_base=STREAM_TIME_BASE,
            picture=VideoPicture(picture.image, picture.orientation),
            capture_time_s=picture.capture_time_s,
            rotation=picture.orientation.rotation,
            key_frame=picture.key_frame,
            discontinuity=discontinuity,
            corrupt=picture.image.is_corrupt,
        )

    def _enter(self, state: StreamState, reason: str = "") -> None:
        if (state, reason) == (self._state, self._reason):
            return
        self._state, self._reason = state, reason
        level = logging.WARNING if reason else logging.INFO
        _log.log(level, "stream %s is %s%s", self.stream_id, state, f": {reason}" if reason else "")
        if self._on_status is not None:
            self._on_status(self.status)
