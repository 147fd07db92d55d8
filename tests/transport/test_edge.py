"""An edge between two sockets behaves as a channel does: its policies, its three ways to end, its counters."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from sam3_stream.core.errors import DecodeError, RunError
from sam3_stream.runtime.channel import Cancelled, EndOfStream
from tests.transport.edges import HEADER, INFO, an_address, begin, eventually, produce, receiver_link, sender_link
from tests.transport.records import a_frame, a_tracked_frame, an_encoded_frame, assert_same_frame, assert_same_objects

FRAME_BYTES = 37 * 22 * 3


@pytest.fixture(params=["ipc", "tcp"])
def address(request, tmp_path):
    return an_address(request.param, tmp_path)


@pytest.fixture
def ipc(tmp_path):
    return an_address("ipc", tmp_path)


def test_records_come_out_whole_and_in_order_and_iteration_ends_with_the_stream(address):
    with sender_link(address) as sender, receiver_link(address) as receiver:
        writing, reading = begin(sender, receiver)
        thread = produce(writing, range(300))
        frames = list(reading)
        thread.join()
        assert [frame.sequence for frame in frames] == list(range(300))
        assert_same_frame(a_frame(299), frames[299])
        with pytest.raises(EndOfStream):
            reading.get()
        assert receiver.counters.received == 300
        assert receiver.counters.doubles == receiver.counters.malformed == sender.counters.malformed == 0


def test_every_kind_of_record_crosses(ipc):
    with sender_link(ipc) as sender, receiver_link(ipc) as receiver:
        writing, reading = begin(sender, receiver)
        for record in (a_frame(0), an_encoded_frame(1), a_tracked_frame(2)):
            writing.put(record)
        assert_same_frame(a_frame(0), reading.get(10))
        assert set(reading.get(10).features) == set(an_encoded_frame(1).features)
        assert_same_objects(a_tracked_frame(2), reading.get(10))


def test_block_keeps_no_more_under_way_than_the_window_in_bytes_and_loses_nothing(address):
    window = 5 * FRAME_BYTES
    with sender_link(address) as sender, receiver_link(address, window_bytes=window) as receiver:
        writing, reading = begin(sender, receiver)
        thread = produce(writing, range(100))
        eventually(lambda: len(reading) > 0)
        time.sleep(0.2)
        assert len(reading) * FRAME_BYTES <= window, "a consumer that does not read stops the producer"
        assert sender.counters.sent == len(reading)
        assert [frame.sequence for frame in reading] == list(range(100))
        thread.join()
        assert writing.dropped == reading.dropped == 0


def test_block_keeps_no_more_messages_under_way_than_the_window(ipc):
    with sender_link(ipc) as sender, receiver_link(ipc, window_messages=3) as receiver:
        writing, reading = begin(sender, receiver)
        thread = produce(writing, range(20))
        eventually(lambda: len(reading) == 3)
        time.sleep(0.1)
        assert len(reading) == 3
        assert len(list(reading)) == 20
        thread.join()


@pytest.mark.parametrize(("policy", "kept"), [("latest", 1), ("drop_oldest", 4)])
def test_live_policies_keep_the_newest_and_account_for_every_frame(address, policy, kept):
    with (
        sender_link(address, policy=policy) as sender,
        receiver_link(address, policy=policy) as receiver,
    ):
        writing, reading = begin(sender, receiver)
        for sequence in range(500):
            writing.put(a_frame(sequence))
        writing.close()
        eventually(lambda: reading._ended)
        frames = list(reading)
        assert [frame.sequence for frame in frames] == list(range(500 - kept, 500))
        assert writing.dropped == receiver.counters.missing
        assert writing.dropped + reading.dropped + len(frames) == 500


def plain(sequence, discontinuity=False):
    return replace(a_frame(sequence), discontinuity=discontinuity)


def test_missing_frames_are_counted_and_only_interruptions_marked(ipc):
    with receiver_link(ipc, policy="drop_oldest") as receiver:
        with sender_link(ipc, policy="latest") as sender:
            writing, reading = begin(sender, receiver)
            for sequence in (0, 7):
                writing.put(plain(sequence))
                assert not reading.get(10).discontinuity, "what the policy leaves out is no interruption"
        assert (receiver.counters.gaps, receiver.counters.missing) == (1, 6)
        with sender_link(ipc, policy="latest") as sender:
            assert sender.wait_for_want(10) == 8
            writing = sender.begin(8, INFO, HEADER)
            writing.put(plain(8))
            assert reading.get(10).discontinuity, "another sender: nobody knows what was missed"


def test_a_mark_outlives_the_frame_that_carried_it(ipc):
    with sender_link(ipc, policy="latest") as sender, receiver_link(ipc, policy="latest") as receiver:
        writing, reading = begin(sender, receiver)
        writing.put(plain(0, discontinuity=True))
        for sequence in range(1, 50):
            writing.put(plain(sequence))
        writing.close()
        eventually(lambda: reading._ended)
        assert reading.get(10).discontinuity


def test_an_error_comes_after_the_records_with_its_kind_and_words(address):
    with sender_link(address) as sender, receiver_link(address) as receiver:
        writing, reading = begin(sender, receiver)
        writing.put(a_frame(0))
        writing.fail(DecodeError("3 packets lost"))
        assert reading.get(10).sequence == 0
        with pytest.raises(DecodeError, match="3 packets lost"):
            list(reading)
        assert isinstance(reading.error, DecodeError)


def test_an_error_of_no_known_kind_is_a_run_error(ipc):
    with sender_link(ipc) as sender, receiver_link(ipc) as receiver:
        writing, reading = begin(sender, receiver)
        writing.fail(ZeroDivisionError("a bug"))
        with pytest.raises(RunError, match="a bug"):
            reading.get(10)


def test_a_record_that_cannot_be_sent_is_an_error_at_both_ends(ipc):
    with sender_link(ipc) as sender, receiver_link(ipc) as receiver:
        writing, reading = begin(sender, receiver)
        bad = an_encoded_frame(0)
        bad.features["object"] = __import__("numpy").array([object()])
        writing.put(bad)
        with pytest.raises(RunError, match="dtype object"):
            reading.get(10)
        with pytest.raises(TypeError, match="dtype object"):
            writing.put(a_frame(1))


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_cancel_reaches_the_other_side_and_discards(address, side):
    with sender_link(address) as sender, receiver_link(address, window_messages=2) as receiver:
        writing, reading = begin(sender, receiver)
        raised = []

        def wait():
            try:
                if side == "consumer":
                    for sequence in range(100):
                        writing.put(a_frame(sequence))
                else:
                    reading.get()
            except Cancelled as error:
                raised.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.05)
        (writing if side == "producer" else reading).cancel()
        waiting.join(10)
        assert len(raised) == 1
        if side == "consumer":
            assert receiver.say_farewell(10)
            assert sender.done
            assert sender.wait_for_want(10) is None, "nothing need be made anew"


def test_get_gives_up_after_its_timeout(ipc):
    with sender_link(ipc) as sender, receiver_link(ipc) as receiver:
        _, reading = begin(sender, receiver)
        with pytest.raises(TimeoutError, match="frames"):
            reading.get(timeout_s=0.01)


def test_take_waiting_takes_what_is_there(ipc):
    with sender_link(ipc) as sender, receiver_link(ipc) as receiver:
        writing, reading = begin(sender, receiver)
        produce(writing, range(3)).join()
        eventually(lambda: len(reading) == 3)
        assert [frame.sequence for frame in reading.take_waiting(2)] == [0, 1]
        assert [frame.sequence for frame in reading.take_waiting(5)] == [2]


def test_a_receiver_may_come_long_before_the_sender(address):
    with receiver_link(address) as receiver:
        reading = receiver.begin(0)
        time.sleep(0.3)
        with sender_link(address) as sender:
            assert sender.wait_for_want(10) == 0
            sender.begin(0, INFO, HEADER).put(a_frame(0))
            assert reading.get(10).sequence == 0


def test_a_done_receiver_lets_the_sender_go(ipc):
    with sender_link(ipc) as sender, receiver_link(ipc) as receiver:
        writing, reading = begin(sender, receiver)
        writing.close()
        assert list(reading) == []
        assert not sender.done
        reading.finish()
        assert sender.wait_for_want(10) is None
        assert receiver.say_farewell(10)
