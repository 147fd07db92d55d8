"""The two ends of a live edge as programs: ``python -m tests.support.live_edge produce|consume ADDRESS [LOG]``."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.receiver import ReceiverLink
from sam3_stream.transport.records import RecordCodec
from sam3_stream.transport.sender import SenderLink
from tests.transport.edges import HEADER, INFO
from tests.transport.records import a_frame

FPS = 100
HEARTBEAT_S = 0.3


def produce(address: str) -> None:
    """A camera: frames come whether or not anybody takes them, numbered on from what the consumer has seen."""
    link = SenderLink(Endpoint(address), RecordCodec(), policy="latest", heartbeat_s=HEARTBEAT_S, name="live")
    first = link.wait_for_want()
    assert first is not None
    outbox, frame = link.begin(first, INFO, HEADER), replace(a_frame(0), discontinuity=False)
    started_s, number = time.monotonic(), first
    while True:
        time.sleep(max(0.0, started_s + (number - first) / FPS - time.monotonic()))
        outbox.put(replace(frame, sequence=number))
        number += 1


def consume(address: str, log: str) -> None:
    """Append ``number discontinuity missing`` for each frame; go on behind the last number there."""
    path = Path(log)
    lines = path.read_text().splitlines() if path.exists() else []
    first = int(lines[-1].split()[0]) + 1 if lines else 0
    link = ReceiverLink(Endpoint(address), RecordCodec(), policy="latest", heartbeat_s=HEARTBEAT_S, name="live")
    with path.open("a", buffering=1) as file:
        for frame in link.begin(first):
            file.write(f"{frame.sequence} {int(frame.discontinuity)} {link.counters.missing}\n")


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
