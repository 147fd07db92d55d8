"""Callers share one function: in batches, in turn, and without breaking each other."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from sam3_stream.runtime.fair_batcher import FairBatcher


def call_in_threads(batcher: FairBatcher[int, int], callers: int, calls: int, pause_s: float = 0.0) -> list[int]:
    """Results of callers that each call again as soon as they have an answer."""
    results: list[int] = []

    def run(caller: int) -> None:
        for _ in range(calls):
            results.append(batcher(caller))
            time.sleep(pause_s)

    threads = [threading.Thread(target=run, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_each_caller_gets_its_own_result_and_calls_go_together():
    sizes: list[int] = []

    def square(items):
        sizes.append(len(items))
        time.sleep(0.01)
        return [item * item for item in items]

    batcher = FairBatcher(square, max_batch=4)
    results = call_in_threads(batcher, callers=6, calls=10)
    batcher.close()
    assert Counter(results) == Counter({n * n: 10 for n in range(6)})
    assert max(sizes) == 4
    assert len(sizes) < 40


def test_no_caller_starves_however_hungry_the_others_are():
    served: list[int] = []

    def serve(items):
        served.extend(items)
        time.sleep(0.002)
        return items

    batcher = FairBatcher(serve, max_batch=2)
    call_in_threads(batcher, callers=5, calls=40)
    batcher.close()
    # While all five call, any window that serves twice as many as there are callers holds every one of them.
    for start in range(10, len(served) - 60):
        assert set(served[start : start + 11]) == {0, 1, 2, 3, 4}


def test_an_item_that_breaks_its_batch_breaks_no_other():
    entered = threading.Event()
    go_on = threading.Event()

    def invert(items):
        entered.set()
        go_on.wait(5)
        return [1 / item for item in items]

    batcher = FairBatcher(invert, max_batch=8)
    outcome: dict[int, object] = {}

    def call(item: int) -> None:
        try:
            outcome[item] = batcher(item)
        except ZeroDivisionError as error:
            outcome[item] = error

    threads = [threading.Thread(target=call, args=(item,)) for item in (5, 0, 2, 4)]
    threads[0].start()
    entered.wait(5)  # the first is under way; the others gather for one batch
    for thread in threads[1:]:
        thread.start()
    while batcher.queue_depth < 3:
        time.sleep(0.001)
    go_on.set()
    for thread in threads:
        thread.join()
    batcher.close()
    assert isinstance(outcome.pop(0), ZeroDivisionError)
    assert outcome == {5: 0.2, 2: 0.5, 4: 0.25}


def test_a_closed_batcher_says_so():
    batcher = FairBatcher(lambda items: items)
    batcher.close()
    batcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        batcher(1)
