"""Whatever a camera's clock does, stream time goes forward, by what has really passed, and says where it was broken."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from sam3_stream.stages.decoder.stream_clock import STREAM_TIME_BASE, StreamClock

TB = Fraction(1, 90_000)
STEP = 3600  # 25 frames per second
HOUR = 3600 * 90_000


def run(stamps: list[int | None], arrivals_s: list[float] | None = None, clock: StreamClock | None = None):
    """Times in seconds, and the numbers of the pictures that begin an epoch."""
    clock = clock or StreamClock()
    arrivals_s = arrivals_s or [number / 25 for number in range(len(stamps))]
    times = [clock(stamp, TB, arrival) for stamp, arrival in zip(stamps, arrivals_s, strict=True)]
    assert all(later.pts > earlier.pts for earlier, later in itertools.pairwise(times))
    breaks = [n for n in range(1, len(times)) if times[n].epoch != times[n - 1].epoch]
    return [float(time.pts * STREAM_TIME_BASE) for time in times], breaks


def test_good_stamps_are_kept_and_begin_at_zero():
    times_s, breaks = run([HOUR + n * STEP for n in range(50)])
    assert times_s == pytest.approx([n / 25 for n in range(50)])
    assert breaks == []


def test_network_jitter_does_not_show():
    arrivals_s = [n / 25 + (0.3 if n % 7 == 0 else 0.0) for n in range(100)]
    times_s, breaks = run([n * STEP for n in range(100)], sorted(arrivals_s))
    assert times_s == pytest.approx([n / 25 for n in range(100)])
    assert breaks == []


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(0, id="reset to zero"),
        pytest.param(-10 * HOUR, id="hours back"),
        pytest.param(10 * HOUR, id="hours ahead"),
        pytest.param(5 * HOUR + 3 * 90_000, id="three seconds ahead"),
    ],
)
def test_a_jump_is_marked_and_stream_time_goes_on(after):
    before = [5 * HOUR + n * STEP for n in range(50)]
    start = before[-1] + STEP + 3 * 90_000 if after == 5 * HOUR + 3 * 90_000 else after
    times_s, breaks = run(before + [start + n * STEP for n in range(50)])
    assert breaks == [50]
    assert times_s == pytest.approx([n / 25 for n in range(100)], abs=1e-4)


def test_a_counter_of_32_bits_that_wraps_is_a_break_without_a_jump():
    stamps = [(2**32 - 10 * STEP + n * STEP) % 2**32 for n in range(40)]
    times_s, breaks = run(stamps)
    assert breaks == [10]
    assert times_s == pytest.approx([n / 25 for n in range(40)], abs=1e-4)


def test_stamps_a_little_out_of_order_are_nudged_and_nothing_is_shifted():
    stamps: list[int | None] = [n * STEP for n in range(30)]
    stamps[10], stamps[11] = stamps[11], stamps[10]
    stamps[20] = stamps[19]
    times_s, breaks = run(stamps)
    assert breaks == []
    assert times_s[9] < times_s[10] < times_s[11] < times_s[12]
    assert times_s[12:20] == pytest.approx([n / 25 for n in range(12, 20)])
    assert times_s[-1] == pytest.approx(29 / 25)


def test_missing_stamps_are_replaced_by_arrival():
    times_s, breaks = run([None] * 20)
    assert times_s == pytest.approx([n / 25 for n in range(20)], abs=1e-4)
    assert breaks == []


def test_a_first_stamp_that_is_missing_joins_on_to_those_that_follow():
    times_s, breaks = run([None, *[HOUR + n * STEP for n in range(1, 20)]])
    assert times_s == pytest.approx([n / 25 for n in range(20)], abs=1e-4)
    assert breaks == []


def test_what_a_stalled_network_hands_over_late_keeps_the_cameras_time():
    stamps = [n * STEP for n in range(200)]
    arrivals_s = [n / 25 if n < 50 or n >= 175 else 7.0 for n in range(200)]  # five seconds in one burst
    times_s, breaks = run(stamps, arrivals_s)
    assert breaks == []
    assert times_s == pytest.approx([n / 25 for n in range(200)])


def test_a_connection_that_begins_with_a_burst_of_what_was_sent_before_has_no_break():
    stamps = [n * STEP for n in range(150)]
    arrivals_s = [0.0 if n < 100 else (n - 100) / 25 for n in range(150)]  # four seconds at once
    times_s, breaks = run(stamps, arrivals_s)
    assert breaks == []
    assert times_s == pytest.approx([n / 25 for n in range(150)])


def test_a_network_that_stalls_and_then_leaves_pictures_out_has_no_break():
    numbers = [*range(50), *range(100, 150)]
    times_s, breaks = run([n * STEP for n in numbers], [n / 25 if n < 50 else 6.0 for n in numbers])
    assert breaks == []
    assert times_s == pytest.approx([n / 25 for n in numbers])


def test_pictures_that_are_lost_leave_a_gap_of_their_length():
    numbers = [n for n in range(300) if not 100 <= n < 250]
    times_s, breaks = run([n * STEP for n in numbers], [n / 25 for n in numbers])
    assert breaks == []
    assert times_s == pytest.approx([n / 25 for n in numbers])


def test_a_new_connection_is_marked_and_takes_the_time_of_the_outage():
    clock = StreamClock()
    run([n * STEP for n in range(25)], clock=clock)
    clock.reconnected()
    later = clock(123, Fraction(1, 1000), 24 / 25 + 30)
    assert float(later.pts * STREAM_TIME_BASE) == pytest.approx(24 / 25 + 30, abs=1e-4)
    assert later.epoch == 1


def test_a_camera_clock_that_runs_100_ppm_fast_for_a_day_is_no_jump():
    clock = StreamClock()
    epochs = set()
    for second in range(86_400):
        epochs.add(clock(round(second * 1.0001 * 90_000), TB, float(second)).epoch)
    assert epochs == {0}
