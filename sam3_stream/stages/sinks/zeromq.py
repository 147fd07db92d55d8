"""Results to programs on this machine or others, over ZeroMQ; docs/wire-format.md says how to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.output_place import reporting
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.keys import load_keys
from sam3_stream.transport.publisher import ResultsPublisher


class ZeroMqSink:
    """Publishes ids, labels, scores, boxes and masks of every frame to whoever subscribes; nobody can slow it down.

    Args:
        address: Where to publish: ``ipc://PATH`` or ``tcp://HOST:PORT``.
        keys: Folder of keys; needed where other machines reach the address.
        masks: ``rle`` is smallest, ``bits`` is quickest to read.
        position: File that keeps the number of the next frame, so that a process that is started again publishes none
            twice.
        clock: Tells the time.

    Raises:
        ConfigError: Other machines reach the address and there are no keys.
    """

    name = "zeromq"

    def __init__(
        self,
        address: str,
        *,
        keys: Path | None = None,
        masks: Literal["rle", "bits"] = "rle",
        position: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.address = address
        self._endpoint = Endpoint(address, None if keys is None else load_keys(keys))
        self._masks: Literal["rle", "bits"] = masks
        self._clock = clock or SystemClock()
        self._position = position
        self._first_sequence = 0
        self._publisher: ResultsPublisher | None = None

    @property
    def next_sequence(self) -> int:
        """Number of the first frame that no process before this one has published."""
        if self._position is None or not self._position.exists():
            return 0
        return int.from_bytes(self._position.read_bytes(), "big")

    def check(self, source: Path | None = None) -> None:
        """Whether the address is free shows when it is opened."""

    def open(self, info: StreamInfo, header: RunHeader) -> None:  # noqa: ARG002
        self._first_sequence = self.next_sequence
        self._publisher = ResultsPublisher(self._endpoint, self._clock, self._masks)

    def write(self, tracked: TrackedFrame) -> None:
        if self._publisher is None:
            raise ValueError("the zeromq sink is not open")
        if tracked.frame.sequence < self._first_sequence:
            return
        self._publisher.publish(tracked)
        if self._position is not None:
            with reporting(self._position, "note the last frame in"):
                self._position.write_bytes((tracked.frame.sequence + 1).to_bytes(8, "big"))

    def close(self) -> None:
        if self._publisher is not None:
            publisher, self._publisher = self._publisher, None
            publisher.end()
            publisher.close()
