"""A live pipeline takes the newest frame when it is free; what lags loses frames instead of holding up others."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import Frame, RunHeader, TrackedFrame
from sam3_stream.runtime.pipeline import Pipeline

PICTURE = ArrayPicture(np.zeros((4, 6, 3), np.uint8))


class EndlessSource:
    info = None

    def __init__(self) -> None:
        self.asked = 0
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[Frame]:
        for sequence in itertools.count():
            if self.closed.wait(0.002):
                return
            self.asked += 1
            yield Frame("cam", sequence, sequence, Fraction(1, 25), PICTURE)

    def close(self) -> None:
        self.closed.set()


class Track:
    name = "memory_tracker"

    def __init__(self) -> None:
        self.asked_ahead: list[int] = []

    def run(self, inbox, outbox) -> None:
        source = inbox
        for frame in inbox:
            self.asked_ahead.append(source.asked - frame.sequence)
            outbox.put(TrackedFrame(frame))


class Sink:
    def __init__(self, name: str, work_s: float = 0.0) -> None:
        self.name = name
        self.sequences: list[int] = []
        self._work_s = work_s

    def open(self, info, header) -> None: ...

    def write(self, tracked: TrackedFrame) -> None:
        time.sleep(self._work_s)
        self.sequences.append(tracked.frame.sequence)

    def close(self) -> None: ...


def test_no_frame_waits_for_the_model_and_a_slow_sink_holds_up_nobody():
    source, track, quick, slow = EndlessSource(), Track(), Sink("quick"), Sink("slow", 0.05)
    header = RunHeader("cam", "none")
    pipeline = Pipeline(source, [track], sinks=[quick, slow], header=header, policy="latest", on_demand=True)
    threading.Timer(1.0, pipeline.stop).start()
    pipeline.run()
    assert set(track.asked_ahead) == {1}, "a frame was taken before the model was free for it"
    assert quick.sequences == list(range(len(quick.sequences)))
    assert len(quick.sequences) > 100
    assert 5 < len(slow.sequences) < 30
    assert slow.sequences == sorted(slow.sequences)
    dropped = next(channel.dropped for channel in pipeline.channels if channel.name == "slow")
    assert dropped == len(quick.sequences) - len(slow.sequences)


def test_stopping_closes_a_source_that_waits():
    source = EndlessSource()
    pipeline = Pipeline(source, [Track()], header=RunHeader("cam", "none"), policy="latest", on_demand=True)
    threading.Timer(0.2, pipeline.stop).start()
    pipeline.run()
    assert source.closed.is_set()
    assert pipeline.errors == ()
