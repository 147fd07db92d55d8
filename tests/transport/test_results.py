"""Publishing results: anyone may listen, nobody can disturb, and losses are seen."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import msgpack
import psutil
import pytest
import zmq

from sam3_stream.client import Client
from sam3_stream.core.errors import ConfigError, OutputError
from sam3_stream.core.records import RunHeader
from sam3_stream.stages.sinks.zeromq import ZeroMqSink
from tests.transport.edges import INFO, an_address
from tests.transport.records import a_tracked_frame, assert_same_objects

HEADER = RunHeader("clip", "fake")
STREAM = "yard/1"


@pytest.fixture
def sink(tmp_path):
    sink = ZeroMqSink(an_address("ipc", tmp_path))
    sink.open(INFO, HEADER)
    yield sink
    sink.close()


def publish_until(sink, condition, first=0):
    """Publish frames until a subscriber is there, which takes it a moment; the number of the next frame."""
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        sink.write(a_tracked_frame(first))
        first += 1
        time.sleep(0.005)
    return first


def listen(client, received, **options):
    def run():
        received.extend(client.results(STREAM, timeout_s=20, **options))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_client_gets_every_frame_from_when_it_came_until_the_end(sink):
    client, received = Client(sink.address), []
    thread = listen(client, received)
    first = publish_until(sink, lambda: client.counters.received > 0)
    for sequence in range(first, first + 50):
        sink.write(a_tracked_frame(sequence))
    sink.close()
    thread.join(20)
    sequences = [tracked.frame.sequence for tracked in received]
    assert sequences == list(range(sequences[0], first + 50))
    assert_same_objects(a_tracked_frame(first), received[-50])
    assert (client.counters.lost, client.counters.malformed) == (0, 0)


def test_a_label_has_a_topic_of_its_own(sink):
    client, received = Client(sink.address), []
    thread = listen(client, received, label="Käse, gerieben/fein")
    publish_until(sink, lambda: client.counters.received > 3)
    sink.close()
    thread.join(20)
    assert [[each.object_id for each in tracked.objects] for tracked in received] == [[4]] * len(received)
    assert client.counters.lost == 0


def test_a_consumer_in_plain_pyzmq_and_msgpack_understands(sink):
    example = Path(__file__).parents[2] / "examples" / "consume_results.py"
    process = subprocess.Popen([sys.executable, example, sink.address, STREAM], stdout=subprocess.PIPE, text=True)
    lines: list[str] = []
    reading = threading.Thread(target=lambda: lines.extend(process.stdout))
    reading.start()
    publish_until(sink, lambda: len(lines) > 3)
    sink.close()
    reading.join(20)
    process.wait(20)
    process.stdout.close()
    assert "1 dog at [3, 2, 27, 7]" in lines[0]
    assert lines[-1] == f"end of {STREAM}, 0 gaps\n"


def test_consumers_that_never_read_come_late_or_leave_disturb_nobody_and_take_no_memory(sink):
    context = zmq.Context.instance()
    client, sequences = Client(sink.address), []
    thread = threading.Thread(
        target=lambda: sequences.extend(each.frame.sequence for each in client.results(STREAM, timeout_s=20))
    )
    thread.start()
    with context.socket(zmq.SUB) as deaf, context.socket(zmq.SUB) as leaver:
        for each in (deaf, leaver):
            each.linger = 0
            each.rcvhwm = 1
            each.setsockopt(zmq.SUBSCRIBE, b"")
            each.connect(sink.address)
        first = publish_until(sink, lambda: client.counters.received > 0)
        leaver.close()
        process = psutil.Process()
        before = process.memory_info().rss
        tracked = a_tracked_frame(0, size=(640, 360))
        for sequence in range(first, first + 200):
            object.__setattr__(tracked.frame, "sequence", sequence)
            sink.write(tracked)
            while client.counters.received + client.counters.lost < sequence - first - 20 and thread.is_alive():
                time.sleep(0.001)
        assert process.memory_info().rss - before < 50e6, "a deaf subscriber's messages would be 100 MB and more"
    sink.close()
    thread.join(20)
    assert client.counters.lost == 0
    assert sequences[-1] == first + 199


def test_losses_are_counted_from_the_gaps(sink):
    client, go_on = Client(sink.address), threading.Event()

    def read_after_a_pause():
        for _ in client.results(STREAM, timeout_s=20):
            go_on.wait(60)

    thread = threading.Thread(target=read_after_a_pause)
    thread.start()
    first = publish_until(sink, lambda: client.counters.received > 0)
    for sequence in range(first, first + 3000):  # more than the sockets hold
        sink.write(a_tracked_frame(sequence))
    go_on.set()
    time.sleep(0.5)
    sink.write(a_tracked_frame(first + 3000))
    sink.close()
    thread.join(30)
    assert client.counters.lost > 0
    assert client.counters.received < 3000


def test_malformed_results_are_counted_and_passed_over(tmp_path):
    address = an_address("ipc", tmp_path)
    with zmq.Context.instance().socket(zmq.PUB) as rogue:
        rogue.linger = 0
        rogue.bind(address)
        client, received = Client(address), []
        thread = listen(client, received)
        deadline_s = time.monotonic() + 20
        while client.counters.malformed < 10 and time.monotonic() < deadline_s:
            rogue.send_multipart([b"frame/yard%2F1/", msgpack.packb({"v": 1, "type": "tracked"}), b"x"])
            rogue.send_multipart([b"frame/yard%2F1/"])
            time.sleep(0.01)
        rogue.send_multipart([b"frame/yard%2F1/", msgpack.packb({"v": 1, "type": "end", "number": 3})])
        thread.join(20)
    assert client.counters.malformed >= 10
    assert received == []


def test_an_address_that_is_taken_or_needs_keys_is_refused():
    with zmq.Context.instance().socket(zmq.PUB) as other:
        taken = ZeroMqSink(f"tcp://127.0.0.1:{other.bind_to_random_port('tcp://127.0.0.1')}")
        with pytest.raises(OutputError, match="address already in use"):
            taken.open(INFO, HEADER)
    for address in ("tcp://0.0.0.0:5560", "tcp://10.0.0.1:5560", "tcp://*:5560", "tcp://[::]:5560"):
        with pytest.raises(ConfigError, match="needs keys"):
            ZeroMqSink(address)
    for address in ("udp://127.0.0.1:3", "tcp://127.0.0.1", "ipc://", "nonsense"):
        with pytest.raises(ConfigError, match="is none"):
            ZeroMqSink(address)


def test_a_sink_that_is_started_again_publishes_no_frame_twice(tmp_path):
    position = tmp_path / "position"
    address = an_address("ipc", tmp_path)
    for start, end in ((0, 5), (2, 8)):
        sink = ZeroMqSink(address, position=position)
        sink.open(INFO, HEADER)
        for sequence in range(start, end):
            sink.write(a_tracked_frame(sequence))
        sink.close()
        assert ZeroMqSink(address, position=position).next_sequence == end
    assert ZeroMqSink(address).next_sequence == 0
