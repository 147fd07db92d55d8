"""Ids live through a short outage; another size or a long one starts the session anew, with all that was said."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from sam3_stream.core.errors import PromptError
from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import BoxPrompt, MaskPrompt, PointPrompt
from sam3_stream.core.records import EncodedFrame, Frame, TrackedFrame
from sam3_stream.models.fake import FakeModel
from sam3_stream.runtime.channel import Channel
from sam3_stream.stages.memory_tracker import LiveTracker

BOX = BoxPrompt(x0=10, y0=20, x1=30, y1=40, name="door")
MODEL = FakeModel()


def encode(frame: Frame) -> EncodedFrame:
    return MODEL.encode([frame])[0]


def frames(start_s: float, count: int, size: tuple[int, int] = (80, 60)) -> Iterator[Frame]:
    picture = ArrayPicture(np.zeros((size[1], size[0], 3), np.uint8))
    for number in range(count):
        yield Frame(
            "cam", round(start_s * 25) + number, round((start_s + number / 25) * 1000), Fraction(1, 1000), picture
        )


def track(tracker: LiveTracker, *parts: Iterable[Frame]) -> list[TrackedFrame]:
    outbox: Channel[TrackedFrame] = Channel(1000)
    tracker.run((frame for part in parts for frame in part), outbox)
    outbox.close()
    return list(outbox)


def ids(tracked: TrackedFrame) -> list[int]:
    return [each.object_id for each in tracked.objects]


def test_ids_live_through_an_outage_that_is_short():
    tracker = LiveTracker(MODEL, encode, [BOX])
    tracked = track(tracker, frames(0, 10), frames(20, 10))
    assert {tuple(ids(each)) for each in tracked} == {(1,)}
    assert not any(each.frame.discontinuity for each in tracked)
    assert tracker.restarts == 0


def test_after_a_long_outage_the_prompts_are_given_again_and_the_ids_are_new():
    tracker = LiveTracker(MODEL, encode, [BOX], max_gap_s=30)
    tracked = track(tracker, frames(0, 10), frames(60, 10))
    assert [ids(each) for each in tracked] == [[1]] * 10 + [[2]] * 10
    assert [each.frame.discontinuity for each in tracked].index(True) == 10
    assert tracked[10].objects[0].label == "door"
    assert np.array_equal(tracked[10].objects[0].mask, tracked[0].objects[0].mask)


def test_another_size_starts_anew_with_the_prompts_scaled():
    tracker = LiveTracker(MODEL, encode, [BOX])
    tracked = track(tracker, frames(0, 5), frames(1, 5, (160, 180)), frames(2, 5))
    assert [ids(each) for each in tracked] == [[1]] * 5 + [[2]] * 5 + [[3]] * 5
    assert [each.objects[0].box_xywh for each in tracked[::5]] == [(10, 20, 20, 20), (20, 60, 40, 60), (10, 20, 20, 20)]
    assert tracker.restarts == 2


def test_points_and_masks_are_scaled_too():
    mask = np.zeros((60, 80), np.bool_)
    mask[30:40, 10:20] = True
    tracker = LiveTracker(MODEL, encode, [MaskPrompt(mask=mask), PointPrompt(x=40, y=30)])
    tracked = track(tracker, frames(0, 2), frames(1, 2, (160, 120)))
    assert tracked[2].objects[0].box_xywh == (20, 60, 20, 20)
    assert tracked[2].objects[1].mask[60, 80]


def test_a_prompt_that_does_not_fit_the_first_picture_is_refused():
    with pytest.raises(PromptError, match="outside the picture, which is 40x30"):
        track(LiveTracker(MODEL, encode, [BOX]), frames(0, 5, (40, 30)))


def test_what_is_added_and_removed_while_the_stream_runs_holds_for_later_sessions():
    tracker = LiveTracker(MODEL, encode, [BOX])
    answers = []

    def scene() -> Iterator[Frame]:
        yield from frames(0, 5)
        answers.append(tracker.add(PointPrompt(x=50, y=50, name="cat")))
        yield from frames(1, 5)
        answers.append(tracker.remove(1))
        yield from frames(2, 5)
        answers.append(tracker.add(PointPrompt(x=20, y=50, name="dog")))
        yield from frames(3, 5)
        yield from frames(4, 5, (160, 120))

    tracked = track(tracker, scene())
    assert [getattr(answer.result(0), "sequence", answer.result(0)) for answer in answers] == [25, 50, 75]
    labels = [[each.label for each in tracked[index].objects] for index in (0, 5, 10, 15, 20)]
    assert labels == [["door"], ["door", "cat"], ["cat"], ["cat", "dog"], ["cat", "dog"]]
    assert ids(tracked[20]) == [4, 5]


def test_whoever_asks_for_a_frame_that_never_comes_is_not_left_waiting():
    tracker = LiveTracker(MODEL, encode, [BOX])
    go_on = threading.Event()
    answers = []

    def scene() -> Iterator[Frame]:
        yield from frames(0, 5)
        answers.append(tracker.add(PointPrompt(x=5, y=5)))
        go_on.set()

    thread = threading.Thread(target=track, args=(tracker, scene()))
    thread.start()
    go_on.wait(5)
    thread.join(5)
    assert answers[0].cancelled()
