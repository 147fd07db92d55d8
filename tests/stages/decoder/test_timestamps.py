from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam3_stream.stages.decoder.timestamps import TimestampRepair

MILLISECONDS = Fraction(1, 1000)


def repair(stamps: list[int | None], rate: int = 24) -> list[int]:
    each = TimestampRepair(MILLISECONDS, Fraction(1, rate))
    return [each(pts) for pts in stamps]


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        ([0, 42, 83, 500, 501], [0, 42, 83, 500, 501]),
        ([-42, 0, 42], [-42, 0, 42]),
        ([None, None, None, None, None], [0, 42, 83, 125, 167]),
        ([1000, None, None, 1125], [1000, 1042, 1083, 1125]),
        ([0, 42, 42, 42, 83], [0, 42, 43, 44, 83]),
        ([0, 42, 30, 83], [0, 42, 43, 83]),
        ([5000, 5042, 0, 42, 83], [5000, 5042, 5084, 5126, 5167]),
    ],
)
def test_good_stamps_stay_and_others_are_repaired(stamps: list[int | None], expected: list[int]) -> None:
    assert repair(stamps) == expected


def test_it_says_whether_it_had_to() -> None:
    each = TimestampRepair(MILLISECONDS, Fraction(1, 24))
    each(0), each(42)
    assert not each.repaired
    each(42)
    assert each.repaired


def test_counting_on_does_not_drift() -> None:
    assert repair([None] * 2401)[-1] == 100_000


@given(st.lists(st.one_of(st.none(), st.integers(-(2**40), 2**40)), max_size=40))
def test_stamps_always_increase(stamps: list[int | None]) -> None:
    repaired = repair(stamps)
    assert all(later > earlier for earlier, later in itertools.pairwise(repaired))
