"""A file played like a camera, without end."""

from __future__ import annotations

import itertools
import threading

import pytest

from sam3_stream.core.clock import SimulatedClock
from sam3_stream.stages.decoder import looped_file
from sam3_stream.stages.decoder.looped_file import LoopedFileDecoder
from tests.support.clips import read_number, write_clip

FRAMES = 6


class Waiting(threading.Event):
    """Lets simulated time pass instead of waiting."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.sleep(timeout or 0.0)
        return self.is_set()


def play(path, count: int, slow_s: float = 0.0, **options):
    clock = SimulatedClock()
    decoder = LoopedFileDecoder(path, "clip", clock=clock, **options)
    decoder._closed = Waiting(clock)
    given = []
    for frame in itertools.islice(decoder, count):
        given.append((frame, read_number(frame.picture.to_ndarray()), clock.now_s))
        clock.sleep(slow_s)
    return decoder, given


@pytest.fixture
def clip(tmp_path):
    return write_clip(tmp_path / "clip.mp4", frames=FRAMES)


def test_forth_and_back_the_picture_never_jumps(clip):
    _, given = play(clip, 20)
    numbers = [number for _, number, _ in given]
    assert numbers == ([0, 1, 2, 3, 4, 5, 4, 3, 2, 1] * 2)
    assert [frame.sequence for frame, _, _ in given] == list(range(20))
    stamps = [frame.pts for frame, _, _ in given]
    assert {b - a for a, b in itertools.pairwise(stamps)} == {3750}, "24 frames a second in 1/90000 s"
    assert [now_s for _, _, now_s in given] == pytest.approx([number / 24 for number in range(20)])


def test_over_and_over(clip):
    _, given = play(clip, 14, forth_and_back=False)
    assert [number for _, number, _ in given] == [0, 1, 2, 3, 4, 5] * 2 + [0, 1]
    assert [frame.pts for frame, _, _ in given] == [3750 * number for number in range(14)]


def test_a_clip_that_does_not_fit_into_memory_is_played_over_and_over(clip, monkeypatch, caplog):
    monkeypatch.setattr(looped_file, "_BYTES_HELD", 3 * 64 * 48 * 1.5)
    _, given = play(clip, 14)
    assert [number for _, number, _ in given] == [0, 1, 2, 3, 4, 5] * 2 + [0, 1]
    assert "too long" in caplog.text


def test_whoever_is_slow_gets_the_newest(clip):
    decoder, given = play(clip, 8, slow_s=0.15)
    ages = [now_s - frame.time_s for frame, _, now_s in given]
    assert max(ages) <= 0.08
    assert decoder.status.dropped["overflow"] > 10


def test_one_picture_stands_still(tmp_path):
    _, given = play(write_clip(tmp_path / "one.mp4", frames=1), 5)
    assert [number for _, number, _ in given] == [0] * 5
