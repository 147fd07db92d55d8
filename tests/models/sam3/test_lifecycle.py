"""The life of tracks, against the reference's hot start and on its own terms: ticks, time, bounds, snapshots."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.models.sam3.association import Matches
from sam3_stream.models.sam3.lifecycle import Lifecycle

CONFIG = AssociationConfig()


def matches(shared_nm, unmatched_m=None, empty_m=None):
    shared_nm = np.asarray(shared_nm, bool)
    count = shared_nm.shape[1]
    nobody = np.zeros(count, bool)
    unmatched_m = nobody if unmatched_m is None else np.asarray(unmatched_m, bool)
    return Matches(
        new_n=np.zeros(len(shared_nm), bool),
        shared_nm=shared_nm,
        matched_m=shared_nm.any(0),
        unmatched_m=unmatched_m,
        supported_m=shared_nm.any(0) & ~unmatched_m,
        empty_m=nobody if empty_m is None else np.asarray(empty_m, bool),
        confident={},
    )


def looks(lifecycle, slots, found, count, *, time_s=0.0, dt_s=0.0, iou=0.0):
    """Look `count` times; the verdict of the first look that ends something, with its number."""
    slots = np.asarray(slots)
    iou_mm = np.full((len(slots), len(slots)), iou)
    for number in range(count):
        verdict = lifecycle.observe(slots, found, iou_mm, time_s + number * dt_s)
        if verdict.rejected or verdict.ended:
            return number, verdict
        lifecycle.next_tick()
    return None


MATCHED, UNMATCHED, GONE = matches([[1]]), matches([[0]], [1]), matches(np.zeros((0, 1)), None, [1])


@pytest.mark.parametrize("seed", range(20))
def test_hot_start_rejects_the_tracks_that_the_reference_removes_and_on_the_same_frames(seed):
    Reference = pytest.importorskip("transformers.models.sam3_video.modeling_sam3_video").Sam3VideoModel
    rng = np.random.default_rng(seed)
    thresholds = SimpleNamespace(
        hotstart_delay=15, hotstart_unmatch_thresh=4, hotstart_dup_thresh=3, init_trk_keep_alive=5,
        max_trk_keep_alive=5, min_trk_keep_alive=-1, decrease_trk_keep_alive_for_empty_masklets=bool(seed % 2),
        suppress_unmatched_only_within_hotstart=False,
    )  # fmt: skip
    config = AssociationConfig(
        hot_start_ticks=15, hot_start_unmatched_ticks=4, hot_start_duplicate_ticks=3, keep_alive_start=5,
        keep_alive_max=5, keep_alive_drops_when_empty=bool(seed % 2), hide_unmatched=True,
    )  # fmt: skip
    extra = {
        "obj_first_frame_idx": {},
        "unmatched_frame_inds": defaultdict(list),
        "trk_keep_alive": {},
        "overlap_pair_to_frame_inds": defaultdict(list),
        "removed_obj_ids": set(),
        "suppressed_obj_ids": defaultdict(set),
    }
    lifecycle, live = Lifecycle(config, 40), []
    for frame in range(50):
        present = rng.random(len(live)) > 0.2
        shared = (rng.random((3, len(live))) < 0.15) & present
        unmatched = present & ~shared.any(0)
        born = [len(extra["obj_first_frame_idx"])] if frame % 4 == 0 and frame < 40 else []
        gone, extra = Reference._process_hotstart(
            thresholds, None, frame, False,
            {d: [live[i] for i in np.flatnonzero(row)] for d, row in enumerate(shared)},
            born, [live[i] for i in np.flatnonzero(~present)], [live[i] for i in np.flatnonzero(unmatched)], extra,
        )  # fmt: skip
        verdict = lifecycle.observe(
            np.array(live, int), matches(shared, unmatched, ~present), np.zeros((len(live), len(live))), 0.0
        )
        assert set(verdict.rejected) == gone, frame
        for slot in born:
            lifecycle.start(slot, 0.0)
        hidden = {slot for slot in live if slot not in gone and lifecycle.is_hidden(slot)}
        # the reference only looks at tracks that have ever been unmatched
        assert hidden == {slot for slot in live if slot not in gone and extra["trk_keep_alive"][slot] <= 0}
        assert hidden >= extra["suppressed_obj_ids"][frame] - gone
        lifecycle.next_tick()
        live = [slot for slot in live if slot not in gone] + born
    assert extra["removed_obj_ids"], "the scenario must exercise what it tests"


def test_probation_rejects_after_the_eighth_unmatched_look_and_not_later():
    lifecycle = Lifecycle(CONFIG, 4)
    lifecycle.start(2, 0.0)
    lifecycle.next_tick()
    number, verdict = looks(lifecycle, [2], UNMATCHED, 20)
    assert (number, verdict.rejected, verdict.ended) == (7, (2,), ())

    lifecycle = Lifecycle(CONFIG, 4)
    lifecycle.start(2, 0.0)
    lifecycle.next_tick()
    assert looks(lifecycle, [2], MATCHED, 14) is None
    assert looks(lifecycle, [2], UNMATCHED, 200) is None, "a track that passed its probation is not rejected"


def test_an_empty_mask_is_no_unmatched_look():
    lifecycle = Lifecycle(CONFIG, 4)
    lifecycle.start(0, 0.0)
    assert looks(lifecycle, [0], GONE, 14) is None


@pytest.mark.parametrize("dt_s", [0.04, 0.4, 4.0])
def test_a_track_expires_after_ten_seconds_and_eight_looks_whatever_the_interval(dt_s):
    lifecycle = Lifecycle(CONFIG, 4)
    lifecycle.start(1, 100.0)
    lifecycle.next_tick()
    assert looks(lifecycle, [1], MATCHED, 20, time_s=100.0) is None
    number, verdict = looks(lifecycle, [1], GONE, 1000, time_s=100.0 + dt_s, dt_s=dt_s)
    assert verdict.ended == (1,)
    assert not verdict.rejected
    looks_needed = max(8, int(np.ceil(10.0 / dt_s - 1e-9)))
    assert abs(number + 1 - looks_needed) <= 1  # a look more where dt does not divide 10 s in floating point


def test_a_match_starts_the_time_to_expiry_anew():
    lifecycle = Lifecycle(CONFIG, 4)
    lifecycle.start(1, 0.0)
    lifecycle.next_tick()
    for second in range(0, 60, 9):
        assert looks(lifecycle, [1], GONE, 8, time_s=second) is None
        assert looks(lifecycle, [1], MATCHED, 1, time_s=second) is None


def test_of_two_tracks_that_cover_each_other_for_two_seconds_the_younger_ends():
    lifecycle = Lifecycle(CONFIG, 4)
    lifecycle.start(3, 0.0)
    looks(lifecycle, [3], MATCHED, 1)
    lifecycle.start(0, 0.0)
    looks(lifecycle, [3, 0], matches([[1, 0], [0, 1]]), 20)
    both = matches([[1, 1]])
    assert looks(lifecycle, [3, 0], both, 100, dt_s=0.1, iou=0.5) is None, "they only touch"
    number, verdict = looks(lifecycle, [3, 0], both, 100, time_s=20.0, dt_s=0.1, iou=0.9)
    assert verdict.ended == (0,)
    assert not verdict.rejected
    assert 20 <= number <= 21


def test_a_crossing_shorter_than_two_seconds_ends_nobody():
    lifecycle = Lifecycle(CONFIG, 4)
    lifecycle.start(0, 0.0)
    lifecycle.start(1, 0.0)
    apart, together = matches([[1, 0], [0, 1]]), matches([[1, 1]])
    looks(lifecycle, [0, 1], apart, 20)
    for crossing in range(5):
        assert looks(lifecycle, [0, 1], together, 15, time_s=crossing * 10.0, dt_s=0.1, iou=0.9) is None
        assert looks(lifecycle, [0, 1], apart, 1, time_s=crossing * 10.0 + 2) is None


def test_a_track_that_the_user_confirmed_is_neither_rejected_nor_expired_nor_merged():
    lifecycle = Lifecycle(CONFIG, 4)
    lifecycle.start(0, 0.0)
    lifecycle.start(1, 0.0)
    lifecycle.pin(1)
    assert looks(lifecycle, [1], UNMATCHED, 100, dt_s=1.0) is None
    number, verdict = looks(lifecycle, [0, 1], matches([[1, 1]]), 100, time_s=100.0, dt_s=0.5, iou=1.0)
    assert verdict.ended == (0,), "the confirmed track counts as the earlier one"
    assert number >= 4


def test_a_reused_slot_knows_nothing_of_the_track_before():
    lifecycle = Lifecycle(CONFIG, 4)
    lifecycle.start(0, 0.0)
    lifecycle.start(1, 0.0)
    lifecycle.next_tick()
    looks(lifecycle, [0, 1], matches([[1, 1]], [0, 1]), 7)
    lifecycle.suppress(np.array([0, 1]), np.ones((2, 2)), np.ones((2, 2), bool), np.array([True, False]))
    fresh = Lifecycle(CONFIG, 4)
    lifecycle.forget(0)
    lifecycle.forget(1)
    lifecycle.start(1, 5.0)
    lifecycle.next_tick()
    fresh.start(1, 5.0)
    fresh.next_tick()
    assert looks(lifecycle, [1], UNMATCHED, 20)[0] == looks(fresh, [1], UNMATCHED, 20)[0] == 7


def test_tracks_may_be_shown_only_after_their_probation():
    for show, at_birth in (("at_once", True), ("after_hot_start", False)):
        lifecycle = Lifecycle(AssociationConfig(show=show), 2)
        lifecycle.start(0, 0.0)
        assert lifecycle.is_shown(0) is at_birth
        looks(lifecycle, [0], MATCHED, 15)
        assert lifecycle.is_shown(0)


def test_reconditioning_is_due_every_sixteenth_tick_or_never():
    lifecycle, never = Lifecycle(CONFIG, 1), Lifecycle(AssociationConfig(recondition_ticks=0), 1)
    due = []
    for tick in range(40):
        if lifecycle.recondition_is_due:
            due.append(tick)
        assert not never.recondition_is_due
        lifecycle.next_tick()
        never.next_tick()
    assert due == [0, 16, 32]


def test_state_has_a_fixed_size_and_a_restored_lifecycle_goes_on_the_same():
    lifecycle = Lifecycle(CONFIG, 8)
    size = sum(value.nbytes for value in lifecycle.state().values())
    for number in range(300):
        slot = number % 8
        lifecycle.forget(slot)
        lifecycle.start(slot, float(number))
        looks(lifecycle, [slot], UNMATCHED, 1, time_s=float(number))
    state = lifecycle.state()
    assert sum(value.nbytes for value in state.values()) == size
    twin = Lifecycle(CONFIG, 8)
    twin.restore(state)
    everyone = list(range(8))
    found = matches(np.zeros((0, 8)), np.ones(8))
    for _ in range(20):
        assert looks(lifecycle, everyone, found, 1, time_s=310.0) == looks(twin, everyone, found, 1, time_s=310.0)
    assert all(np.array_equal(value, twin.state()[name]) for name, value in lifecycle.state().items())
