"""A program's way to a running pipeline: read its results, and tell it what to track.

::

    from sam3_stream import Client

    with Client("tcp://127.0.0.1:5560", control="tcp://127.0.0.1:5561") as client:
        client.add({"type": "click", "x": 640, "y": 360, "name": "bunny"})
        for frame in client.results("0"):
            print(frame.frame.sequence, [(each.object_id, each.label, each.box_xywh) for each in frame.objects])
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq

from sam3_stream.core.errors import RunError
from sam3_stream.core.prompts import PromptEffect
from sam3_stream.core.records import TrackedFrame
from sam3_stream.transport.control import REPLY_DECODER, Request
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.keys import load_keys
from sam3_stream.transport.pictures import NoPictures
from sam3_stream.transport.records import RecordCodec
from sam3_stream.transport.signals import End
from sam3_stream.transport.wire_format import (
    MalformedMessageError,
    TrackedHeader,
    decoder_for,
    frame_topic,
    label_topic,
    pack,
    unpack,
)

MAX_WAITING_MESSAGES = 100
_RESULTS_DECODER = decoder_for(TrackedHeader | End)


@dataclass
class ClientCounters:
    """What has happened to this client's results.

    Attributes:
        received: Frames received.
        lost: How often at least one message was lost before one that was received.
        malformed: Messages that were refused.
    """

    received: int = 0
    lost: int = 0
    malformed: int = 0


class Client:
    """Reads published results and sends requests. Not thread-safe.

    Args:
        results: Address of a ``zeromq`` sink; None to send requests only.
        control: Address of a control socket; None to read results only.
        keys: Folder of keys, for addresses on other machines.
        server: Name of the trusted key, in that folder, of the machine to connect to; the own key when None.

    Raises:
        ConfigError: An address is none, or needs keys.
    """

    def __init__(
        self,
        results: str | None = None,
        *,
        control: str | None = None,
        keys: str | Path | None = None,
        server: str | None = None,
    ) -> None:
        ring = None if keys is None else load_keys(Path(keys), server)
        self.counters = ClientCounters()
        self._results = None if results is None else Endpoint(results, ring)
        self._control = None if control is None else Endpoint(control, ring)
        self._codec = RecordCodec(NoPictures())

    def results(
        self, stream_id: str, *, label: str | None = None, timeout_s: float | None = None
    ) -> Iterator[TrackedFrame]:
        """Yield a stream's tracked frames, without pixels, from now on until the stream ends.

        A program that takes longer than the frames do loses some; `counters` says how often.

        Args:
            stream_id: The stream.
            label: Only frames with objects of this label, and only these objects.
            timeout_s: How long to wait for a frame.

        Raises:
            TimeoutError: No frame came within ``timeout_s`` seconds.
        """
        if self._results is None:
            raise ValueError("this client was made without an address for results")
        topic = frame_topic(stream_id) if label is None else label_topic(stream_id, label)
        with self._results.connect(zmq.SUB, MAX_WAITING_MESSAGES) as socket:
            socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
            last: tuple[int, int] | None = None
            while True:
                if not socket.poll(None if timeout_s is None else int(timeout_s * 1000)):
                    raise TimeoutError(f"no frame of stream {stream_id!r} came within {timeout_s} s")
                try:
                    _, header, buffers = unpack(socket.recv_multipart(), _RESULTS_DECODER)
                    if isinstance(header, End):
                        return
                    tracked = self._codec.unpack(topic, header, buffers)
                except MalformedMessageError:
                    self.counters.malformed += 1
                    continue
                if last is not None and last != (header.frame.epoch, header.previous):
                    self.counters.lost += 1
                last = (header.frame.epoch, header.frame.sequence)
                self.counters.received += 1
                assert isinstance(tracked, TrackedFrame)
                yield tracked

    def add(
        self,
        prompt: Mapping[str, Any],
        *,
        object_id: int | None = None,
        replaces: str | None = None,
        timeout_s: float = 5.0,
    ) -> PromptEffect:
        """Add a prompt, or correct an object: by its id, or by a prompt with its name.

        Args:
            prompt: As in a config or a masks file's header: ``{"type": "click", "x": 3, "y": 4, "name": "dog"}``, or
                type ``box`` with ``xyxy``, ``mask`` with ``rle``, ``text`` with ``text``.
            object_id: The object that it corrects, which a phrase may have found.
            replaces: Id of a prompt whose place it takes.
            timeout_s: How long to wait for an answer.

        Returns:
            The prompt's id, the object it speaks of, and the frame on which it took effect.

        Raises:
            RunError: The prompt was refused.
            TimeoutError: No answer came.
        """
        said = {"prompt": dict(prompt), "object_id": object_id or 0, "prompt_id": replaces or ""}
        return PromptEffect(**self._ask("add", timeout_s, **said))

    def remove(self, object_id: int, *, timeout_s: float = 5.0) -> int:
        """Remove an object; the first frame without it. Raises as `add` does."""
        return int(self._ask("remove", timeout_s, object_id=object_id)["sequence"])

    def remove_prompt(self, prompt_id: str, *, timeout_s: float = 5.0) -> int:
        """Take back a prompt: its object, or all objects of a phrase; the first frame without. Raises as `add` does."""
        return int(self._ask("remove_prompt", timeout_s, prompt_id=prompt_id)["sequence"])

    def status(self, *, timeout_s: float = 5.0) -> dict[str, Any]:
        """How the pipeline is: its last frame, its objects. Raises as `add` does."""
        return self._ask("status", timeout_s)

    def close(self) -> None:
        """Sockets live as long as the call that uses them; here for the sake of ``with``."""

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, what: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        if self._control is None:
            raise ValueError("this client was made without an address for requests")
        request = Request(id=uuid.uuid4().hex, what=what, **arguments)
        with self._control.connect(zmq.DEALER) as socket:
            socket.send_multipart(pack("", request))
            if not socket.poll(int(timeout_s * 1000)):
                raise TimeoutError(f"no answer came from {self._control.address} within {timeout_s:g} s")
            _, reply, _ = unpack(socket.recv_multipart(), REPLY_DECODER)
        if not reply.ok:
            raise RunError(reply.error)
        return dict(reply.result)
