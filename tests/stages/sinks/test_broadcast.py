"""Results to whoever subscribes: nobody holds up the stream or another."""

from __future__ import annotations

import pytest

from sam3_stream.core.errors import CapacityError
from sam3_stream.runtime.channel import EndOfStream
from sam3_stream.stages.sinks.broadcast import BroadcastSink


def test_a_subscriber_that_does_not_read_loses_the_oldest():
    sink = BroadcastSink()
    slow = sink.subscribe(capacity=2)
    for number in range(5):
        sink.write(number)
    assert [slow.get(0), slow.get(0), slow.dropped, sink.latest] == [3, 4, 3, 4]


def test_a_subscriber_that_leaves_while_a_frame_is_handed_out_harms_nobody(monkeypatch):
    sink = BroadcastSink()
    leaving, other = sink.subscribe(), sink.subscribe()
    drop_cancelled = sink._drop_cancelled

    def leave_just_after_the_check() -> None:
        drop_cancelled()
        leaving.cancel()

    monkeypatch.setattr(sink, "_drop_cancelled", leave_just_after_the_check)
    sink.write("a frame")
    assert other.get(0) == "a frame"


def test_places_are_limited_and_come_free_again():
    sink = BroadcastSink(most_subscribers=2)
    first, _ = sink.subscribe(), sink.subscribe()
    with pytest.raises(CapacityError, match="2 subscribers"):
        sink.subscribe()
    first.cancel()
    sink.subscribe()


def test_all_learn_of_the_end_also_those_who_come_later():
    sink = BroadcastSink()
    early = sink.subscribe()
    sink.close()  # of one pipeline; the stream may be restarted
    sink.write("another")
    sink.end()
    assert early.get(0) == "another"
    for each in (early, sink.subscribe()):
        with pytest.raises(EndOfStream):
            each.get(0)
