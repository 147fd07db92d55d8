"""Publishing results to anyone: a PUB socket that no subscriber can slow down."""

from __future__ import annotations

from collections import OrderedDict

import msgspec
import zmq

from sam3_stream.core.clock import Clock
from sam3_stream.core.records import TrackedFrame
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.keys import stop_authenticating
from sam3_stream.transport.pictures import NoPictures
from sam3_stream.transport.records import MaskEncoding, frame_layout, pack_objects, tracked_header
from sam3_stream.transport.signals import End
from sam3_stream.transport.wire_format import Buffer, Parts, TrackedHeader, frame_topic, label_topic, pack, stream_of

MAX_WAITING_MESSAGES = 100
_LABELS_REMEMBERED = 1024
_LINGER_MS = 5000
_FAREWELLS, _FAREWELL_INTERVAL_S = 10, 0.1


class ResultsPublisher:
    """Publishes every tracked frame under its stream's topic, and each label's objects under a topic of their own.

    A subscriber that does not keep up loses messages, which it can tell from `TrackedHeader.previous`; at most 100
    wait for it. Used by one thread at a time.

    Args:
        endpoint: Where to publish.
        clock: Tells the time.
        masks: How masks travel.

    Raises:
        OutputError: The address is taken.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock, masks: MaskEncoding = "rle") -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()  # its own: it ends when all has been sent
        try:
            self._socket = endpoint.bind(zmq.PUB, MAX_WAITING_MESSAGES, self._context)
        except BaseException:
            stop_authenticating(self._context)
            self._context.term()
            raise
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)  # so that we hear of it before we drop
        self._somebody_is_behind = False
        self._clock = clock
        self._masks: MaskEncoding = masks
        self._last: OrderedDict[str, int] = OrderedDict()
        self._epochs: dict[str, int] = {}
        self._next: dict[str, int] = {}

    def publish(self, tracked: TrackedFrame) -> None:
        """Publish one frame."""
        frame = tracked.frame
        stream_id = frame.stream_id
        if frame.sequence < self._next.get(stream_id, 0) or stream_id not in self._epochs:
            self._epochs[stream_id] = int(self._clock.wall_s() * 1000)  # numbers begin anew
        self._next[stream_id] = frame.sequence + 1
        picture, _ = NoPictures().pack(frame.picture)
        objects, buffers = pack_objects(tracked.objects, self._masks, first_buffer=0)
        header = tracked_header(tracked, objects, frame_layout(frame, picture, self._epochs[stream_id]))
        self._send(frame_topic(stream_id), header, buffers)
        for label in dict.fromkeys(each.label for each in objects):
            # Buffers are few and the message says which is which, so a label's message may leave some unused.
            labelled = msgspec.structs.replace(header, objects=[each for each in objects if each.label == label])
            self._send(label_topic(stream_id, label), labelled, buffers)

    def end(self) -> None:
        """Say under every topic that its stream is over.

        Whoever was behind gets nothing at all until it has caught up by half, so it is said again for a second.
        """
        for _ in range(_FAREWELLS if self._somebody_is_behind else 1):
            for topic in self._last:
                self._put_out(pack(topic, End(number=self._next[stream_of(topic)])))
            if self._somebody_is_behind:
                self._clock.sleep(_FAREWELL_INTERVAL_S)

    def close(self) -> None:
        """Return once what waits has been sent, or five seconds have passed. Safe to call twice."""
        self._socket.close(linger=_LINGER_MS)
        stop_authenticating(self._context)
        self._context.term()

    def _send(self, topic: str, header: TrackedHeader, buffers: list[Buffer]) -> None:
        previous = self._last.pop(topic, -1)
        self._last[topic] = header.frame.sequence
        if len(self._last) > _LABELS_REMEMBERED:
            self._last.popitem(last=False)
        message = pack(topic, msgspec.structs.replace(header, previous=previous), buffers)
        self._put_out(message)

    def _put_out(self, message: Parts) -> None:
        try:
            self._socket.send_multipart(message, zmq.NOBLOCK)
        except zmq.Again:
            self._somebody_is_behind = True
            self._socket.setsockopt(zmq.XPUB_NODROP, 0)
            self._socket.send_multipart(message, zmq.NOBLOCK)
            self._socket.setsockopt(zmq.XPUB_NODROP, 1)
