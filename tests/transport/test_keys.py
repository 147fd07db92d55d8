"""CURVE keys: who is trusted gets everything, a wrong key nothing."""

from __future__ import annotations

import shutil
import stat
import threading
import time

import pytest

from sam3_stream.client import Client
from sam3_stream.core.errors import ConfigError, OutputError
from sam3_stream.core.records import RunHeader
from sam3_stream.stages.sinks.zeromq import ZeroMqSink
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.keys import SECRET_NAME, load_keys, make_keys
from sam3_stream.transport.receiver import ReceiverLink
from sam3_stream.transport.records import RecordCodec
from sam3_stream.transport.sender import SenderLink
from tests.transport.edges import INFO, begin, free_port
from tests.transport.records import a_frame, a_tracked_frame


@pytest.fixture
def server_keys(tmp_path):
    make_keys(tmp_path / "server", "server")
    return tmp_path / "server"


@pytest.fixture
def stranger_keys(tmp_path, server_keys):
    """Knows the server's public key, but the server does not know it."""
    make_keys(tmp_path / "stranger", "stranger")
    shutil.copy(server_keys / "trusted" / "server.key", tmp_path / "stranger" / "trusted")
    return tmp_path / "stranger"


@pytest.fixture
def address():
    return f"tcp://127.0.0.1:{free_port()}"


def test_keys_are_for_their_owner_only_and_never_overwritten(server_keys):
    assert stat.S_IMODE((server_keys / SECRET_NAME).stat().st_mode) == 0o600
    assert load_keys(server_keys).secret.decode() not in repr(load_keys(server_keys))
    with pytest.raises(OutputError, match="holds keys already"):
        make_keys(server_keys)


def test_missing_keys_are_named(server_keys, tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the key .*nowhere"):
        load_keys(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"cannot read the key .*bob\.key"):
        load_keys(server_keys, server="bob")


def test_an_edge_between_machines_that_share_a_folder_of_keys(server_keys, address):
    keys = load_keys(server_keys)
    sender = SenderLink(Endpoint(address, keys), RecordCodec(), name="frames")
    receiver = ReceiverLink(Endpoint(address, keys), RecordCodec(), name="frames")
    try:
        writing, reading = begin(sender, receiver)
        writing.put(a_frame(0))
        assert reading.get(10).sequence == 0
    finally:
        receiver.stop()
        sender.stop()


@pytest.mark.parametrize("kind", ["no key", "unknown key", "wrong server key"])
def test_a_wrong_key_gets_nothing(server_keys, stranger_keys, tmp_path, address, kind):
    sink = ZeroMqSink(address, keys=server_keys)
    sink.open(INFO, RunHeader("clip", "fake"))
    if kind == "no key":
        client = Client(address)
    elif kind == "unknown key":
        client = Client(address, keys=stranger_keys, server="server")
    else:
        shutil.copy(stranger_keys / "trusted" / "stranger.key", server_keys / "trusted")
        client = Client(address, keys=stranger_keys, server="stranger")
    refused = []

    def listen():
        with pytest.raises(TimeoutError):
            next(client.results("yard/1", timeout_s=1))
        refused.append(True)

    thread = threading.Thread(target=listen)
    thread.start()
    sequence = 0
    while thread.is_alive():
        sink.write(a_tracked_frame(sequence))
        sequence += 1
        time.sleep(0.02)
    sink.close()
    assert refused


def test_a_client_is_let_in_by_its_public_key(server_keys, stranger_keys, address):
    shutil.copy(stranger_keys / "trusted" / "stranger.key", server_keys / "trusted")
    sink = ZeroMqSink(address, keys=server_keys)
    sink.open(INFO, RunHeader("clip", "fake"))
    client = Client(address, keys=stranger_keys, server="server")
    received = []
    thread = threading.Thread(target=lambda: received.extend(client.results("yard/1", timeout_s=20)))
    thread.start()
    sequence = 0
    while client.counters.received == 0 and thread.is_alive():
        sink.write(a_tracked_frame(sequence))
        sequence += 1
        time.sleep(0.02)
    sink.close()
    thread.join()
    assert received


def test_an_intruder_without_a_key_cannot_want_frames(server_keys, address):
    sender = SenderLink(Endpoint(address, load_keys(server_keys)), RecordCodec(), name="frames")
    intruder = ReceiverLink(Endpoint(address), RecordCodec(), name="frames")
    try:
        intruder.begin(0)
        with pytest.raises(TimeoutError):
            sender.wait_for_want(1)
        assert sender.counters.malformed == 0
    finally:
        intruder.stop()
        sender.stop()
