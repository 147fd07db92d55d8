"""Which rendition a line gets."""

from __future__ import annotations

import itertools

from sam3_stream.transport.webrtc.bandwidth import RenditionChoice

RATES = (2_500_000, 900_000, 300_000)


def test_loss_and_a_thin_line_bring_it_down_and_one_bad_report_does_not():
    choice = RenditionChoice(RATES)
    assert [choice.report(1.0, 0.3), choice.report(2.0, 0.0), choice.report(3.0, 0.3)] == [0, 0, 0]
    assert choice.report(4.0, 0.3) == 1
    assert [choice.estimate(5.0, 500_000), choice.estimate(6.0, 500_000)] == [1, 2]
    assert [choice.report(7.0, 0.9), choice.report(8.0, 0.9)] == [2, 2], "there is nothing below"


def test_a_good_line_brings_it_up_and_each_failure_makes_it_wait_longer():
    choice, climbs = RenditionChoice(RATES[:2]), []
    choice.report(0.0, 0.3)
    choice.report(0.0, 0.3)
    for second in range(1, 120):
        before = choice.index
        after = choice.report(float(second), 0.0 if choice.index else 0.3)
        if after < before:
            climbs.append(second)
    gaps = [later - earlier for earlier, later in itertools.pairwise(climbs)]
    assert len(climbs) >= 3
    assert gaps == sorted(gaps)
    assert gaps[-1] > 3 * gaps[0] or gaps[-1] >= 30
