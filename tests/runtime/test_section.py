"""A part of a pipeline ends its outbox the way it ended itself."""

from __future__ import annotations

import pytest

from sam3_stream.core.errors import DecodeError, StageError
from sam3_stream.runtime.channel import Cancelled, Channel
from sam3_stream.runtime.section import Section


class Double:
    name = "double"

    def __init__(self, break_at: int | None = None) -> None:
        self._break_at = break_at

    def run(self, inbox, outbox) -> None:
        for item in inbox:
            if item == self._break_at:
                raise ZeroDivisionError("a bug")
            outbox.put(item * 2)


def breaking(error):
    yield 1
    raise error


def test_a_source_through_stages():
    outbox = Channel(100)
    section = Section(range(10), [Double(), Double()], outbox)
    section.run()
    assert list(outbox) == [number * 4 for number in range(10)]
    assert section.errors == ()


def test_an_inbox_through_stages():
    inbox, outbox = Channel(10), Channel(100)
    for number in range(5):
        inbox.put(number)
    inbox.close()
    Section(inbox, [Double()], outbox).run()
    assert list(outbox) == [0, 2, 4, 6, 8]


def test_a_source_alone():
    outbox = Channel(100)
    Section(range(3), [], outbox).run()
    assert list(outbox) == [0, 1, 2]


def test_an_error_of_the_source_comes_behind_what_it_gave():
    outbox = Channel(100)
    section = Section(breaking(DecodeError("damaged")), [Double()], outbox)
    section.run()
    assert outbox.get() == 2
    with pytest.raises(DecodeError, match="damaged"):
        outbox.get()
    assert len(section.errors) == 1


def test_a_bug_in_a_stage_stops_the_source():
    outbox = Channel(100)
    section = Section(iter(range(10**9)), [Double(break_at=3)], outbox)
    section.run()
    assert [outbox.get() for _ in range(3)] == [0, 2, 4]
    with pytest.raises(StageError, match="double stage failed"):
        outbox.get()
    assert len(section.errors) == 1


def test_cancel_ends_what_waits_at_either_side():
    inbox, outbox = Channel(10), Channel(1)
    section = Section(inbox, [Double()], outbox)
    section.cancel()
    section.run()
    with pytest.raises(Cancelled):
        outbox.get()
    assert section.errors == ()
