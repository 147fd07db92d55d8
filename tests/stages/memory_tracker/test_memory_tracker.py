"""Stepping a stream's session: prompts in time, prompts while it runs, resuming, earlier masks."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from sam3_stream.core.errors import PromptError, PromptNotReachedError
from sam3_stream.core.masks_format import MasksRow
from sam3_stream.core.prompts import BoxPrompt, PointPrompt, TextPrompt
from sam3_stream.core.records import RunHeader, StreamInfo
from sam3_stream.models.fake import FakeModel
from sam3_stream.runtime.channel import Channel
from sam3_stream.stages.memory_tracker import MemoryTracker
from sam3_stream.stages.memory_tracker.backward import BackwardTracker, EarlierMasks
from sam3_stream.stages.memory_tracker.checkpoints import CheckpointStore, ResumePoint
from sam3_stream.stages.memory_tracker.request_journal import RequestJournal
from sam3_stream.stages.sinks import MasksSink
from tests.support.frames import encoded_frames, run_stage

CLICK = PointPrompt(x=10, y=10)
LATER = BoxPrompt(x0=2, y0=2, x1=8, y1=9, time_s=0.4)  # frame 10 at 25 fps


def ids(tracked_frames) -> list[list[int]]:
    return [[each.object_id for each in tracked.objects] for tracked in tracked_frames]


def as_rows(tracked_frames) -> list[tuple]:
    return [
        (tracked.frame.sequence, [(each.object_id, each.label, each.mask.tobytes()) for each in tracked.objects])
        for tracked in tracked_frames
    ]


def test_one_record_a_frame_and_prompts_from_their_time_on():
    tracked = run_stage(MemoryTracker(FakeModel(), [CLICK, LATER]), encoded_frames(20))
    assert ids(tracked) == [[1]] * 10 + [[1, 2]] * 10


def test_a_prompt_after_the_end_is_an_error_after_all_frames():
    late = PointPrompt(x=1, y=1, time_s=60)
    with pytest.raises(PromptNotReachedError, match="before the time of a prompt was reached: 60 s"):
        run_stage(MemoryTracker(FakeModel(), [CLICK, late]), encoded_frames(5))


def test_a_prompt_that_the_model_cannot_use_is_refused_before_the_first_frame():
    with pytest.raises(PromptError, match="knows no phrases"):
        MemoryTracker(FakeModel(), [TextPrompt(text="dog")])


def test_prompts_and_removals_while_it_runs_are_acknowledged_with_their_frame():
    tracker = MemoryTracker(FakeModel(), [CLICK])
    added, outside = tracker.add(PointPrompt(x=3, y=3, time_s=99)), tracker.add(PointPrompt(x=500, y=3))
    removed = tracker.remove(1)
    tracked = run_stage(tracker, encoded_frames(4, first=7))
    assert ids(tracked) == [[2]] * 4, "what is removed before its prompt takes effect is never made"
    assert added.result(0).sequence == removed.result(0) == 7
    assert (added.result(0).prompt_id, added.result(0).object_id) == ("p2", 2)
    with pytest.raises(PromptError, match="outside the picture"):
        outside.result(0)


def test_a_run_resumed_from_a_checkpoint_gives_what_an_undisturbed_run_gives(tmp_path):
    prompts = [CLICK, LATER]
    whole = run_stage(MemoryTracker(FakeModel(), prompts), encoded_frames(40))

    store = CheckpointStore(tmp_path / "out.jsonl", interval_frames=5)
    run_stage(MemoryTracker(FakeModel(), prompts, checkpoints=store), encoded_frames(23))
    checkpoint = store.newest(recorded_frames=22)
    assert checkpoint is not None
    assert checkpoint.first_sequence == 20

    recorded = iter([MasksRow(each.frame.sequence, 0, each.state, each.objects) for each in whole])
    resume = ResumePoint(checkpoint, itertools.islice(recorded, 20))
    resumed = run_stage(MemoryTracker(FakeModel(), prompts, resume=resume), encoded_frames(40))
    assert as_rows(resumed) == as_rows(whole)


def test_the_older_checkpoint_serves_when_the_masks_file_is_behind_the_newer(tmp_path):
    store = CheckpointStore(tmp_path / "out.jsonl", interval_frames=5)
    run_stage(MemoryTracker(FakeModel(), [CLICK], checkpoints=store), encoded_frames(23))
    assert store.newest(recorded_frames=17).first_sequence == 15
    assert store.newest(recorded_frames=3) is None


def test_a_full_disk_costs_the_checkpoint_and_nothing_else(tmp_path, caplog):
    store = CheckpointStore(tmp_path / "none" / "out.jsonl", interval_frames=5)
    tracked = run_stage(MemoryTracker(FakeModel(), [CLICK], checkpoints=store), encoded_frames(12))
    assert len(tracked) == 12
    assert "cannot keep a checkpoint in" in caplog.text


def test_a_run_resumed_past_the_frames_of_a_backward_pass_takes_up_its_masks(tmp_path):
    prompts = [PointPrompt(x=10, y=10), BoxPrompt(x0=2, y0=2, x1=8, y1=9, time_s=0.72)]  # frames 0 and 18
    backward = run_stage(BackwardTracker(FakeModel(), prompts), encoded_frames(19)[::-1])
    sink = MasksSink(tmp_path / "backward.jsonl")
    sink.open(StreamInfo(32, 24, Fraction(1, 25)), RunHeader("clip", "fake"))
    for each in backward:
        sink.write(each)
    sink.close()

    def tracker(**options) -> MemoryTracker:
        return MemoryTracker(FakeModel(), prompts, earlier=EarlierMasks(tmp_path / "backward.jsonl"), **options)

    store = CheckpointStore(tmp_path / "out.jsonl", interval_frames=5)
    whole = run_stage(tracker(checkpoints=store), encoded_frames(20))
    checkpoint = store.newest(recorded_frames=17)
    recorded = [MasksRow(each.frame.sequence, 0, each.state, each.objects) for each in whole[:15]]
    resumed = run_stage(tracker(resume=ResumePoint(checkpoint, recorded)), encoded_frames(20))
    assert checkpoint.first_sequence == 15
    assert as_rows(resumed) == as_rows(whole)


def test_a_checkpoint_cut_short_by_a_kill_is_passed_over(tmp_path):
    store = CheckpointStore(tmp_path / "out.jsonl", interval_frames=5)
    run_stage(MemoryTracker(FakeModel(), [CLICK], checkpoints=store), encoded_frames(23))
    newest = tmp_path / "out.jsonl.resume0"
    newest.write_bytes(newest.read_bytes()[:100])
    assert store.newest(recorded_frames=23).first_sequence == 15
    store.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_backward_pass_fills_the_frames_before_each_prompt(tmp_path):
    prompts = [PointPrompt(x=10, y=10, time_s=0.2), LATER]  # frames 5 and 10
    backward = run_stage(BackwardTracker(FakeModel(), prompts), encoded_frames(11)[::-1])
    assert ids(backward) == [[2]] * 5 + [[1, 2]] * 6

    sink = MasksSink(tmp_path / "backward.jsonl")
    sink.open(StreamInfo(32, 24, Fraction(1, 25)), RunHeader("clip", "fake"))
    for each in backward:
        sink.write(each)
    sink.close()
    earlier = EarlierMasks(tmp_path / "backward.jsonl")
    tracked = run_stage(MemoryTracker(FakeModel(), prompts, earlier=earlier), encoded_frames(20))
    assert ids(tracked) == [[1, 2]] * 20
    forward = run_stage(MemoryTracker(FakeModel(), prompts), encoded_frames(20))
    assert as_rows(tracked[10:]) == as_rows(forward[10:]), "the forward pass has the word from the prompt on"
    at_prompt, before = tracked[5].objects[0].mask, tracked[4].objects[0].mask
    assert np.array_equal(before, np.roll(at_prompt, 1, axis=1)), "one step of the fake model away from the prompt"


def test_going_on_from_a_checkpoint_without_the_frames_before_it(tmp_path):
    """Ids, names and prompts are those of a tracker that never stopped, also for a prompt that comes later."""
    prompts = [
        BoxPrompt(x0=2, y0=2, x1=6, y1=6, name="box"),
        PointPrompt(x=9, y=9, time_s=16 / 25, name="click"),
        PointPrompt(x=20, y=12, time_s=18 / 25, name="box"),
    ]
    store = CheckpointStore(tmp_path / "state", interval_frames=5, kept=3)
    whole = run_stage(MemoryTracker(FakeModel(), prompts, checkpoints=store), encoded_frames(19))
    checkpoint = CheckpointStore(tmp_path / "state", kept=3).newest(recorded_frames=14)
    assert checkpoint.first_sequence == 10
    tracker = MemoryTracker(FakeModel(), prompts, resume=ResumePoint(checkpoint))
    rest = run_stage(tracker, encoded_frames(9, first=10))
    assert [tracked.frame.sequence for tracked in rest] == list(range(10, 19))
    for ours, theirs in zip(whole[10:], rest, strict=True):
        assert [(each.object_id, each.label, each.prompt_id) for each in ours.objects] == [
            (each.object_id, each.label, each.prompt_id) for each in theirs.objects
        ]
        assert np.array_equal(ours.masks_nhw, theirs.masks_nhw)


def test_a_prompt_that_was_added_while_running_is_remembered(tmp_path):
    store = CheckpointStore(tmp_path / "state", interval_frames=1)
    tracker = MemoryTracker(FakeModel(), [], checkpoints=store)
    tracker.add(PointPrompt(x=9, y=9, name="cat"))
    run_stage(tracker, encoded_frames(1))
    resumed = MemoryTracker(FakeModel(), [], resume=ResumePoint(store.newest(1)))
    resumed.add(PointPrompt(x=12, y=9, name="cat"))
    resumed.add(PointPrompt(x=3, y=9))
    (tracked,) = run_stage(resumed, encoded_frames(1, first=1))
    assert [(each.object_id, each.prompt_id, each.label) for each in tracked.objects] == [
        (1, "p1", "cat"),
        (2, "p2", "object 2"),
    ]


def test_checkpoints_are_kept_where_frames_are_missing(tmp_path):
    store = CheckpointStore(tmp_path / "state", interval_frames=5)
    live = [each for each in encoded_frames(30) if each.frame.sequence % 7 == 3]
    run_stage(MemoryTracker(FakeModel(), [], checkpoints=store), live)
    assert store.newest(10**9).first_sequence == 25


def test_what_was_asked_while_running_is_done_again_on_the_same_frames_after_a_restart(tmp_path):
    """A restart from the checkpoint, and one from the beginning, give what the first run gave."""
    store, path = CheckpointStore(tmp_path / "state", interval_frames=5, kept=4), tmp_path / "requests.jsonl"
    tracker = MemoryTracker(FakeModel(), [CLICK], checkpoints=store, journal=RequestJournal(path))

    def frames_with_requests():
        for each in encoded_frames(20):
            if each.frame.sequence == 7:
                tracker.add(PointPrompt(x=3, y=9, name="cat"))
                tracker.add(PointPrompt(x=300, y=9))  # outside the picture: refused, and not noted
            if each.frame.sequence == 12:
                tracker.remove(1)
            yield each

    first = run_stage_lazily(tracker, frames_with_requests())
    assert [len(each.objects) for each in first] == [1] * 7 + [2] * 5 + [1] * 8
    checkpoint = store.newest(recorded_frames=11)
    again = MemoryTracker(
        FakeModel(), [CLICK], resume=ResumePoint(checkpoint), journal=RequestJournal(path, checkpoint.first_sequence)
    )
    assert as_rows(run_stage(again, encoded_frames(10, first=10))) == as_rows(first[10:])
    anew = MemoryTracker(FakeModel(), [CLICK], journal=RequestJournal(path))
    assert as_rows(run_stage(anew, encoded_frames(20))) == as_rows(first)
    assert anew.status()["sequence"] == 19
    assert [each["label"] for each in anew.status()["objects"]] == ["cat"]


def run_stage_lazily(stage, items):
    outbox = Channel(1000)
    stage.run(items, outbox)
    outbox.close()
    return list(outbox)
