"""What is asked of a running tracker: done and answered, or refused as if it had never been said."""

from __future__ import annotations

import numpy as np
import pytest

from sam3_stream.core.errors import CapacityError, NotFoundError, PromptError
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.prompts import BoxPrompt, MaskPrompt, PointPrompt, TextPrompt
from sam3_stream.core.records import TrackedFrame
from sam3_stream.models.fake import FakeModel
from sam3_stream.models.lite import load_lite
from sam3_stream.stages.decoder import VideoDecoder
from sam3_stream.stages.memory_tracker import MemoryTracker
from sam3_stream.stages.memory_tracker.prompt_schedule import PromptSchedule
from sam3_stream.stages.memory_tracker.recent_frames import RecentFrames
from tests.support.clips import disc_mask, write_clip
from tests.support.frames import Collector, encoded_frames

CLICK = PointPrompt(x=10, y=10)


def run(tracker: MemoryTracker, frames, script: dict[int, object]):
    """Track the frames, with something asked before some of them."""

    def scripted():
        for number, encoded in enumerate(frames):
            if number in script:
                script[number]()
            yield encoded

    tracked = Collector()
    tracker.run(scripted(), tracked)
    return tracked.items


def ids(tracked_frames) -> list[list[int]]:
    return [[each.object_id for each in tracked.objects] for tracked in tracked_frames]


def test_a_prompt_takes_the_place_of_another_and_the_object_keeps_its_id():
    tracker, asked = MemoryTracker(FakeModel(), [CLICK, PointPrompt(x=20, y=10)]), []
    mask = np.zeros((24, 32), np.bool_)
    mask[2:6, 3:9] = True
    script = {2: lambda: asked.append(tracker.add(MaskPrompt(mask=mask), replaces="p1"))}
    tracked = run(tracker, encoded_frames(4), script)
    assert ids(tracked) == [[1, 2]] * 4
    assert np.array_equal(tracked[2].objects[0].mask, mask)
    assert (asked[0].result(0).prompt_id, asked[0].result(0).object_id, asked[0].result(0).sequence) == ("p1", 1, 2)


def test_what_is_taken_back_or_corrected_must_be_there():
    tracker, asked = MemoryTracker(FakeModel(), [CLICK]), []
    script = {
        1: lambda: asked.extend(
            [tracker.remove_prompt("p9"), tracker.add(CLICK, replaces="p9"), tracker.add(CLICK, object_id=9)]
        )
    }
    assert ids(run(tracker, encoded_frames(3), script)) == [[1]] * 3
    for future in asked:
        with pytest.raises(NotFoundError, match="there is no"):
            future.result(0)


class PickyModel(FakeModel):
    """Has no room for a second object, and says so as SAM 3 and lite do: on the step."""

    def open_session(self, new_object_id, max_objects=None):
        session = super().open_session(new_object_id, max_objects)
        step = session.step

        def picky(encoded, prompts=()):
            if any(each.object_id != 1 for each in prompts):
                raise CapacityError("there is room for 1 object")
            return step(encoded, prompts)

        session.step = picky
        return session


def test_one_object_too_many_is_refused_and_the_stream_goes_on():
    tracker, asked = MemoryTracker(PickyModel(), [CLICK]), []
    script = {2: lambda: asked.append(tracker.add(PointPrompt(x=3, y=3, name="late")))}
    assert ids(run(tracker, encoded_frames(4), script)) == [[1]] * 4
    with pytest.raises(CapacityError, match="room for 1"):
        asked[0].result(0)


def test_what_is_refused_leaves_nothing_behind_and_takes_nothing_else_with_it():
    ids_given = ObjectIds()
    schedule = PromptSchedule([CLICK], ids_given)
    tracker, asked = MemoryTracker(PickyModel(), ids=ids_given, schedule=schedule), []
    box = BoxPrompt(x0=1, y0=1, x1=9, y1=9)

    def ask() -> None:
        asked.append(tracker.rename(1, "Buck"))
        asked.append(tracker.add(box, replaces="p1"))
        asked.append(tracker.add(PointPrompt(x=3, y=3)))

    tracked = run(tracker, encoded_frames(4), {2: ask})
    assert [each.label for each in tracked[3].objects] == ["Buck"], "what was not refused holds"
    assert [(each.prompt_id, each.prompts) for each in schedule.given] == [("p1", (CLICK,))]
    assert asked[0].result(0) == 2
    for future in asked[1:]:
        with pytest.raises(CapacityError):
            future.result(0)


def test_lite_refuses_the_object_that_there_is_no_room_for(tmp_path):
    model = load_lite(capacity=2)
    tracker, asked = MemoryTracker(model), []
    video = VideoDecoder(write_clip(tmp_path / "clip.mp4", frames=6))

    def ask() -> None:
        asked.append(tracker.add(PointPrompt(x=20, y=20)))

    script = dict.fromkeys(range(1, 5), ask)
    tracked = run(tracker, (model.encode([frame])[0] for frame in video), script)
    assert len(tracked) == 6
    assert [future.exception(0) is None for future in asked] == [True, True, False, False]


def test_a_click_lands_on_what_was_seen_and_not_on_what_is_there_now(tmp_path):
    """The disc moves on by more than its width while the click is under way."""
    size = (160, 96)
    video = list(VideoDecoder(write_clip(tmp_path / "clip.mp4", frames=30, size=size)))
    model, asked, seen, now = load_lite(), [], 4, 24
    then, there_now = disc_mask(seen, size), disc_mask(now, size)
    assert not (then & there_now).any(), "else this shows nothing"
    rows, columns = np.nonzero(then)
    click = PointPrompt(x=float(columns.mean()), y=float(rows.mean()))
    tracker = MemoryTracker(model, recent=RecentFrames(24))
    script = {now: lambda: asked.append(tracker.add(click, seen=seen))}
    tracked = run(tracker, (model.encode([frame])[0] for frame in video), script)
    effect = asked[0].result(0)
    assert (effect.object_id, effect.sequence) == (1, now)
    mask = tracked[now].objects[0].mask
    assert (mask & there_now).sum() / (mask | there_now).sum() > 0.5
    assert not mask[int(click.y), int(click.x)], "the place of the click is background by now"


def test_a_correction_follows_what_was_seen(tmp_path):
    size = (160, 96)
    video = list(VideoDecoder(write_clip(tmp_path / "clip.mp4", frames=30, size=size)))
    model, recent, seen, now = load_lite(), RecentFrames(24), 4, 24
    encoded = [model.encode([frame])[0] for frame in video]
    for each in encoded[:now]:
        recent.note(each, TrackedFrame(each.frame, ()))
    before, after = (np.argwhere(disc_mask(number, size)).mean(0) for number in (seen, now))
    followed = recent.follow(PointPrompt(x=before[1], y=before[0], positive=False), seen, encoded[now])
    assert np.hypot(before[1] - after[1], before[0] - after[0]) > 20, "else this shows nothing"
    assert np.hypot(followed.x - after[1], followed.y - after[0]) < 5
    assert not followed.positive
    assert recent.follow(CLICK, 99, encoded[now]) == CLICK


def test_a_frame_that_is_not_kept_any_more_is_taken_for_the_newest():
    tracker, asked = MemoryTracker(FakeModel(), recent=RecentFrames(3)), []
    script = {8: lambda: asked.append(tracker.add(CLICK, seen=1))}
    tracked = run(tracker, encoded_frames(10), script)
    assert tracked[8].objects[0].mask[10, 10]


def test_phrases_say_how_many_and_how_sure():
    with pytest.raises(PromptError, match="between 0 and 1"):
        TextPrompt(text="dog", score_threshold=2)
    with pytest.raises(PromptError, match="1 or more"):
        TextPrompt(text="dog", max_objects=0)


@pytest.mark.parametrize("model", [FakeModel(), load_lite()], ids=["fake", "lite"])
def test_a_stream_may_have_less_room_than_the_model(model, tmp_path):
    video = list(VideoDecoder(write_clip(tmp_path / "clip.mp4", frames=6)))
    tracker, asked = MemoryTracker(model, [CLICK], max_objects=2), []
    script = {2: lambda: asked.append(tracker.add(CLICK)), 4: lambda: asked.append(tracker.add(CLICK))}
    tracked = run(tracker, (model.encode([frame])[0] for frame in video), script)
    assert ids(tracked)[-1] == [1, 2]
    assert asked[0].result(0).object_id == 2
    with pytest.raises(CapacityError, match="room for 2"):
        asked[1].result(0)
