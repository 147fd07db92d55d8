"""A channel's overflow policies and its three ways to end."""

from __future__ import annotations

import threading
import time

import pytest

from sam3_stream.runtime.channel import Cancelled, Channel, EndOfStream


def test_items_come_out_in_order_and_iteration_ends_with_the_stream():
    channel: Channel[int] = Channel(3)
    for item in (1, 2, 3):
        channel.put(item)
    channel.close()
    assert list(channel) == [1, 2, 3]
    with pytest.raises(EndOfStream):
        channel.get()


def test_block_waits_for_room_and_loses_nothing():
    channel: Channel[int] = Channel(2, "block")

    def produce() -> None:
        for item in range(200):
            channel.put(item)
        channel.close()

    producer = threading.Thread(target=produce)
    producer.start()
    time.sleep(0.02)
    assert len(channel) == 2, "a full channel holds no more than its capacity"
    assert list(channel) == list(range(200))
    producer.join()
    assert channel.dropped == 0


def test_drop_oldest_keeps_the_newest_and_counts():
    channel: Channel[int] = Channel(3, "drop_oldest")
    for item in range(10):
        channel.put(item)
    channel.close()
    assert list(channel) == [7, 8, 9]
    assert channel.dropped == 7


def test_latest_keeps_one_whatever_the_capacity():
    channel: Channel[int] = Channel(8, "latest")
    for item in range(10):
        channel.put(item)
    channel.close()
    assert list(channel) == [9]
    assert channel.dropped == 9


def test_an_error_comes_after_the_items_and_does_not_pass_for_the_end():
    channel: Channel[int] = Channel(4)
    channel.put(1)
    channel.fail(OSError("cable pulled"))
    assert channel.get() == 1
    with pytest.raises(OSError, match="cable pulled"):
        list(channel)


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_cancel_wakes_a_waiting_side_and_discards(side):
    channel: Channel[int] = Channel(1)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            if side == "producer":
                channel.put(1)
                channel.put(2)
            else:
                channel.get()
        except BaseException as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.02)
    channel.cancel()
    waiting.join(5)
    assert [type(error) for error in raised] == [Cancelled]
    assert len(channel) == 0


def test_cancel_does_not_pass_for_the_end_of_the_stream():
    channel: Channel[int] = Channel(2)
    channel.put(1)
    channel.close()
    channel.cancel()
    with pytest.raises(Cancelled):
        list(channel)


def test_get_gives_up_after_its_timeout():
    with pytest.raises(TimeoutError, match="frames"):
        Channel(1, name="frames").get(timeout_s=0.01)


def test_a_channel_without_room_is_refused():
    with pytest.raises(ValueError, match="got a capacity of 0"):
        Channel(0)
