"""The receiving end of an edge between two processes.

A `ReceiverLink` lives as long as its process and owns the socket. A `SocketReceiver` is what a stage reads from: a
channel's consumer side, for one reading of the stream from one place on. It gives every record once and in order,
whatever is sent twice or lost on the way; on a live edge it counts and marks the gaps instead.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import zmq

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import RunError
from sam3_stream.core.records import RunHeader, StreamInfo
from sam3_stream.runtime.channel import Cancelled, EndOfStream, OverflowPolicy
from sam3_stream.transport.clock_offset import ClockOffset
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.records import Record, RecordCodec, frame_of_record, marked, with_frame
from sam3_stream.transport.sender import TURNS_A_HEARTBEAT
from sam3_stream.transport.signals import (
    SIGNAL_DECODER,
    TOPIC,
    Bye,
    Cancel,
    End,
    Failure,
    Heartbeat,
    Open,
    Want,
)
from sam3_stream.transport.socket_thread import SocketThread
from sam3_stream.transport.wire_format import FrameHeader, Header, MalformedMessageError, TrackedHeader, pack, unpack

_MAX_ASKED_AGAIN = 3
_ACKNOWLEDGEMENTS_A_WINDOW = 4


@dataclass
class ReceiverCounters:
    """What has happened at the receiving end of an edge.

    Attributes:
        received: Records received, each counted once.
        doubles: Messages dropped because they had come before.
        missing: Frames of a live stream that never came.
        gaps: How often frames of a live stream were missing.
        malformed: Messages that were refused.
        interruptions: How often the sender fell silent.
    """

    received: int = 0
    doubles: int = 0
    missing: int = 0
    gaps: int = 0
    malformed: int = 0
    interruptions: int = 0


class SocketReceiver:
    """The consumer side of a channel whose producer is another process; see `runtime.channel.Channel`.

    On a live edge the first frame after an interruption is marked as a discontinuity, whatever is dropped meanwhile.

    Made by `ReceiverLink.begin`.

    Args:
        link: Owns the socket.
        first_number: Number of the first record to receive.
        policy: ``block`` keeps every record; else the oldest give way when more than `capacity` wait.
        capacity: How many records may wait.
        keep_sender: Whether `cancel` leaves the sender as it is, because the stream may be read anew.
    """

    def __init__(
        self, link: ReceiverLink, first_number: int, policy: OverflowPolicy, capacity: int, keep_sender: bool
    ) -> None:
        self.policy = policy
        self.capacity = 1 if policy == "latest" else capacity
        self.dropped = 0
        self.next_number = first_number
        self.consumed = first_number
        self.info: StreamInfo | None = None
        self.header: RunHeader | None = None
        self.live = False
        self.state: Literal["open", "done"] = "open"
        self._link = link
        self._keep_sender = keep_sender
        self._changed = link.changed
        self._items: deque[tuple[Record, int]] = deque()
        self.freed_bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._cancelled = False
        self._opened = False
        self._begun = False
        self._interrupted = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def cancelled(self) -> bool:
        """Whether either side cancelled."""
        return self._cancelled

    @property
    def error(self) -> BaseException | None:
        """The error that the producer ended the stream with, if it did."""
        return self._error

    def wait_for_open(self, timeout_s: float | None = None) -> tuple[StreamInfo, RunHeader]:
        """Wait for the sender to say what stream this is.

        Raises:
            Cancelled: The edge was cancelled.
            TimeoutError: It said nothing within ``timeout_s`` seconds.
            BaseException: The error that the stream broke with before it began.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.info is not None or self._cancelled, timeout_s)
            if self._cancelled:
                raise Cancelled
            if self.info is None or self.header is None:
                raise TimeoutError(f"nothing came over edge {self._link.name!r} within {timeout_s} s")
            return self.info, self.header

    def get(self, timeout_s: float | None = None) -> Record:
        """Take the oldest record, waiting for one; raises as `Channel.get` does."""
        with self._changed:
            while not self._items:
                if self._cancelled:
                    raise Cancelled
                if self._error is not None:
                    raise self._error
                if self._ended:
                    raise EndOfStream
                if not self._changed.wait(timeout_s):
                    raise TimeoutError(f"nothing came over edge {self._link.name!r} within {timeout_s} s")
            record = self._take()
        if self._link.wants_to_acknowledge(self):
            self._link.wake()
        return record

    def take_waiting(self, limit: int) -> list[Record]:
        """Take up to ``limit`` records that wait already, without waiting for more."""
        with self._changed:
            taken = [self._take() for _ in range(min(limit, len(self._items)))]
        self._link.wake()
        return taken

    def cancel(self) -> None:
        """Want no more: discard what waits, and have both sides get `Cancelled`."""
        if not self._keep_sender:
            self.finish()
        self.abandon()

    def abandon(self) -> None:
        """As `cancel`, but the sender is not told."""
        with self._changed:
            self._cancelled = True
            self._items.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Read no more; the sender is not told."""
        self.abandon()

    def finish(self) -> None:
        """Say that nothing more is wanted, from whatever place: the sender may go."""
        with self._changed:
            self.state = "done"
        self._link.wake()

    def __iter__(self) -> Iterator[Record]:
        """Yield records until end of stream; raises as `get` does."""
        while True:
            try:
                record = self.get()
            except EndOfStream:
                return
            yield record

    def _take(self) -> Record:
        record, size = self._items.popleft()
        self.freed_bytes += size
        if self.policy == "block":
            self.consumed = frame_of_record(record).sequence + 1
        return record

    # What follows is called by the link, in its thread, with the lock held.

    def open(self, info: StreamInfo, header: RunHeader, live: bool) -> None:
        """Note what stream this is."""
        self.info, self.header, self.live = info, header, live
        self._interrupted = live and (self._opened or self._interrupted)
        self._opened = True
        self._changed.notify_all()

    def accept(self, record: Record, size: int, counters: ReceiverCounters) -> None:
        """Keep a record that is the next, or on a live edge a later one."""
        number = frame_of_record(record).sequence
        if number > self.next_number:
            counters.gaps += 1
            counters.missing += number - self.next_number
        if self._interrupted or (number > self.next_number and not self._begun):
            record = marked(record)
        self._begun, self._interrupted = True, False
        self.next_number = number + 1
        counters.received += 1
        if self._cancelled:
            return
        if self.policy != "block":
            self.consumed = self.next_number
            while len(self._items) >= self.capacity:
                dropped, _ = self._items.popleft()
                self.dropped += 1
                record = marked(record) if frame_of_record(dropped).discontinuity else record
        self._items.append((record, size))
        self._changed.notify_all()

    def end(self, number: int, error: BaseException | None) -> bool:
        """Note the end of the stream, or its error; False when a record before it is missing."""
        if number > self.next_number and not self.live:
            return False
        if number >= self.next_number and not self._ended:
            self._ended = True
            self._error = error
            self._changed.notify_all()
        if not self._items:
            self.consumed = max(self.consumed, number + 1)
        return True


class ReceiverLink:
    """The socket of an edge's receiving end.

    Args:
        endpoint: Where the sender listens.
        codec: Turns messages into records; used in the link's thread only.
        policy: What happens to records that come quicker than they are taken.
        capacity: How many records may wait here, for policies other than ``block``.
        window_bytes: How many bytes may be under way or wait here, for the policy ``block``.
        window_messages: How many messages may.
        heartbeat_s: A sender that says nothing for so long is lost.
        name: For errors and metrics.
        clock: Tells the time.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        codec: RecordCodec,
        *,
        policy: OverflowPolicy = "block",
        capacity: int = 4,
        window_bytes: int = 64 << 20,
        window_messages: int = 32,
        heartbeat_s: float = 1.0,
        name: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.counters = ReceiverCounters()
        self.changed = threading.Condition()
        self.clock_offset = ClockOffset()
        self._id = uuid.uuid4().hex
        self._codec = codec
        self._policy: OverflowPolicy = policy
        self._capacity = capacity
        self._window = (window_bytes, window_messages)
        self._heartbeat_s = heartbeat_s
        self._clock = clock or SystemClock()
        self._session: SocketReceiver | None = None
        self._session_number = 0
        self._asked_again = (-1, 0)
        self._said: tuple[Any, ...] | None = None
        self._said_s = float("-inf")
        self._heard_s = float("-inf")
        self._connected = False
        self._bidden_farewell = False
        socket = endpoint.connect(zmq.DEALER, only_when_connected=True)
        self._thread = SocketThread(
            f"receive-{name}", socket, self._on_message, self._on_turn, heartbeat_s / TURNS_A_HEARTBEAT
        )
        self._thread.start()

    @property
    def connected(self) -> bool:
        """Whether the sender has been heard within the heartbeat interval."""
        return self._connected

    def begin(self, first_number: int, *, keep_sender: bool = False) -> SocketReceiver:
        """Begin to read the stream, from the record of this number on; see `SocketReceiver`."""
        session = SocketReceiver(self, first_number, self._policy, self._capacity, keep_sender)
        with self.changed:
            if self._session is not None:
                self._session.abandon()
            self._session = session
            self._session_number += 1
        self._thread.wake()
        return session

    def wake(self) -> None:
        """Have the thread look for something to say."""
        self._thread.wake()

    def say_farewell(self, timeout_s: float) -> bool:
        """Say that nothing more is wanted, and wait until the sender has heard it, or is gone.

        Returns:
            False when neither happened within ``timeout_s`` seconds.
        """
        with self.changed:  # at once: a session that is begun but not done yet would have the stream made anew
            session = self._session if self._session is not None else self.begin(0)
            session.finish()
            return self.changed.wait_for(lambda: self._bidden_farewell or not self._connected, timeout_s)

    def stop(self) -> None:
        """Let go of the socket."""
        with self.changed:
            if self._session is not None:
                self._session.abandon()
        self._thread.stop()

    def _on_message(self, frames: Sequence[zmq.Frame]) -> None:
        try:
            topic, header, buffers = unpack([frame.buffer for frame in frames], SIGNAL_DECODER)
            if isinstance(header, FrameHeader | TrackedHeader):
                self._heed_record(topic, header, buffers)
            else:
                with self.changed:
                    self._heed_signal(header)
        except MalformedMessageError:
            self.counters.malformed += 1
            return
        self._heard_s = self._clock.monotonic_s()
        self._connected = True

    def _heed_record(self, topic: str, header: FrameHeader | TrackedHeader, buffers: list[memoryview]) -> None:
        number = header.frame.sequence
        with self.changed:
            session = self._session
            if session is None or session.info is None:
                return  # of a session before this one
            if number < session.next_number:
                self.counters.doubles += 1
                return  # unread, for what has a memory must not see it twice
            if number > session.next_number and not session.live:
                self._ask_again(session)
                return
        record = self._in_our_time(self._codec.unpack(topic, header, buffers))
        with self.changed:
            session.accept(record, sum(buffer.nbytes for buffer in buffers), self.counters)

    def _heed_signal(self, header: Header) -> None:
        session = self._session
        if isinstance(header, Heartbeat):
            self.clock_offset.observe(header.want_sent_s, header.want_received_s, header.sent_s, self._clock.wall_s())
        elif session is None:
            return
        elif isinstance(header, Open):
            if header.session == self._session_number:
                session.open(header.stream.to_info(), header.to_header(), header.live)
        elif isinstance(header, End | Failure):
            error = header.to_error() if isinstance(header, Failure) else None
            if session.info is not None and not session.end(header.number, error):
                self._ask_again(session)
        elif isinstance(header, Cancel) and header.session == self._session_number:
            session.abandon()
        elif isinstance(header, Bye) and header.session == self._session_number:
            self._bidden_farewell = True
            self.changed.notify_all()

    def _ask_again(self, session: SocketReceiver) -> None:
        """Something was lost on the way: a new session number makes the sender go back to `session.next_number`."""
        again = self._asked_again[1] + 1 if self._asked_again[0] == session.next_number else 1
        self._asked_again = (session.next_number, again)
        if again > _MAX_ASKED_AGAIN:
            session.end(
                session.next_number,
                RunError(
                    f"record {session.next_number} of edge {self.name!r} came {again} times and could not be read; "
                    "both ends must be the same version of sam3-stream, with the same config"
                ),
            )
            return
        session.info = None
        self._session_number += 1

    def _in_our_time(self, record: Record) -> Record:
        """The record with its capture time on this machine's clock."""
        frame = frame_of_record(record)
        if frame.capture_time_s is None or not self.clock_offset.matters:
            return record
        return with_frame(record, replace(frame, capture_time_s=frame.capture_time_s - self.clock_offset.offset_s))

    def _on_turn(self) -> None:
        now_s = self._clock.monotonic_s()
        with self.changed:
            if self._connected and now_s - self._heard_s > self._heartbeat_s:
                self._connected = False
                self.counters.interruptions += 1
                self.changed.notify_all()
            session = self._session
            if session is None:
                return
            state = (self._session_number, session.next_number, session.consumed, session.state)
            due = now_s - self._said_s >= self._heartbeat_s / TURNS_A_HEARTBEAT
            if not due and not self._is_news(session, state):
                return
            self._said, self._said_s = state, now_s
            session.freed_bytes = 0
            want = Want(
                receiver=self._id,
                session=self._session_number,
                next=session.next_number,
                consumed=session.consumed,
                window_bytes=self._window[0],
                window_messages=self._window[1],
                sent_s=self._clock.wall_s(),
                state=session.state,
            )
        try:
            self._thread.socket.send_multipart(pack(TOPIC, want), zmq.NOBLOCK)
        except zmq.Again:
            self._said = None  # nobody is there; it is said again when the time comes

    def wants_to_acknowledge(self, session: SocketReceiver) -> bool:
        """Whether so much of the window is free again that the sender should hear of it."""
        said = 0 if self._said is None else self._said[2]
        window_bytes, window_messages = self._window
        much = session.freed_bytes * _ACKNOWLEDGEMENTS_A_WINDOW >= window_bytes
        return much or (session.consumed - said) * _ACKNOWLEDGEMENTS_A_WINDOW >= window_messages or not session

    def _is_news(self, session: SocketReceiver, state: tuple[Any, ...]) -> bool:
        """Whether the sender must be told now: of another session or state, or of room in the window."""
        if self._said is None or (state[0], state[3]) != (self._said[0], self._said[3]):
            return True
        return state[2] != self._said[2] and self.wants_to_acknowledge(session)
