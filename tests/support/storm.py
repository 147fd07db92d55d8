"""A storm of faults over several cameras at once, and what each stream made of it."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil

from sam3_stream.build_live import LiveStream
from sam3_stream.config.live import StreamConfig
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.models.fake import FakeModel
from sam3_stream.runtime.fair_batcher import FairBatcher
from sam3_stream.runtime.service import StreamService
from tests.support.fault_proxy import FaultProxy
from tests.support.rtsp_server import Mount, RtspServer
from tests.support.watching import QUICK, wait_until

FAULTS = ("stall", "cut", "delay", "throttle", "corrupt", "reboot")
# A stalled, throttled or corrupted connection may have to be given up first.
RECOVERY_S = 2 * (QUICK["backoff_max_s"] + QUICK["backoff_initial_s"]) + QUICK["connect_timeout_s"]


@dataclass(frozen=True)
class Event:
    """A fault of one stream, from `at_s` on for `duration_s`; `corrupt` and `delay` need not break the stream."""

    at_s: float
    stream: int
    fault: str
    duration_s: float


def script(events: int, duration_s: float, streams: int, seed: int = 1) -> list[Event]:
    """Faults spread evenly over a time, all kinds and streams in turn, of one to six seconds each."""
    chance = random.Random(seed)
    kinds = [FAULTS[number % len(FAULTS)] for number in range(events)]
    chance.shuffle(kinds)
    gap_s = duration_s / events
    return [
        Event(number * gap_s + chance.uniform(0, gap_s / 2), number % streams, kind, chance.uniform(1.0, 6.0))
        for number, kind in enumerate(kinds)
    ]


class TimesSink:
    """Notes when each tracked frame came out, and the ids in it."""

    name = "times"

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.ids: set[int] = set()

    def check(self, source: Path | None = None) -> None: ...

    def open(self, info: StreamInfo, header: RunHeader) -> None: ...

    def write(self, tracked: TrackedFrame) -> None:
        self.times_s.append(time.monotonic())
        self.ids.update(each.object_id for each in tracked.objects)

    def close(self) -> None: ...


@dataclass
class Outcome:
    """What became of one event: when it was over, and when the next frame came."""

    event: Event
    began_s: float
    healed_s: float = 0.0
    recovered_s: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Resources:
    """What the process holds."""

    threads: int
    descriptors: int
    rss_mb: float

    @classmethod
    def now(cls) -> Resources:
        process = psutil.Process()
        return cls(process.num_threads(), process.num_fds(), process.memory_info().rss / 1e6)


@dataclass
class Camera:
    """A server, a faulty network in front of it, and what came of its stream."""

    server: RtspServer
    proxy: FaultProxy
    sink: TimesSink = field(default_factory=TimesSink)
    outcomes: list[Outcome] = field(default_factory=list)

    def begin(self, event: Event) -> None:
        self.outcomes.append(Outcome(event, time.monotonic()))
        match event.fault:
            case "stall":
                self.proxy.stalled = True
            case "cut":
                self.proxy.cut()
            case "delay":
                self.proxy.delay_s = 0.3
            case "throttle":
                self.proxy.bytes_per_s = 3000.0
            case "corrupt":
                self.proxy.corrupt_rate = 0.0005
            case "reboot":
                self.server.kill()

    def end(self) -> None:
        outcome = self.outcomes[-1]
        if outcome.event.fault == "reboot":
            self.server.start()
        self.proxy.heal()
        outcome.healed_s = time.monotonic()

    def quiet_rate(self, began_s: float, ended_s: float, settle_s: float) -> float:
        """Frames per second outside the faults and `settle_s` after each."""
        windows, start_s = [], began_s
        for outcome in self.outcomes:
            windows.append((start_s, outcome.began_s))
            start_s = outcome.healed_s + settle_s
        windows.append((start_s, ended_s))
        windows = [(low, high) for low, high in windows if high > low]
        frames = sum(any(low <= at_s < high for low, high in windows) for at_s in self.sink.times_s)
        return frames / sum(high - low for low, high in windows)


class Rig:
    """Cameras with a faulty network each, and a service of all their streams with the fake model.

    Args:
        folder: For outputs.
        streams: How many cameras.
        fps: Of each.
    """

    def __init__(self, folder: Path, streams: int = 4, fps: int = 10) -> None:
        self.fps = fps
        self.cameras: list[Camera] = []
        self.streams: list[LiveStream] = []
        self._folder = folder
        self._count = streams
        self._stack = contextlib.ExitStack()
        self._service: StreamService[LiveStream] = StreamService()
        self._batcher = FairBatcher(FakeModel().encode)

    def __enter__(self) -> Rig:
        for number in range(self._count):
            server = self._stack.enter_context(RtspServer([Mount(fps=self.fps, gop=self.fps)]))
            proxy = self._stack.enter_context(FaultProxy(server.port, seed=number))
            camera = Camera(server, proxy)
            config = StreamConfig.model_validate(
                {
                    "name": f"cam{number}",
                    "source": {"url": server.url(port=proxy.port), **QUICK},
                    "prompts": [{"type": "click", "x": 60, "y": 60}],
                    "sinks": [
                        {
                            "type": "segments",
                            "content": "masks",
                            "folder": str(self._folder / f"cam{number}"),
                            "keep": 3,
                        }
                    ],
                }
            )
            stream = LiveStream(config, FakeModel(), self._batcher, extra_sinks=(camera.sink,))
            self.cameras.append(camera)
            self.streams.append(stream)
            self._service.add(stream)
        wait_until(lambda: all(len(camera.sink.times_s) > self.fps for camera in self.cameras), 30, "all cameras live")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._service.stop()
        self._service.wait(30)
        self._batcher.close()
        self._stack.close()

    def run(self, events: Sequence[Event], each_second: Callable[[float], None] = lambda _: None) -> None:
        """Play a script to its end, and wait until every stream is live again."""
        began_s = time.monotonic()
        for at_s, what in self._timetable(events):
            while (now_s := time.monotonic() - began_s) < at_s:
                each_second(now_s)
                time.sleep(min(1.0, at_s - now_s))
            what()
        self._note_recoveries()

    def _timetable(self, events: Sequence[Event]) -> Iterator[tuple[float, Callable[[], None]]]:
        """What to do when. A stream's next fault waits until it had time to recover from the one before."""
        free_s = [0.0] * self._count
        timetable: list[tuple[float, Callable[[], None]]] = []
        for event in events:
            camera = self.cameras[event.stream]
            begin_s = max(event.at_s, free_s[event.stream])
            timetable.append((begin_s, lambda camera=camera, event=event: camera.begin(event)))
            timetable.append((begin_s + event.duration_s, camera.end))
            free_s[event.stream] = begin_s + event.duration_s + RECOVERY_S + 1.0
        return iter(sorted(timetable, key=lambda entry: entry[0]))

    def _note_recoveries(self) -> None:
        for camera in self.cameras:
            for outcome in camera.outcomes:
                wait_until(lambda c=camera, o=outcome: c.sink.times_s[-1] > o.healed_s, 30, f"{outcome.event}")
                outcome.recovered_s = next(at_s for at_s in camera.sink.times_s if at_s > outcome.healed_s)
