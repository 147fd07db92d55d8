"""How frames, ends and errors travel through a pipeline: every frame once, nothing lost that was made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from sam3_stream.core.errors import DecodeError, SinkError, StageError
from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import EncodedFrame, Frame, RunHeader, TrackedFrame
from sam3_stream.runtime import pipeline as runtime


def Pipeline(source, stages, **options):
    return runtime.Pipeline(source, stages, header=RunHeader("clip", "none"), **options)


PICTURE = ArrayPicture(np.zeros((4, 6, 3), np.uint8))


class ListSource:
    info = None

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self._count = count
        self._error = error
        self.closed = False
        self.delivered = 0

    def __iter__(self) -> Iterator[Frame]:
        for sequence in range(self._count):
            self.delivered += 1
            yield Frame("0", sequence, sequence, Fraction(1, 25), PICTURE)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.closed = True


class TrackNothing:
    name = "memory_tracker"

    def __init__(self, break_at: int | None = None) -> None:
        self._break_at = break_at

    def run(self, inbox, outbox) -> None:
        for frame in inbox:
            if frame.sequence == self._break_at:
                raise ZeroDivisionError("a bug")
            outbox.put(TrackedFrame(frame))


class Encode:
    name = "encoder"

    def run(self, inbox, outbox) -> None:
        for frame in inbox:
            outbox.put(EncodedFrame(frame, None, (6, 4)))


class ListSink:
    def __init__(self, name: str = "list", fail_at: int | None = None) -> None:
        self.name = name
        self.sequences: list[int] = []
        self.opened = 0
        self.closed = 0
        self._fail_at = fail_at

    def open(self, info, header) -> None:
        self.opened += 1

    def write(self, tracked: TrackedFrame) -> None:
        if tracked.frame.sequence == self._fail_at:
            raise SinkError(f"{self.name}: no space left on device")
        self.sequences.append(tracked.frame.sequence)

    def close(self) -> None:
        self.closed += 1


def no_thread_is_left() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name.startswith("sam3_stream-")]


def test_every_frame_reaches_every_sink_and_the_caller_in_order():
    source, first, second = ListSource(50), ListSink("first"), ListSink("second")
    pipeline = Pipeline(source, [TrackNothing()], sinks=[first, second])
    assert [tracked.frame.sequence for tracked in pipeline] == list(range(50))
    assert first.sequences == second.sequences == list(range(50))
    assert (first.opened, first.closed, source.closed) == (1, 1, True)
    assert no_thread_is_left()


def test_an_error_of_the_source_comes_after_all_that_it_delivered():
    sink = ListSink()
    pipeline = Pipeline(ListSource(7, DecodeError("3 packets lost")), [TrackNothing()], sinks=[sink])
    with pytest.raises(DecodeError, match="3 packets lost"):
        pipeline.run()
    assert sink.sequences == list(range(7))
    assert sink.closed == 1
    assert len(pipeline.errors) == 1, "an error is reported once, by the stage it came from"


def test_a_bug_in_a_stage_is_carried_to_the_caller_with_the_stage_and_cause():
    sink = ListSink()
    with pytest.raises(StageError, match="the memory_tracker stage failed: ZeroDivisionError: a bug") as caught:
        Pipeline(ListSource(1000), [TrackNothing(break_at=5)], sinks=[sink]).run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert sink.sequences == list(range(5)), "what was tracked before is written"
    assert sink.closed == 1
    assert no_thread_is_left()


def test_a_failing_sink_does_not_disturb_another():
    good, bad = ListSink("good"), ListSink("bad", fail_at=3)
    pipeline = Pipeline(ListSource(40), [TrackNothing()], sinks=[bad, good])
    with pytest.raises(SinkError, match="bad: no space left"):
        pipeline.run()
    assert good.sequences == list(range(40))
    assert bad.sequences == [0, 1, 2]
    assert bad.closed == good.closed == 1


def test_the_pipeline_stops_when_the_last_sink_has_failed():
    source = ListSource(100_000)
    pipeline = Pipeline(source, [TrackNothing()], sinks=[ListSink("only", fail_at=3)])
    with pytest.raises(SinkError):
        list(pipeline)
    assert source.delivered < 1000


def test_a_sink_that_cannot_be_opened_stops_everything_before_the_first_frame():
    class Unopenable(ListSink):
        def open(self, info, header) -> None:
            raise SinkError("read-only folder")

    source, other = ListSource(5), ListSink()
    with pytest.raises(SinkError, match="read-only"):
        Pipeline(source, [TrackNothing()], sinks=[other, Unopenable()]).run()
    assert (source.delivered, other.closed, source.closed) == (0, 1, True)


def test_stop_finishes_what_is_under_way():
    sink = ListSink()
    pipeline = Pipeline(ListSource(1_000_000), [Encode(), _Tracker()], sinks=[sink])
    seen = []
    for tracked in pipeline:
        seen.append(tracked.frame.sequence)
        if len(seen) == 10:
            pipeline.stop()
    assert seen == list(range(len(seen)))
    assert sink.sequences == seen
    assert len(seen) < 100


def test_leaving_the_loop_early_finishes_the_outputs():
    sink = ListSink()
    pipeline = Pipeline(ListSource(1_000_000), [TrackNothing()], sinks=[sink])
    for tracked in pipeline:
        if tracked.frame.sequence == 5:
            break
    assert sink.closed == 1
    assert sink.sequences[:6] == list(range(6))
    assert no_thread_is_left()


def test_ctrl_c_while_iterating_finishes_the_outputs_and_is_passed_on():
    sink = ListSink()
    frames = iter(Pipeline(ListSource(1_000_000), [TrackNothing()], sinks=[sink]))
    next(frames)
    with pytest.raises(KeyboardInterrupt):
        frames.throw(KeyboardInterrupt)  # as the interpreter does to whoever waits for the next frame
    assert sink.closed == 1
    assert no_thread_is_left()


def test_an_error_in_the_loop_finishes_the_outputs():
    sink = ListSink()

    def fail_at_the_fifth() -> None:
        with Pipeline(ListSource(1_000_000), [TrackNothing()], sinks=[sink]) as pipeline:
            for tracked in pipeline:
                assert tracked.frame.sequence < 5 or 1 // 0

    with pytest.raises(ZeroDivisionError):
        fail_at_the_fifth()
    assert sink.closed == 1
    assert no_thread_is_left()


def test_cancel_drops_what_is_under_way_but_closes_the_sinks():
    sink = ListSink()
    pipeline = Pipeline(ListSource(1_000_000), [TrackNothing()], sinks=[sink])
    for tracked in pipeline:
        if tracked.frame.sequence == 5:
            pipeline.cancel()
    assert sink.closed == 1
    assert no_thread_is_left()


def test_a_pipeline_runs_once():
    pipeline = Pipeline(ListSource(1), [TrackNothing()])
    pipeline.run()
    with pytest.raises(RuntimeError, match="build another one"):
        pipeline.run()


def test_iterating_twice_at_once_is_refused_and_does_not_disturb_the_first():
    pipeline = Pipeline(ListSource(30), [TrackNothing()])
    seen = []
    for tracked in pipeline:
        seen.append(tracked.frame.sequence)
        if len(seen) == 1:
            with pytest.raises(RuntimeError, match="build another one"):
                list(pipeline)
    assert seen == list(range(30))


class _Tracker:
    name = "memory_tracker"

    def run(self, inbox, outbox) -> None:
        for encoded in inbox:
            outbox.put(TrackedFrame(encoded.frame))
