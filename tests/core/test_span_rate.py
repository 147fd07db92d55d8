"""Frames per second, as a person would count them."""

from __future__ import annotations

import pytest

from sam3_stream.core.span_rate import SpanRate


def test_the_rate_is_counted_over_a_span_so_that_gaps_around_key_frames_do_no_harm():
    rate = SpanRate(span_s=5.0)
    now_s = 0.0
    for number in range(500):
        now_s += 0.4 if number % 25 == 0 else 0.6 / 24
        rate.count(now_s)
        if now_s > 5:
            assert rate.per_second(now_s) == pytest.approx(25, rel=0.1)


def test_the_rate_falls_to_zero_when_nothing_comes():
    rate = SpanRate(span_s=2.0)
    for number in range(50):
        rate.count(number / 25)
    assert rate.per_second(10.0) == 0.0


def test_the_rate_is_right_from_the_first_second_on():
    rate = SpanRate(span_s=5.0)
    for number in range(26):
        rate.count(number / 25)
    assert rate.per_second(1.0) == pytest.approx(25, rel=0.1)
