"""Two clocks are made one: by the exchange with the shortest round trip."""

from __future__ import annotations

import pytest

from sam3_stream.core.clock import SystemClock
from sam3_stream.transport.clock_offset import ClockOffset
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.records import RecordCodec
from sam3_stream.transport.sender import SenderLink
from tests.transport.edges import HEARTBEAT_S, an_address, begin, eventually, receiver_link
from tests.transport.records import a_frame


def test_the_quickest_exchange_counts():
    offset = ClockOffset()
    assert not offset.matters
    assert offset.offset_s == 0
    offset.observe(asked_s=10.0, heard_s=115.0, answered_s=115.5, arrived_s=11.5)  # 1 s round trip, 4.5 s one way off
    offset.observe(asked_s=20.0, heard_s=120.01, answered_s=120.01, arrived_s=20.02)
    offset.observe(asked_s=30.0, heard_s=132.0, answered_s=132.0, arrived_s=34.0)
    assert offset.offset_s == pytest.approx(100.0)
    assert offset.uncertainty_s == pytest.approx(0.01)
    assert offset.matters


def test_what_cannot_be_is_passed_over_and_equal_clocks_do_not_matter():
    offset = ClockOffset()
    offset.observe(asked_s=10.0, heard_s=10.0, answered_s=20.0, arrived_s=10.5)
    assert offset.uncertainty_s == float("inf")
    offset.observe(asked_s=10.0, heard_s=10.006, answered_s=10.006, arrived_s=10.01)
    assert not offset.matters


class ClockAhead(SystemClock):
    def wall_s(self) -> float:
        return super().wall_s() + 3600


def test_a_capture_time_arrives_on_the_receivers_clock(tmp_path):
    address = an_address("ipc", tmp_path)
    sender = SenderLink(Endpoint(address), RecordCodec(), heartbeat_s=HEARTBEAT_S, clock=ClockAhead())
    try:
        with receiver_link(address) as receiver:
            writing, reading = begin(sender, receiver)
            eventually(lambda: receiver.clock_offset.matters)
            frame = a_frame(0)
            writing.put(frame)
            arrived = reading.get(10).capture_time_s
            assert arrived == pytest.approx(frame.capture_time_s - 3600, abs=0.5)
    finally:
        sender.stop()
