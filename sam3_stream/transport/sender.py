"""The sending end of an edge between two processes.

A `SenderLink` lives as long as its process and owns the socket. A `SocketSender` is what a stage writes to: a channel's
producer side, for one reading of the stream. The receiver says what it wants (`signals.Want`); what it wants again is
sent again, and when that is no longer there, the sender is cancelled and `SenderLink.wait_for_want` says from where the
stream must be made anew.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.records import RunHeader, StreamInfo
from sam3_stream.runtime.channel import Cancelled, OverflowPolicy
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.records import Record, RecordCodec, frame_of_record, marked
from sam3_stream.transport.signals import (
    TOPIC,
    WANT_DECODER,
    Bye,
    Cancel,
    End,
    Failure,
    Heartbeat,
    Open,
    RunLayout,
    StreamLayout,
    Want,
)
from sam3_stream.transport.socket_thread import SocketThread
from sam3_stream.transport.wire_format import MalformedMessageError, Parts, pack, unpack

TURNS_A_HEARTBEAT = 4


@dataclass
class SenderCounters:
    """What has happened at the sending end of an edge.

    Attributes:
        sent: Messages sent, those sent again included.
        sent_again: Messages sent again because a connection broke or a receiver was restarted.
        malformed: Messages that were refused.
        interruptions: How often the receiver fell silent.
        rewinds: How often the stream had to be made anew from an earlier place.
        strangers: Wants refused because another receiver is being served.
    """

    sent: int = 0
    sent_again: int = 0
    malformed: int = 0
    interruptions: int = 0
    rewinds: int = 0
    strangers: int = 0


@dataclass
class _Message:
    number: int
    size: int
    parts: Parts
    stands_alone: bool = True


class SocketSender:
    """The producer side of a channel whose consumer is another process; see `runtime.channel.Channel`.

    Made by `SenderLink.begin`. ``block`` waits until the receiver has room; ``drop_oldest`` and ``latest`` never wait.

    Args:
        link: Owns the socket.
        first_number: Number of the first message there will be.
        policy: What `put` does when there is no room.
        capacity: How many records may wait here to be sent.

    Attributes:
        dropped: How many records the policy has discarded.
        error: Why a record could not be sent.
        on_abandon: Called, in the link's thread, when nobody wants this session's records any more.
    """

    def __init__(self, link: SenderLink, first_number: int, policy: OverflowPolicy, capacity: int) -> None:
        self.policy = policy
        self.capacity = capacity if policy == "drop_oldest" else 1
        self.dropped = 0
        self.error: BaseException | None = None
        self.on_abandon: Callable[[], None] | None = None
        self._link = link
        self._changed = link.changed
        self._waiting: deque[Record] = deque()
        self._unacknowledged: deque[_Message] = deque()
        self._to_send_again: deque[_Message] = deque()
        self._first_number = self._available_from = first_number
        self._next_number = first_number
        self._bytes_under_way = 0
        self._last_size = 0
        self._ending: End | Failure | None = None
        self._last_message: _Message | None = None
        self._closed = False
        self._cancelled = False
        self._cancel_to_be_said = False
        self.greeting_due = True

    @property
    def cancelled(self) -> bool:
        """Whether either side cancelled, or the receiver asked for what is no longer here."""
        return self._cancelled

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, record: Record) -> None:
        """Hand over a record, waiting for room if the policy is ``block``.

        Raises:
            Cancelled: The edge was cancelled, or the stream must be made anew from an earlier place.
            RuntimeError: It was closed.
        """
        if frame_of_record(record).sequence < self._first_number:
            return  # made only to get to the one that was asked for
        with self._changed:
            while True:
                if self.error is not None:
                    raise self.error
                if self._cancelled:
                    raise Cancelled
                if self._closed:
                    raise RuntimeError(f"edge {self._link.name!r} was closed; nothing can be put into it any more")
                if len(self._waiting) < self.capacity:
                    break
                if self.policy == "block":
                    self._changed.wait()
                else:
                    dropped = self._waiting.popleft()
                    self.dropped += 1
                    record = marked(record) if frame_of_record(dropped).discontinuity else record
            self._waiting.append(record)
        self._link.wake()

    def close(self) -> None:
        """Say that no more records come. Does nothing after `fail` or `cancel`."""
        self._close(error=None)

    def fail(self, error: BaseException) -> None:
        """Say that the stream broke; the receiver gets the error after all records."""
        self._close(error)

    def cancel(self) -> None:
        """Discard what waits, and have both sides get `Cancelled`."""
        with self._changed:
            self._cancel_to_be_said = not self._cancelled
            self._drop_everything()
        self._link.wake()

    def abandon(self) -> None:
        """As `cancel`, but the receiver is not told: it will be served anew."""
        with self._changed:
            self._drop_everything()
        if self.on_abandon is not None:
            self.on_abandon()

    def _drop_everything(self) -> None:
        self._cancelled = True
        self._waiting.clear()
        self._unacknowledged.clear()
        self._to_send_again.clear()
        self._changed.notify_all()

    def _close(self, error: BaseException | None) -> None:
        with self._changed:
            if self._closed or self._cancelled:
                return
            self._closed = True
            self._ending = End(number=0) if error is None else Failure.of(error, 0)
        self._link.wake()

    # What follows is called by the link, in its thread, with the lock held.

    def serves(self, number: int, *, newcomer: bool) -> bool:
        """Whether the stream can go on from this number without being made anew, for one who may know nothing of it."""
        if self.policy != "block":
            return True
        first = next((each for each in [*self._unacknowledged, *self._to_send_again] if each.number >= number), None)
        readable = first is None or first.stands_alone or not newcomer
        return readable and self._available_from <= number <= self._next_number

    def go_on_from(self, number: int) -> int:
        """Send what comes from this number on, again if need be; how many messages that are."""
        if self.policy != "block":  # by the time they arrived they would be late
            self._unacknowledged.clear()
            self._to_send_again = deque([] if self._last_message is None else [self._last_message])
        again = [*self._unacknowledged, *self._to_send_again]
        self._to_send_again = deque(each for each in again if each.number >= number or each.size == 0)
        self._unacknowledged.clear()
        self._bytes_under_way = 0
        return len(self._to_send_again)

    def acknowledge(self, consumed: int) -> None:
        """Forget the messages before this number; their bytes are free again."""
        while self._unacknowledged and self._unacknowledged[0].number < consumed:
            self._bytes_under_way -= self._unacknowledged.popleft().size
        self._available_from = max(self._available_from, min(consumed, self._next_number))
        self._changed.notify_all()

    def has_room(self, want: Want) -> bool:
        """Whether the receiver's window takes another message of the size of the last."""
        if not self._unacknowledged:
            return True
        fits = self._bytes_under_way + self._last_size <= want.window_bytes
        return fits and len(self._unacknowledged) < want.window_messages

    def take(self) -> Record | _Message | None:
        """The next thing to send, if there is one."""
        if self._to_send_again:
            return self._to_send_again.popleft()
        if self._waiting:
            record = self._waiting.popleft()
            self._changed.notify_all()
            return record
        if self._ending is not None:
            ending = msgspec.structs.replace(self._ending, number=self._next_number)
            self._ending = None
            self._last_message = _Message(ending.number, 0, pack(TOPIC, ending))
            return self._last_message
        return None

    def note_sent(self, message: _Message) -> bool:
        """Keep a message until it is acknowledged; False when nobody wants it any more."""
        if self._cancelled:
            return False
        self._unacknowledged.append(message)
        self._next_number = max(self._next_number, message.number + 1)
        self._bytes_under_way += message.size
        self._last_size = message.size or self._last_size
        return True

    def break_off(self, error: BaseException) -> None:
        """A record could not be made a message: the producer gets the error at once, the receiver in its place."""
        self.error = error
        self._waiting.clear()
        self._closed = True
        self._ending = Failure.of(error, 0)
        self._changed.notify_all()

    def take_cancel(self) -> bool:
        """Whether the receiver must be told that this was cancelled."""
        said, self._cancel_to_be_said = self._cancel_to_be_said, False
        return said


class SenderLink:
    """The socket of an edge's sending end.

    Args:
        endpoint: Where to listen.
        codec: Turns records into messages; used in the link's thread only.
        policy: What `SocketSender.put` does when there is no room.
        capacity: How many records wait here when the policy is ``drop_oldest``.
        heartbeat_s: A receiver that says nothing for so long is lost.
        name: For errors and metrics.
        clock: Tells the time.

    Raises:
        OutputError: The address is taken.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        codec: RecordCodec,
        *,
        policy: OverflowPolicy = "block",
        capacity: int = 4,
        heartbeat_s: float = 1.0,
        name: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.counters = SenderCounters()
        self.changed = threading.Condition()
        self._codec = codec
        self._policy: OverflowPolicy = policy
        self._capacity = capacity
        self._heartbeat_s = heartbeat_s
        self._clock = clock or SystemClock()
        self._epoch = int(self._clock.wall_s() * 1000)
        self._session: SocketSender | None = None
        self._open: tuple[StreamInfo, RunHeader] | None = None
        self._peer: tuple[bytes, str, int] | None = None
        self._served = ""
        self._want: Want | None = None
        self._wanted: int | None = None
        self._heard_s = float("-inf")
        self._answered_s = float("-inf")
        self._done = False
        self._stopped = False
        socket = endpoint.bind(zmq.ROUTER, max_waiting=0)  # the window bounds what is under way, in bytes
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._thread = SocketThread(
            f"send-{name}", socket, self._on_message, self._on_turn, heartbeat_s / TURNS_A_HEARTBEAT
        )
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether the receiver has said that it wants nothing more."""
        return self._done

    @property
    def connected(self) -> bool:
        """Whether a receiver has been heard within the heartbeat interval."""
        return self._peer is not None

    def wait_for_want(self, timeout_s: float | None = None) -> int | None:
        """Wait until a receiver wants what no present sender can give it.

        Returns:
            The number to make the stream from; None when the receiver is done or `stop` was called.

        Raises:
            TimeoutError: Nobody wanted anything for ``timeout_s`` seconds.
        """
        with self.changed:
            if not self.changed.wait_for(lambda: self._wanted is not None or self._done or self._stopped, timeout_s):
                raise TimeoutError(f"nobody wanted anything of edge {self.name!r} for {timeout_s} s")
            return None if self._done or self._stopped else self._wanted

    def begin(self, first_number: int, info: StreamInfo, header: RunHeader) -> SocketSender:
        """Begin to send a stream.

        Args:
            first_number: Number of its first record, as `wait_for_want` said.
            info: The stream's size, time base and so on.
            header: What the run says of itself.
        """
        session = SocketSender(self, first_number, self._policy, self._capacity)
        with self.changed:
            self._session = session
            self._open = (info, header)
            if self._want is not None and not session.serves(self._want.next, newcomer=True):
                session.abandon()  # it has changed its mind meanwhile; wait_for_want says to what
            else:
                self._wanted = None
        self._thread.wake()
        return session

    def wake(self) -> None:
        """Have the thread look for something to send."""
        self._thread.wake()

    def stop(self) -> None:
        """Let go of the socket. The receiver is not told; it waits for somebody else to take this place."""
        with self.changed:
            self._stopped = True
            if self._session is not None:
                self._session.abandon()
            self.changed.notify_all()
        self._thread.stop()

    def _on_message(self, frames: Sequence[zmq.Frame]) -> None:
        identity, *parts = [frame.buffer for frame in frames]
        try:
            _, want, buffers = unpack(parts, WANT_DECODER)
            if buffers or min(want.next, want.consumed, want.window_bytes, want.window_messages) < 0:
                raise MalformedMessageError("a want with buffers or a number below 0")
        except MalformedMessageError:
            self.counters.malformed += 1
            return
        with self.changed:
            self._heed(bytes(identity), want)

    def _heed(self, identity: bytes, want: Want) -> None:
        now_s = self._clock.monotonic_s()
        peer = (identity, want.receiver, want.session)
        if self._peer is not None and self._peer[1] != want.receiver and now_s - self._heard_s < self._heartbeat_s:
            self.counters.strangers += 1  # one at a time: whoever is dead falls silent, and then it is the other's turn
            return
        self._heard_s = now_s
        self._want = want
        if want.state == "done":
            self._finish(identity, want)
            return
        if peer != self._peer:
            self._peer = peer
            newcomer, self._served = self._served != want.receiver, want.receiver
            self._serve(want, newcomer=newcomer)
        elif self._session is not None:
            self._session.acknowledge(want.consumed)
        self._answer(want, now_s)

    def _answer(self, want: Want, now_s: float) -> None:
        if now_s - self._answered_s < self._heartbeat_s / (2 * TURNS_A_HEARTBEAT):
            return
        self._answered_s = now_s
        wall_s = self._clock.wall_s()
        self._send(pack(TOPIC, Heartbeat(want_sent_s=want.sent_s, want_received_s=wall_s, sent_s=wall_s)))

    def _serve(self, want: Want, *, newcomer: bool) -> None:
        """Begin with, or go on for, a receiver that is new or has reconnected."""
        session = self._session
        if session is not None and not session.cancelled and session.serves(want.next, newcomer=newcomer):
            self.counters.sent_again += session.go_on_from(want.next)
            session.acknowledge(want.consumed)
            session.greeting_due = True
            return
        self._wanted = want.next
        if session is not None:
            self.counters.rewinds += 1
            session.abandon()
        self.changed.notify_all()

    def _finish(self, identity: bytes, want: Want) -> None:
        self._peer = (identity, want.receiver, want.session)
        self._send(pack(TOPIC, Bye(session=want.session)))
        self._done = True
        if self._session is not None:
            self._session.abandon()
        self.changed.notify_all()

    def _greet(self, session: SocketSender) -> None:
        if self._peer is None or self._open is None or session.cancelled:
            return
        session.greeting_due = False
        self._codec.pictures.restart()
        info, header = self._open
        prompts: list[dict[str, Any]] = [dict(prompt) for prompt in header.prompts]
        run = RunLayout(input=header.input, model=header.model, prompts=prompts)
        live = self._policy != "block"
        greeting = Open(session=self._peer[2], stream=StreamLayout.of(info), run=run, live=live)
        self._send(pack(TOPIC, greeting))

    def _on_turn(self) -> None:
        with self.changed:
            if self._peer is not None and self._clock.monotonic_s() - self._heard_s > self._heartbeat_s:
                self.counters.interruptions += 1
                self._peer = None
            session = self._session
            if session is not None and session.greeting_due and self._wanted is None:
                self._greet(session)
            if session is not None and session.take_cancel() and self._peer is not None:
                self._send(pack(TOPIC, Cancel(session=self._peer[2])))
        while session is not None and self._send_next(session):
            pass

    def _send_next(self, session: SocketSender) -> bool:
        with self.changed:
            thing = session.take() if self._may_send(session) else None
            peer = self._peer
        if thing is None:
            return False
        try:
            message = thing if isinstance(thing, _Message) else self._message_of(thing)
        except Exception as error:  # a record that cannot be sent is the producer's error, not the end of this thread
            with self.changed:
                session.break_off(error)
            return True
        with self.changed:
            if session.note_sent(message) and peer == self._peer:
                self._send(message.parts)
                self.counters.sent += 1
        return True

    def _may_send(self, session: SocketSender) -> bool:
        served = self._peer is not None and self._wanted is None and session is self._session
        return served and not session.cancelled and self._want is not None and session.has_room(self._want)

    def _message_of(self, record: Record) -> _Message:
        parts = self._codec.pack(record, self._epoch)
        size = sum(memoryview(part).nbytes for part in parts)
        return _Message(frame_of_record(record).sequence, size, parts, self._codec.pictures.stands_alone)

    def _send(self, parts: Parts) -> None:
        if self._peer is None:
            return
        try:
            self._thread.socket.send_multipart([self._peer[0], *parts], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError:
            self._peer = None  # its connection is gone; it will be back under another identity
