"""Both ends of an edge in one process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from sam3_stream.core.records import RunHeader, StreamInfo
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.receiver import ReceiverLink
from sam3_stream.transport.records import RecordCodec
from sam3_stream.transport.sender import SenderLink
from tests.transport.records import FEATURES, a_frame

INFO = StreamInfo(37, 22, Fraction(1, 30000), Fraction(30000, 1001), 100, 3.5, 90, Fraction(4, 3), True)
HEADER = RunHeader("clip.mp4", "fake", ({"type": "click", "x": 1.0, "y": 2.0, "name": None},))
HEARTBEAT_S = 0.4


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def an_address(kind: str, folder: Path) -> str:
    return f"ipc://{folder}/edge.sock" if kind == "ipc" else f"tcp://127.0.0.1:{free_port()}"


@contextlib.contextmanager
def sender_link(address: str, **options: Any) -> Iterator[SenderLink]:
    options = {"heartbeat_s": HEARTBEAT_S, "name": "frames"} | options
    link = SenderLink(Endpoint(address), RecordCodec(features=FEATURES), **options)
    try:
        yield link
    finally:
        link.stop()


@contextlib.contextmanager
def receiver_link(address: str, **options: Any) -> Iterator[ReceiverLink]:
    options = {"heartbeat_s": HEARTBEAT_S, "name": "frames"} | options
    link = ReceiverLink(Endpoint(address), RecordCodec(features=FEATURES), **options)
    try:
        yield link
    finally:
        link.stop()


def eventually(condition, timeout_s=10.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.005)


def begin(sender, receiver, first=0):
    """Both ends of a session that begins at a number."""
    reading = receiver.begin(first)
    assert sender.wait_for_want(10) == first
    writing = sender.begin(first, INFO, HEADER)
    assert reading.wait_for_open(10) == (INFO, HEADER)
    return writing, reading


def produce(writing, sequences):
    """Put frames in from a thread, and close."""

    def run():
        for sequence in sequences:
            writing.put(a_frame(sequence))
        writing.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread
