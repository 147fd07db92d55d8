"""Frames and channels without a decoder, for tests of single stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import EncodedFrame, Frame
from sam3_stream.runtime.channel import Channel


def blank_frame(sequence: int, size: tuple[int, int] = (32, 24), fps: int = 25) -> Frame:
    """A black frame of (width, height) pixels at ``sequence / fps`` seconds."""
    picture = ArrayPicture(np.zeros((size[1], size[0], 3), np.uint8))
    return Frame("0", sequence, sequence, Fraction(1, fps), picture)


def encoded_frames(count: int, first: int = 0) -> list[EncodedFrame]:
    """Blank frames as the fake model encodes them."""
    frames = [blank_frame(sequence) for sequence in range(first, first + count)]
    return [EncodedFrame(frame, None, (frame.width, frame.height)) for frame in frames]


class Collector:
    """An outbox that keeps what is put into it."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def put(self, item: Any) -> None:
        self.items.append(item)


def run_stage(stage: Any, items: Iterable[Any]) -> Sequence[Any]:
    """Put items through a stage, in this thread, and return what comes out."""
    items = list(items)
    inbox: Channel[Any] = Channel(max(1, len(items)))
    outbox: Channel[Any] = Channel(100_000)
    for item in items:
        inbox.put(item)
    inbox.close()
    stage.run(inbox, outbox)
    outbox.close()
    return list(outbox)
