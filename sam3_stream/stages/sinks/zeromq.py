"""Results to programs on this machine or others, over ZeroMQ; docs/wire-format.md says how to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.keys import load_keys
from sam3_stream.transport.publisher import ResultsPublisher


class ZeroMqSink:
    """Publishes ids, labels, scores, boxes and masks of every frame to whoever subscribes; nobody can slow it down.

    Args:
        address: Where to publish: ``ipc://PATH`` or ``tcp://HOST:PORT``.
        keys: Folder of keys; needed where other machines reach the address.
        masks: ``rle`` is smallest, ``bits`` is quickest to read.
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
        clock: Clock | None = None,
    ) -> None:
        self.address = address
        self._endpoint = Endpoint(address, None if keys is None else load_keys(keys))
        self._masks: Literal["rle", "bits"] = masks
        self._clock = clock or SystemClock()
        self._publisher: ResultsPublisher | None = None

    def check(self, source: Path | None = None) -> None:
        """Whether the address is free shows when it is opened."""

    def open(self, info: StreamInfo, header: RunHeader) -> None:  # noqa: ARG002
        self._publisher = ResultsPublisher(self._endpoint, self._masks)

    def write(self, tracked: TrackedFrame) -> None:
        if self._publisher is None:
            raise ValueError("the zeromq sink is not open")
        self._publisher.publish(tracked, self._clock.wall_s())

    def close(self) -> None:
        if self._publisher is not None:
            publisher, self._publisher = self._publisher, None
            publisher.end()
            publisher.close()
