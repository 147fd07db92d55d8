"""On which frames the detector looks."""

import pytest

from sam3_stream.core.errors import ConfigError
from sam3_stream.models.sam3.detect_interval import DetectInterval, DetectSchedule


def looks(interval, times_s):
    schedule, seen = DetectSchedule(DetectInterval.parse(interval)), []
    for number, time_s in enumerate(times_s):
        if schedule.is_due(time_s):
            seen.append(number)
            schedule.looked(time_s)
    return seen


@pytest.mark.parametrize(("interval", "expected"), [(1, list(range(12))), ("4", [0, 4, 8]), (100, [0])])
def test_every_so_many_frames(interval, expected):
    assert looks(interval, [number * 0.04 for number in range(12)]) == expected


@pytest.mark.parametrize("fps", [10, 25, 30, 59.94])
def test_milliseconds_keep_their_rate_at_every_frame_rate(fps):
    times = [number / fps for number in range(round(20 * fps))]
    assert abs(len(looks("200ms", times)) - 100) <= 1
    assert len(looks("1ms", times)) == len(times), "never more than a look a frame"


def test_after_a_gap_there_is_one_look_not_a_burst():
    times = [0.0, 0.1, 0.2, 60.0, 60.1, 60.2, 60.3, 60.4, 60.5, 60.6]
    assert looks("300ms", times) == [0, 3, 6, 9]


def test_when_stream_time_jumps_back_it_looks_at_once():
    assert looks("500ms", [100.0, 100.1, 3.0, 3.1, 3.5]) == [0, 2, 4]


def test_a_look_out_of_turn_starts_the_interval_anew():
    schedule = DetectSchedule(DetectInterval(frames=3))
    due = []
    for number in range(8):
        is_due = schedule.is_due(number * 0.1)
        if is_due or number == 1:
            schedule.looked(number * 0.1)
        due.append(is_due)
    assert due == [True, False, False, False, True, False, False, True]


def test_the_interval_may_change_and_the_state_goes_into_a_snapshot():
    schedule = DetectSchedule(DetectInterval(ms=1000))
    assert schedule.is_due(0.0)
    schedule.looked(0.0)
    assert not schedule.is_due(0.5)
    twin = DetectSchedule(DetectInterval(ms=1000))
    twin.restore(schedule.state())
    assert not twin.is_due(0.9)
    assert twin.is_due(1.0)
    schedule.interval = DetectInterval(frames=1)
    assert schedule.is_due(0.6)


@pytest.mark.parametrize("value", ["", "often", "0", "-3", "0ms", "nanms", "infms", "3.5", "10s"])
def test_what_is_no_interval_is_refused(value):
    with pytest.raises(ConfigError, match="interval"):
        DetectInterval.parse(value)


def test_frames_and_milliseconds_exclude_each_other():
    with pytest.raises(ConfigError, match="exactly one"):
        DetectInterval(frames=1, ms=10)
    with pytest.raises(ConfigError, match="exactly one"):
        DetectInterval()
