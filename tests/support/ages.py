"""How old pictures are when they come out, by the clock in them."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import av

from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from tests.support.rtsp_server import read_clock


class AgeSink:
    """Notes when each tracked frame came out, and how old its picture was then."""

    name = "ages"

    def __init__(self) -> None:
        self.ages_s: list[tuple[float, float]] = []

    def check(self, source: object = None) -> None: ...

    def open(self, info: StreamInfo, header: RunHeader) -> None: ...

    def write(self, tracked: TrackedFrame) -> None:
        now_s = time.monotonic()
        self.ages_s.append((now_s, read_clock(tracked.frame.picture.to_ndarray()).age_s(now_s)))

    def close(self) -> None: ...


class BarePyAv:
    """The same stream read by PyAV and nothing else, until the end of the ``with`` block.

    Args:
        url: Address of the stream.
    """

    def __init__(self, url: str) -> None:
        self.ages_s: list[tuple[float, float]] = []
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bare-pyav")

    def _run(self) -> None:
        with av.open(self._url, options={"rtsp_transport": "tcp"}) as container:
            for frame in container.decode(video=0):
                now_s = time.monotonic()
                self.ages_s.append((now_s, read_clock(frame.to_ndarray(format="rgb24")).age_s(now_s)))
                if self._stop.is_set():
                    return

    def __enter__(self) -> BarePyAv:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
