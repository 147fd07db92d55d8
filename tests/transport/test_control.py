"""The control socket: requests change a running stream, and nothing that is sent to it breaks it."""

from __future__ import annotations

import threading
import time
from random import Random

import msgpack
import numpy as np
import pytest
import zmq

from sam3_stream.client import Client
from sam3_stream.core.errors import PromptError, RunError
from sam3_stream.core.masks_format import describe_prompt, encode_rle
from sam3_stream.core.prompt_description import prompt_from_description
from sam3_stream.core.prompts import BoxPrompt, ExemplarPrompt, MaskPrompt, PointPrompt, TextPrompt
from sam3_stream.models.fake import FakeModel
from sam3_stream.stages.memory_tracker import MemoryTracker
from sam3_stream.transport.control import ControlServer, Request
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.wire_format import pack
from tests.support.frames import Collector, encoded_frames
from tests.transport.edges import an_address, eventually
from tests.transport.mutation import mutated

CLICK = {"type": "click", "x": 9, "y": 9, "name": "cat"}


@pytest.fixture
def address(tmp_path):
    return an_address("ipc", tmp_path)


@pytest.fixture
def server(address):
    server = ControlServer(Endpoint(address))
    yield server
    server.close()


@pytest.fixture
def running(server):
    """A tracker with an endless stream, under control."""
    tracker, collector, stop = MemoryTracker(FakeModel()), Collector(), threading.Event()

    def frames():
        for each in encoded_frames(5000):
            if stop.is_set():
                return
            time.sleep(0.002)
            yield each

    thread = threading.Thread(target=lambda: tracker.run(frames(), collector))
    thread.start()
    server.controlled = tracker
    yield collector
    stop.set()
    thread.join()


def test_add_refine_remove_and_status(address, running):
    client = Client(control=address)
    effect = client.add(CLICK)
    assert (effect.prompt_id, effect.object_id) == ("p1", 1)
    added = effect.sequence
    refined = client.add(CLICK | {"x": 20}).sequence
    assert client.add({"type": "click", "x": 5, "y": 5}, object_id=1).object_id == 1
    status = client.status()
    assert status["objects"] == [{"id": 1, "label": "cat", "score": 1.0, "present": True}]
    assert status["sequence"] >= refined
    removed = client.remove(1)
    assert added < refined < removed
    counts = [len(tracked.objects) for tracked in running.items[: removed + 1]]
    assert counts == [0] * added + [1] * (removed - added) + [0]
    assert client.status()["objects"] == []
    other = client.add({"type": "click", "x": 5, "y": 5})
    assert client.add({"type": "click", "x": 9, "y": 9}, replaces=other.prompt_id).object_id == other.object_id
    client.remove_prompt(other.prompt_id)
    assert client.status()["objects"] == []
    with pytest.raises(RunError, match="there is no prompt 'p2'"):
        client.remove_prompt(other.prompt_id)
    with pytest.raises(RunError, match="there is no object 7"):
        client.add(CLICK | {"name": None}, object_id=7)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"type": "click", "x": 500, "y": 9}, "outside the picture"),
        ({"type": "text", "text": "dog"}, "knows no phrases"),
        ({"type": "click", "x": 1}, "not a prompt"),
        ({"type": "circle"}, "not a prompt"),
        ({}, "not a prompt"),
        ({"type": "mask", "rle": {"size": [24, 32], "counts": "3"}}, "run lengths"),
        ({"type": "mask", "rle": 7}, "run lengths"),
    ],
)
def test_a_prompt_that_makes_no_sense_is_refused_with_the_reason(address, running, prompt, message):
    with pytest.raises(RunError, match=message):
        Client(control=address).add(prompt)


def test_a_mask_can_be_sent(address, running):
    mask = np.zeros((24, 32), np.bool_)
    mask[3:9, 5:20] = True
    Client(control=address).add({"type": "mask", "rle": encode_rle(mask)})
    eventually(lambda: running.items and running.items[-1].objects)


def test_nobody_there_is_a_timeout_and_nothing_running_a_refusal(address, tmp_path, server):
    with pytest.raises(RunError, match="the stream has not begun, or is over"):
        Client(control=address).status()
    with pytest.raises(TimeoutError, match="no answer came from"):
        Client(control=f"ipc://{tmp_path}/nobody.sock").status(timeout_s=0.05)


def test_a_stream_that_ends_answers_who_waits(address, server):
    tracker = MemoryTracker(FakeModel())
    server.controlled = tracker
    raised = []

    def ask():
        try:
            Client(control=address).add(CLICK)
        except RunError as error:
            raised.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: not tracker._desk.is_empty)
    tracker.run([], Collector())
    thread.join()
    assert raised == ["the stream ended before the next frame"]


def test_mutated_requests_are_counted_or_answered_and_the_stream_goes_on(address, server, running):
    random = Random(8)
    good = [
        [bytes(part) for part in pack("", Request(id="a", what="add", prompt=CLICK))],
        [bytes(part) for part in pack("", Request(id="b", what="remove", object_id=1))],
        [bytes(part) for part in pack("", Request(id="c", what="status"))],
    ]
    messages = [parts for parts in (mutated(random.choice(good), random) for _ in range(2000)) if parts]
    with zmq.Context.instance().socket(zmq.DEALER) as rogue:
        rogue.linger = 0
        rogue.connect(address)
        answers = 0
        for parts in messages:
            rogue.send_multipart(parts)
            while rogue.poll(0):
                assert msgpack.unpackb(rogue.recv_multipart()[1])["type"] == "reply"
                answers += 1
        while answers + server.malformed < len(messages):
            assert rogue.poll(10_000), f"{answers} answers and {server.malformed} refused of {len(messages)}"
            rogue.recv_multipart()
            answers += 1
    assert server.malformed > 500
    assert Client(control=address).add(CLICK).sequence > 0


def test_a_prompt_comes_back_from_its_description():
    mask = np.eye(8, dtype=np.bool_)
    for prompt in (
        PointPrompt(x=1, y=2, positive=False, time_s=3, name="a"),
        BoxPrompt(x0=1, y0=2, x1=3, y1=4),
        TextPrompt(text="dog"),
        ExemplarPrompt(boxes_xyxy=((1, 2, 3, 4), (5, 6, 7, 8)), positive=(True, False), text="cow"),
    ):
        assert prompt_from_description(describe_prompt(prompt)) == prompt
    again = prompt_from_description(describe_prompt(MaskPrompt(mask=mask)))
    assert np.array_equal(again.mask, mask)
    with pytest.raises(PromptError, match="unknown type 'circle'"):
        prompt_from_description({"type": "circle"})
