"""The control socket: add, refine and remove prompts of a running stream, and ask how it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, Protocol

import msgspec
import zmq

from sam3_stream.core.errors import PromptError, RunError, Sam3StreamError
from sam3_stream.core.prompt_description import prompt_from_description
from sam3_stream.core.prompts import Prompt, PromptEffect
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.records import rle_pixels
from sam3_stream.transport.signals import TOPIC
from sam3_stream.transport.socket_thread import SocketThread
from sam3_stream.transport.wire_format import Header, MalformedMessageError, decoder_for, pack, unpack

MAX_UNANSWERED = 64
_TICK_S = 0.25


class Request(Header, kw_only=True, frozen=True, tag="request"):
    """Something a client wants.

    Attributes:
        id: Comes back in the reply.
        what: ``add``, which also corrects, ``remove``, ``remove_prompt`` or ``status``.
        prompt: For ``add``: the prompt, as in the header of a masks file.
        object_id: For ``remove``; for ``add`` the object that the prompt corrects, 0 for none.
        prompt_id: For ``remove_prompt``; for ``add`` the prompt whose place it takes, empty for none.
    """

    id: str
    what: str
    prompt: dict[str, Any] | None = None
    object_id: int = 0
    prompt_id: str = ""


class Reply(Header, kw_only=True, frozen=True, tag="reply"):
    """The answer.

    Attributes:
        id: The request's.
        ok: Whether it was done.
        result: The ``sequence`` number of the first frame with, or without; for ``add`` also ``prompt_id`` and
            ``object_id``; for ``status`` what there is to say.
        error: Why it was not done.
    """

    id: str
    ok: bool
    result: dict[str, Any] = msgspec.field(default_factory=dict)
    error: str = ""


class Controlled(Protocol):
    """What a control socket controls: a memory tracker."""

    def add(self, prompt: Prompt, *, object_id: int | None = None, replaces: str | None = None) -> Future[PromptEffect]:
        """Add a prompt; a future of what has become of it."""

    def remove(self, object_id: int) -> Future[int]:
        """Remove an object; a future of the first frame without it."""

    def remove_prompt(self, prompt_id: str) -> Future[int]:
        """Take back a prompt; a future of the first frame without what it spoke of."""

    def status(self) -> dict[str, Any]:
        """How it is, in values that msgpack knows."""


REQUEST_DECODER = decoder_for(Request)
REPLY_DECODER = decoder_for(Reply)


class ControlServer:
    """Answers requests, in a thread of its own. Requests that cannot be read are counted and get no answer.

    Args:
        endpoint: Where to listen.

    Attributes:
        controlled: What is controlled at present; requests are refused while it is None.
        malformed: How many messages were refused.

    Raises:
        OutputError: The address is taken.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.controlled: Controlled | None = None
        self.malformed = 0
        self._answers: deque[tuple[bytes, Reply]] = deque()
        self._unanswered = 0
        self._thread = SocketThread("control", endpoint.bind(zmq.ROUTER), self._on_message, self._on_turn, _TICK_S)
        self._thread.start()

    def close(self) -> None:
        """Let go of the socket. Safe to call twice."""
        self._thread.stop()

    def _on_message(self, frames: Sequence[zmq.Frame]) -> None:
        identity, *parts = [frame.buffer for frame in frames]
        try:
            _, request, buffers = unpack(parts, REQUEST_DECODER)
            if buffers:
                raise MalformedMessageError("a request with buffers")
        except MalformedMessageError:
            self.malformed += 1
            return
        try:
            self._heed(bytes(identity), request)
        except Sam3StreamError as error:
            self._answers.append((bytes(identity), Reply(id=request.id, ok=False, error=str(error))))

    def _heed(self, identity: bytes, request: Request) -> None:
        controlled = self.controlled
        if controlled is None:
            raise PromptError("the stream has not begun, or is over")
        if request.what == "status":
            self._answers.append((identity, Reply(id=request.id, ok=True, result=controlled.status())))
            return
        if self._unanswered >= MAX_UNANSWERED:
            raise PromptError(f"{MAX_UNANSWERED} requests wait for the next frame; ask again later")
        future: Future[Any]
        if request.what == "add":
            prompt, replaces = _prompt_of(request), request.prompt_id or None
            future = controlled.add(prompt, object_id=request.object_id or None, replaces=replaces)
        elif request.what == "remove":
            future = controlled.remove(request.object_id)
        elif request.what == "remove_prompt":
            future = controlled.remove_prompt(request.prompt_id)
        else:
            raise PromptError(f"unknown request {request.what[:80]!r}; expected add, remove, remove_prompt or status")
        self._unanswered += 1
        future.add_done_callback(lambda done: self._answer(identity, request.id, done))

    def _answer(self, identity: bytes, request_id: str, done: Future[Any]) -> None:
        """Called by the tracker's thread."""
        error = RunError("the stream ended before the next frame") if done.cancelled() else done.exception()
        if error is None:
            result = done.result()
            said = asdict(result) if isinstance(result, PromptEffect) else {"sequence": result}
            reply = Reply(id=request_id, ok=True, result=said)
        else:
            reply = Reply(id=request_id, ok=False, error=str(error))
        self._unanswered -= 1
        self._answers.append((identity, reply))
        self._thread.wake()

    def _on_turn(self) -> None:
        while self._answers:
            identity, reply = self._answers.popleft()
            self._thread.socket.send_multipart([identity, *pack(TOPIC, reply)], zmq.NOBLOCK)


def _prompt_of(request: Request) -> Prompt:
    fields = request.prompt or {}
    if "rle" in fields:
        check_rle(fields["rle"])
    return prompt_from_description(fields)


def check_rle(rle: Any) -> None:
    """Raise `PromptError` unless the run lengths fill their size; nothing else may reach pycocotools."""
    match rle:
        case {"size": [int(height), int(width)], "counts": str(counts)} if 0 < height < 1 << 14 and 0 < width < 1 << 14:
            if rle_pixels(counts) == height * width:
                return
    raise PromptError("the mask is no run lengths that fill its size: expected size, [height, width], and counts")
