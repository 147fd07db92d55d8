"""Pictures as H.264: small, in step, readable from any key picture on, and unharmed by what an edge goes through."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import Frame
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.h264 import KEY_FRAME_INTERVAL, H264Pictures
from sam3_stream.transport.receiver import ReceiverLink
from sam3_stream.transport.records import RecordCodec
from sam3_stream.transport.sender import SenderLink
from sam3_stream.transport.wire_format import MalformedMessageError, PictureLayout
from tests.support.clips import draw_frame, read_number
from tests.support.cuttable_proxy import CuttableProxy
from tests.transport.edges import HEADER, HEARTBEAT_S, INFO, begin, eventually, free_port

SIZE = (161, 121)


def picture(number):
    return ArrayPicture(draw_frame(number, SIZE))


def frame(number):
    return Frame("0", number, number, INFO.time_base, picture(number))


def test_pictures_arrive_small_in_step_and_much_as_they_were():
    sending, arriving = H264Pictures(), H264Pictures()
    total = 0
    for number in range(KEY_FRAME_INTERVAL + 20):
        layout, (data,) = sending.pack(picture(number))
        total += len(data)
        arrived = arriving.unpack(layout, [memoryview(data)]).to_ndarray()
        assert arrived.shape == (121, 161, 3)
        assert read_number(arrived) == number, "each picture comes out at once"
        assert np.abs(arrived.astype(int) - picture(number).to_ndarray()).mean() < 12
        assert layout.key == (number % KEY_FRAME_INTERVAL == 0) == sending.stands_alone
    assert total < (KEY_FRAME_INTERVAL + 20) * 161 * 121 * 3 / 8


def test_who_comes_late_is_given_a_key_picture():
    sending, late = H264Pictures(), H264Pictures()
    sending.pack(picture(0))
    layout, (data,) = sending.pack(picture(1))
    with pytest.raises(MalformedMessageError, match="needs those before it"):
        late.unpack(layout, [memoryview(data)])
    sending.restart()
    layout, (data,) = sending.pack(picture(2))
    assert read_number(late.unpack(layout, [memoryview(data)]).to_ndarray()) == 2


def test_damaged_packets_are_refused_or_read_but_never_crash():
    random, sending, arriving = Random(1), H264Pictures(), H264Pictures()
    for number in range(300):
        if number % 5 == 0:
            sending.restart()
        layout, (data,) = sending.pack(picture(number))
        damaged = bytearray(data)
        for _ in range(random.randint(0, 5)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        wrong = PictureLayout(encoding="h264", width=random.choice([161, 64]), height=121, key=layout.key, buffers=1)
        try:
            arriving.unpack(random.choice([layout, wrong]), [memoryview(bytes(damaged))])
        except MalformedMessageError:
            continue


def links(port, connect_port):
    def codec():
        return RecordCodec(H264Pictures())

    sender = SenderLink(Endpoint(f"tcp://127.0.0.1:{port}"), codec(), heartbeat_s=HEARTBEAT_S, name="frames")
    receiver = ReceiverLink(
        Endpoint(f"tcp://127.0.0.1:{connect_port}"), codec(), heartbeat_s=HEARTBEAT_S, name="frames"
    )
    return sender, receiver


def test_a_cut_connection_does_not_put_the_decoder_out_of_step():
    port = free_port()
    proxy = CuttableProxy(port)
    sender, receiver = links(port, proxy.port)
    try:
        writing, reading = begin(sender, receiver)
        for number in range(60):
            writing.put(frame(number))
            if number % 15 == 7:
                proxy.cut()
            arrived = reading.get(20)
            assert (arrived.sequence, read_number(arrived.picture.to_ndarray())) == (number, number)
    finally:
        receiver.stop()
        sender.stop()
        proxy.close()


def test_a_receiver_that_is_started_again_has_the_stream_made_anew_unless_a_key_picture_waits():
    port = free_port()
    sender, receiver = links(port, port)
    try:
        writing, reading = begin(sender, receiver)
        for number in range(5):
            writing.put(frame(number))
        assert [reading.get(10).sequence for _ in range(3)] == [0, 1, 2]
        eventually(lambda: len(reading) == 2)
        receiver.stop()
        receiver = ReceiverLink(
            Endpoint(f"tcp://127.0.0.1:{port}"), RecordCodec(H264Pictures()), heartbeat_s=HEARTBEAT_S
        )
        reading = receiver.begin(3)
        assert sender.wait_for_want(10) == 3, "what waits builds on pictures that the newcomer has not seen"
        sender.begin(3, INFO, HEADER).put(frame(3))
        assert read_number(reading.get(10).picture.to_ndarray()) == 3
    finally:
        receiver.stop()
        sender.stop()
