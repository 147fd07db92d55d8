"""A file is played at its own speed, however fast it decodes."""

from __future__ import annotations

from collections.abc import Iterator

from sam3_stream.core.clock import SimulatedClock
from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.stages.decoder.realtime import RealtimeSource
from tests.support.frames import blank_frame


class Decoder:
    """Takes so long for each frame."""

    def __init__(self, clock: SimulatedClock, decode_s: float) -> None:
        self.clock, self.decode_s = clock, decode_s
        self.info = StreamInfo(32, 24, blank_frame(0).time_base)
        self.closed = 0

    def __iter__(self) -> Iterator[Frame]:
        for sequence in range(50):
            self.clock.sleep(self.decode_s)
            yield blank_frame(sequence, fps=25)

    def close(self) -> None:
        self.closed += 1


def test_no_frame_comes_before_its_time():
    clock = SimulatedClock(100.0)
    came = [(clock.now_s, frame) for frame in RealtimeSource(Decoder(clock, 0.01), clock)]
    for at_s, frame in came:
        assert abs(at_s - (100.01 + frame.time_s)) < 1e-6
        assert frame.capture_time_s == at_s
    assert [frame.sequence for _, frame in came] == list(range(50))


def test_a_decoder_that_is_too_slow_is_not_waited_for():
    clock = SimulatedClock()
    assert len(list(RealtimeSource(Decoder(clock, 0.1), clock))) == 50
    assert abs(clock.now_s - 5.0) < 1e-6


def test_closing_ends_it_and_lets_go_of_the_file():
    clock = SimulatedClock()
    source = RealtimeSource(decoder := Decoder(clock, 0.0), clock)
    taken = 0
    for _ in source:
        taken += 1
        if taken == 3:
            source.close()
    assert (taken, decoder.closed) == (3, 1)
    never_played = RealtimeSource(unplayed := Decoder(clock, 0.0), clock)
    never_played.close()
    assert unplayed.closed == 1
