"""What an edge does when either end dies, the cable is cut, or strangers talk to it."""

from __future__ import annotations

import threading
import time
from random import Random

import pytest
import zmq

from sam3_stream.core.errors import RunError
from sam3_stream.runtime.channel import Cancelled
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.pictures import NoPictures
from sam3_stream.transport.receiver import ReceiverLink
from sam3_stream.transport.records import RecordCodec
from sam3_stream.transport.signals import TOPIC, Cancel, End, Open, RunLayout, StreamLayout, Want
from sam3_stream.transport.wire_format import pack
from tests.support.cuttable_proxy import CuttableProxy
from tests.transport.edges import (
    HEADER,
    HEARTBEAT_S,
    INFO,
    an_address,
    begin,
    eventually,
    free_port,
    produce,
    receiver_link,
    sender_link,
)
from tests.transport.mutation import mutated
from tests.transport.records import a_frame, a_tracked_frame
from tests.transport.test_wire_format import MESSAGES


@pytest.fixture
def address(tmp_path):
    return an_address("ipc", tmp_path)


def test_a_cut_connection_loses_and_doubles_nothing():
    port = free_port()
    proxy = CuttableProxy(port)
    with (
        sender_link(f"tcp://127.0.0.1:{port}") as sender,
        receiver_link(f"tcp://127.0.0.1:{proxy.port}") as receiver,
    ):
        writing, reading = begin(sender, receiver)
        thread = produce(writing, range(400))
        sequences = []
        for frame in reading:
            sequences.append(frame.sequence)
            if len(sequences) % 80 == 0:
                proxy.cut()
        thread.join()
        assert sequences == list(range(400))
        assert proxy.connections >= 3
        assert sender.counters.sent_again > 0
    proxy.close()


def test_both_ends_notice_within_a_heartbeat_and_a_long_cut_heals():
    port = free_port()
    proxy = CuttableProxy(port)
    with (
        sender_link(f"tcp://127.0.0.1:{port}") as sender,
        receiver_link(f"tcp://127.0.0.1:{proxy.port}") as receiver,
    ):
        writing, reading = begin(sender, receiver)
        writing.put(a_frame(0))
        assert reading.get(10).sequence == 0
        proxy.cut(stay_down=True)
        eventually(lambda: not sender.connected and not receiver.connected, timeout_s=5)
        assert sender.counters.interruptions == receiver.counters.interruptions == 1
        writing.put(a_frame(1))
        time.sleep(2 * HEARTBEAT_S)
        proxy.heal()
        assert reading.get(10).sequence == 1
        assert sender.connected
    proxy.close()


def test_a_silent_network_is_not_mistaken_for_a_dead_peer(address):
    with sender_link(address) as sender, receiver_link(address) as receiver:
        begin(sender, receiver)
        time.sleep(3 * HEARTBEAT_S)
        assert sender.connected
        assert receiver.connected
        assert sender.counters.interruptions == receiver.counters.interruptions == 0


def test_a_sender_that_is_started_again_makes_the_stream_from_where_the_receiver_is(address):
    with receiver_link(address) as receiver:
        with sender_link(address) as sender:
            writing, reading = begin(sender, receiver)
            for sequence in range(10):
                writing.put(a_frame(sequence))
            for sequence in range(10):
                assert reading.get(10).sequence == sequence
        with sender_link(address) as sender:
            assert sender.wait_for_want(10) == 10
            produce(sender.begin(10, INFO, HEADER), range(10, 20)).join()
            assert [frame.sequence for frame in reading] == list(range(10, 20))
        assert receiver.counters.doubles == 0


def test_a_receiver_that_is_started_again_gets_what_it_had_not_acknowledged(address):
    with sender_link(address) as sender:
        with receiver_link(address, window_messages=5) as receiver:
            writing, reading = begin(sender, receiver)
            thread = produce(writing, range(30))
            assert [reading.get(10).sequence for _ in range(10)] == list(range(10))
            eventually(lambda: len(reading) == 5)
        with receiver_link(address) as receiver:
            reading = receiver.begin(12)
            assert [frame.sequence for frame in reading] == list(range(12, 30))
            thread.join()
        assert sender.counters.rewinds == 0


def test_a_receiver_that_wants_what_is_gone_has_the_stream_made_anew_from_there(address):
    with sender_link(address) as sender:
        with receiver_link(address) as receiver:
            writing, reading = begin(sender, receiver)
            for sequence in range(50):
                writing.put(a_frame(sequence))
                assert reading.get(10).sequence == sequence
        with receiver_link(address) as receiver:
            reading = receiver.begin(20)
            assert sender.wait_for_want(10) == 20
            with pytest.raises(Cancelled):
                writing.put(a_frame(50))
            writing.close()  # as a worker would; it says nothing
            thread = produce(sender.begin(20, INFO, HEADER), range(20, 60))
            assert [frame.sequence for frame in reading] == list(range(20, 60))
            thread.join()
        assert sender.counters.rewinds == 1


def test_a_live_stream_goes_on_with_now_for_a_receiver_that_is_started_again(address):
    with sender_link(address, policy="latest") as sender:
        with receiver_link(address, policy="latest") as receiver:
            writing, reading = begin(sender, receiver)
            writing.put(a_frame(0))
            assert reading.get(10).sequence == 0
        for sequence in range(1, 100):
            writing.put(a_frame(sequence))
        with receiver_link(address, policy="latest") as receiver:
            reading = receiver.begin(1)
            eventually(lambda: reading.live)
            writing.put(a_frame(100))
            sequence = reading.get(10).sequence
            assert sequence in (99, 100), "what is old by now is not sent"
            eventually(lambda: receiver.counters.missing + receiver.counters.received == 100)


def test_a_second_receiver_is_kept_out_while_the_first_lives(address):
    with sender_link(address) as sender, receiver_link(address) as receiver:
        writing, reading = begin(sender, receiver)
        with receiver_link(address) as intruder:
            stolen = intruder.begin(0)
            thread = produce(writing, range(50))
            assert [frame.sequence for frame in reading] == list(range(50))
            thread.join()
            assert stolen.info is None
            assert sender.counters.strangers > 0


def test_a_producer_is_not_held_up_by_a_consumer_that_never_reads_on_a_live_edge(address):
    with sender_link(address, policy="latest") as sender, receiver_link(address, policy="latest") as receiver:
        writing, reading = begin(sender, receiver)
        for sequence in range(3000):
            writing.put(a_frame(sequence))
        assert len(writing) <= 1
        assert len(reading) <= 1


def test_mutated_messages_at_the_receiving_socket_are_counted_and_the_stream_goes_on(tmp_path):
    """Whatever a sender says, what comes after it in order is delivered."""
    random = Random(6)
    context = zmq.Context.instance()
    with context.socket(zmq.ROUTER) as rogue:
        rogue.linger = 0
        rogue.bind(f"ipc://{tmp_path}/rogue.sock")
        with receiver_link(f"ipc://{tmp_path}/rogue.sock", policy="drop_oldest") as receiver:
            reading = receiver.begin(0)
            identity, *_ = rogue.recv_multipart()
            run = RunLayout(input="", model="", prompts=[])
            opening = pack(TOPIC, Open(session=1, stream=StreamLayout.of(INFO), run=run, live=True))
            signals = [pack(TOPIC, End(number=3)), pack(TOPIC, Cancel(session=9)), opening]
            good = [parts for _, parts in MESSAGES] + [[bytes(part) for part in each] for each in signals]
            rogue.send_multipart([identity, *opening])
            for _ in range(2000):
                rogue.send_multipart([identity, *mutated(random.choice(good), random)])
            eventually(lambda: receiver.counters.malformed > 1000, timeout_s=30)
            if not reading.cancelled and not reading._ended:
                rogue.send_multipart([identity, *RecordCodec().pack(a_tracked_frame(2**40))])
                eventually(lambda: reading.next_number == 2**40 + 1)


def test_mutated_messages_at_the_sending_socket_are_counted_and_the_stream_goes_on(address):
    random = Random(7)
    want = Want(receiver="x", session=1, next=0, consumed=0, window_bytes=1, window_messages=1, sent_s=0.0)
    good = [bytes(part) for part in pack(TOPIC, want)]
    with (
        sender_link(address) as sender,
        receiver_link(address) as receiver,
        zmq.Context.instance().socket(zmq.DEALER) as rogue,
    ):
        rogue.linger = 0
        rogue.connect(address)
        writing, reading = begin(sender, receiver)
        messages = [parts for parts in (mutated(good, random) for _ in range(2000)) if parts]
        thread = threading.Thread(target=lambda: [rogue.send_multipart(parts) for parts in messages])
        thread.start()
        producing = produce(writing, range(100))
        assert [frame.sequence for frame in reading] == list(range(100))
        producing.join()
        thread.join()
        eventually(lambda: sender.counters.malformed + sender.counters.strangers == len(messages))
        assert sender.counters.malformed > 1000


def test_a_record_that_can_never_be_read_is_an_error_and_not_a_loop(address):

    with sender_link(address) as sender:
        receiver = ReceiverLink(Endpoint(address), RecordCodec(NoPictures()), heartbeat_s=HEARTBEAT_S, name="frames")
        try:
            writing, reading = begin(sender, receiver)
            produce(writing, range(2)).join()
            with pytest.raises(RunError, match="record 0 of edge 'frames' came 4 times and could not be read"):
                list(reading)
            assert receiver.counters.malformed >= 4
        finally:
            receiver.stop()
