"""Watches a live decoder in a thread, as a pipeline would, and notes what comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from sam3_stream.config.live import LiveSourceConfig
from sam3_stream.core.stream_status import SourceStatus
from sam3_stream.stages.decoder.live import LiveDecoder
from tests.support.rtsp_server import PictureClock, read_clock

QUICK = {
    "connect_timeout_s": 4.0,
    "read_timeout_s": 2.0,
    "stalled_after_s": 0.5,
    "backoff_initial_s": 0.2,
    "backoff_max_s": 1.0,
}


@dataclass(frozen=True)
class Seen:
    """One frame that came out."""

    sequence: int
    time_s: float
    discontinuity: bool
    size: tuple[int, int]
    clock: PictureClock
    age_s: float
    capture_age_s: float


def wait_until(condition: Callable[[], object], timeout_s: float = 15.0, what: str = "") -> None:
    """Return when the condition holds; fail the test when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s in vain{': ' + what if what else ''}")
        time.sleep(0.01)


class Watching:
    """Iterates a `LiveDecoder` until the end of the ``with`` block.

    Args:
        url: The source.
        work_s: How long each frame keeps the watcher busy, as a model would.
        options: Of `LiveSourceConfig`; short time-outs unless given.
    """

    def __init__(self, url: str, *, work_s: float = 0.0, **options: object) -> None:
        self.decoder = LiveDecoder(
            LiveSourceConfig.model_validate({"url": url, **QUICK, **options}), "cam", on_status=self._note
        )
        self.seen: list[Seen] = []
        self.states: list[str] = []
        self.reasons: list[str] = []
        self.error: BaseException | None = None
        self._work_s = work_s
        self._thread = threading.Thread(target=self._run, name="watching")

    def _note(self, status: SourceStatus) -> None:
        self.states.append(status.state)
        self.reasons.append(status.reason)

    def _run(self) -> None:
        try:
            for frame in self.decoder:
                image = frame.picture.to_ndarray()
                clock = read_clock(image)
                assert frame.capture_time_s is not None
                self.seen.append(
                    Seen(
                        frame.sequence,
                        frame.time_s,
                        frame.discontinuity,
                        (frame.width, frame.height),
                        clock,
                        clock.age_s(),
                        time.time() - frame.capture_time_s,
                    )
                )
                time.sleep(self._work_s)
        except BaseException as error:
            self.error = error

    @property
    def state(self) -> str:
        return self.decoder.status.state

    def wait_for_frames(self, count: int, timeout_s: float = 15.0) -> None:
        """Wait until so many more frames have come."""
        wanted = len(self.seen) + count
        wait_until(lambda: len(self.seen) >= wanted or self.error, timeout_s, f"{count} frames; {self.decoder.status}")
        if self.error is not None:
            raise self.error

    def wait_for_state(self, state: str, timeout_s: float = 15.0) -> None:
        """Wait until the stream is in this state."""
        wait_until(lambda: self.state == state, timeout_s, f"state {state}; {self.decoder.status}")

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.decoder.close()
        self._thread.join(10)
        assert not self._thread.is_alive(), "closing the decoder does not end the iteration"
