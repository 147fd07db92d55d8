"""Scenes of moving shapes with exact ids: what a viewer would see of association and lifecycle.

The world is drawn, the detector sees what is visible of it, and the tracker is an ideal one that stays on the object it
was born on (or, as a scene asks, makes a named mistake). Only planning and lifecycle are under test.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.models.sam3.planning import Detections, Overlaps, Planner, Tracks

HEIGHT, WIDTH = 40, 120


@dataclass
class Thing:
    """A box of `size` (height, width) whose left upper corner at time t is `at(t)`, None while out of the picture."""

    at: object
    size: tuple[int, int] = (16, 12)

    def mask(self, time_s):
        mask = np.zeros((HEIGHT, WIDTH), bool)
        corner = self.at(time_s)
        if corner is not None:
            y, x = (round(value) for value in corner)
            mask[max(0, y) : max(0, y + self.size[0]), max(0, x) : max(0, x + self.size[1])] = True
        return mask


def still(y, x, start=0.0, end=np.inf):
    return Thing(lambda t: (y, x) if start <= t < end else None)


@dataclass
class Scene:
    """Runs a world through the planner; later things are nearer to the camera and cover earlier ones."""

    things: list
    config: AssociationConfig = field(default_factory=AssociationConfig)
    fps: float = 10.0
    detect_every: int = 1
    detections: object = None  # (scene, time_s) -> list of (mask, score, concept); what is visible when None
    tracked: object = None  # (thing, visible masks, time_s) -> mask of the track born on it; its own mask when None
    capacity: int = 16
    limits: dict = field(default_factory=dict)
    history: list = field(default_factory=list)
    retracted: list = field(default_factory=list)

    def visible(self, time_s):
        """For every thing its visible mask and the area it would have if nothing covered it."""
        covered = np.zeros((HEIGHT, WIDTH), bool)
        masks = []
        for thing in reversed(self.things):
            whole = thing.mask(time_s)
            masks.append((whole & ~covered, whole.sum()))
            covered |= whole
        return masks[::-1]

    def look(self, time_s):
        if self.detections is not None:
            return self.detections(self, time_s)
        return [(mask, 0.9, 0) for mask, area in self.visible(time_s) if area and mask.sum() > 0.3 * area]

    def run(self, seconds):
        """Step through `seconds` of the scene; afterwards `history` holds {id: visible pixels} of every frame."""
        planner, ids, thing_of, concept_of = Planner(self.config, self.capacity), {}, {}, {}
        ghosts, next_id = {}, 1
        for number in range(round(seconds * self.fps)):
            time_s = number / self.fps
            visible = [mask for mask, _ in self.visible(time_s)]
            slots = sorted(ids, key=ids.get)
            masks = []
            for slot in slots:
                thing = thing_of[slot]
                if thing is None:
                    masks.append(ghosts[slot])
                elif self.tracked is not None:
                    masks.append(self.tracked(thing, visible, time_s))
                else:
                    masks.append(visible[thing])
            tracks = Tracks(
                logits(masks),
                torch.tensor([10.0 if mask.any() else -10.0 for mask in masks]),
                np.array(slots, np.int64),
                np.array([concept_of[slot] for slot in slots], np.int64),
            )
            shown = {ids[slot]: int(mask.sum()) for slot, mask in zip(slots, masks, strict=True)}
            if number % self.detect_every == 0:
                found = self.look(time_s)
                detections = Detections(
                    logits([mask for mask, _, _ in found]),
                    np.array([score for _, score, _ in found]),
                    np.array([concept for _, _, concept in found], np.int64),
                    np.full(len(found), self.config.new_score),
                )
                overlaps = Overlaps.of(tracks, detections)
                live = list(concept_of.values())
                plan = planner.look(
                    detections, tracks, overlaps, time_s=time_s, room=self.capacity - len(ids),
                    room_of_concept={concept: limit - live.count(concept) for concept, limit in self.limits.items()},
                )  # fmt: skip
                suppressed = planner.suppress(tracks, overlaps)
                for slot in (*plan.rejected, *plan.ended):
                    planner.lifecycle.forget(slot)
                    shown.pop(ids[slot])
                    if slot in plan.rejected:
                        self.retracted.append((ids[slot], number))
                    del ids[slot], thing_of[slot], concept_of[slot]
                for index in plan.births:
                    slot = next(free for free in range(self.capacity) if free not in ids)
                    mask, _, concept = found[index]
                    overlap = [(mask & other).sum() / max(1, (mask | other).sum()) for other in visible]
                    thing_of[slot] = int(np.argmax(overlap)) if overlap and max(overlap) > 0.3 else None
                    ids[slot], concept_of[slot], ghosts[slot] = next_id, concept, mask
                    planner.lifecycle.start(slot, time_s)
                    shown[next_id] = int(mask.sum())
                    next_id += 1
                planner.lifecycle.next_tick()
            else:
                suppressed = planner.suppress(tracks, Overlaps.of(tracks))
            for slot, loses in zip(slots, suppressed, strict=True):
                if loses and slot in ids:
                    shown[ids[slot]] = 0
            self.history.append(shown)
        return self.history

    def ids_over(self, start_s=0.0, end_s=np.inf):
        """Every id that was listed between two times."""
        frames = range(round(start_s * self.fps), min(len(self.history), round(min(end_s, 1e6) * self.fps)))
        return sorted({object_id for number in frames for object_id in self.history[number]})


def logits(masks):
    if not masks:
        return torch.zeros(0, HEIGHT, WIDTH)
    return torch.from_numpy(np.stack(masks)).float() * 20 - 10


@pytest.mark.parametrize("detect_every", [1, 10])
def test_two_objects_cross_and_keep_their_ids(detect_every):
    left_to_right, right_to_left = Thing(lambda t: (12, 4 + 10 * t)), Thing(lambda t: (12, 100 - 10 * t))
    scene = Scene([left_to_right, right_to_left], detect_every=detect_every)
    scene.run(9.0)
    assert scene.ids_over() == [1, 2]
    crossing = scene.history[48]
    assert crossing[1] == 0, "the one behind is hidden for a moment"
    assert crossing[2] > 0
    assert all(scene.history[-1][object_id] == 16 * 12 for object_id in (1, 2))
    assert scene.retracted == []


@pytest.mark.parametrize("detect_every", [1, 10])
@pytest.mark.parametrize("fps", [10.0, 30.0])
def test_one_is_hidden_for_two_seconds_and_comes_back_with_its_id(detect_every, fps):
    still_one = still(12, 30)
    screen = Thing(lambda t: (6, 24) if 3.0 <= t < 5.0 else None, size=(28, 24))

    def without_the_screen(scene, time_s):
        mask, area = scene.visible(time_s)[0]
        return [(mask, 0.9, 0)] if mask.sum() > 0.3 * area else []

    scene = Scene([still_one, screen], fps=fps, detect_every=detect_every, detections=without_the_screen)
    scene.run(8.0)
    assert scene.ids_over() == [1]
    assert scene.history[round(4 * fps)] == {1: 0}
    assert scene.history[-1] == {1: 16 * 12}


def test_hidden_before_its_probation_is_over_it_is_not_rejected():
    screen = Thing(lambda t: (6, 24) if 0.5 <= t < 2.5 else None, size=(28, 24))

    def without_the_screen(scene, time_s):
        mask, area = scene.visible(time_s)[0]
        return [(mask, 0.9, 0)] if mask.sum() > 0.3 * area else []

    scene = Scene([still(12, 30), screen], detections=without_the_screen)
    scene.run(4.0)
    assert scene.ids_over() == [1]
    assert scene.history[-1] == {1: 16 * 12}


def test_a_detection_splits_and_only_the_part_without_a_track_gets_a_new_id():
    pair, parting = Thing(lambda t: (12, 20)), Thing(lambda t: (12, 32 + max(0.0, t - 3.0) * 10))

    def one_blob_first(scene, time_s):
        masks = [mask for mask, _ in scene.visible(time_s)]
        if time_s < 3.0:
            return [(masks[0] | masks[1], 0.9, 0)]
        return [(mask, 0.9, 0) for mask in masks]

    def covers_both_while_they_are_one(thing, visible, time_s):
        return visible[0] | visible[1] if time_s < 3.0 else visible[thing]

    scene = Scene([pair, parting], detections=one_blob_first, tracked=covers_both_while_they_are_one)
    scene.run(6.0)
    assert scene.ids_over(0.0, 3.0) == [1]
    assert scene.ids_over() == [1, 2]
    assert scene.history[-1] == {1: 16 * 12, 2: 16 * 12}
    assert scene.retracted == []


def test_of_two_tracks_that_merge_onto_one_object_the_earlier_stays():
    leaving, staying = still(12, 20, end=4.0), still(12, 60, start=0.5)
    mistaken = Scene([leaving, staying], tracked=lambda thing, visible, t: visible[1 if t >= 4.0 else thing])
    mistaken.run(8.0)
    assert mistaken.ids_over(1.0, 4.0) == [1, 2]
    assert sorted(mistaken.history[-1]) == [1]
    last_with_both = max(number for number, shown in enumerate(mistaken.history) if len(shown) == 2)
    assert 5.9 <= last_with_both / 10 <= 6.2, "two seconds of covering each other"
    assert mistaken.retracted == [], "it was real while it lasted"


def test_a_duplicate_on_probation_is_taken_back():
    scene = Scene(
        [still(12, 40), still(12, 100, start=0.6, end=1.05)],
        tracked=lambda thing, visible, t: visible[0 if t > 1.0 else thing],
    )
    scene.run(4.0)
    assert scene.ids_over() == [1, 2]
    assert sorted(scene.history[-1]) == [1]
    assert [object_id for object_id, _ in scene.retracted] == [2]


@pytest.mark.parametrize("detect_every", [1, 10])
def test_a_flicker_of_false_detections_is_taken_back_and_the_real_object_is_untouched(detect_every):
    def flickering(scene, time_s):
        found = [(scene.visible(time_s)[0][0], 0.9, 0)]
        if round(time_s * 10 / detect_every) % 12 == 3:  # one look of twelve sees something, each time elsewhere
            ghost = np.zeros((HEIGHT, WIDTH), bool)
            x = 60 + 14 * (round(time_s * 10 / detect_every) // 12 % 4)
            ghost[4:14, x : x + 10] = True
            found.append((ghost, 0.75, 0))
        return found

    seconds = 6.0 * detect_every
    scene = Scene([still(12, 10)], detections=flickering, detect_every=detect_every)
    scene.run(seconds)
    assert all(shown.get(1) == 16 * 12 for shown in scene.history)
    flickers = scene.ids_over()[1:]
    assert flickers == [2, 3, 4, 5, 6]
    assert [object_id for object_id, _ in scene.retracted] == flickers
    for object_id, _ in scene.retracted:
        lived = sum(object_id in shown for shown in scene.history)
        assert lived == 8 * detect_every, "gone on the eighth look that does not confirm it"


def test_shown_after_probation_a_flicker_is_never_seen():
    """The same scene in the other mode: nothing of what hot start rejects would have been listed."""
    planner = Planner(AssociationConfig(show="after_hot_start"), 4)
    planner.lifecycle.start(0, 0.0)
    shown = []
    ghost = logits([np.ones((HEIGHT, WIDTH), bool)])
    tracks = Tracks(ghost, torch.tensor([5.0]), np.array([0]), np.array([0]))
    nothing = Detections(logits([]), np.zeros(0), np.zeros(0, np.int64), np.zeros(0))
    for _ in range(10):
        shown.append(planner.lifecycle.is_shown(0))
        planner.lifecycle.next_tick()
        plan = planner.look(nothing, tracks, Overlaps.of(tracks, nothing), time_s=0.0, room=3, room_of_concept={})
        if plan.rejected:
            break
    assert plan.rejected == (0,)
    assert not any(shown)


@pytest.mark.parametrize(("fps", "detect_every"), [(10.0, 1), (30.0, 1), (10.0, 10), (30.0, 10)])
def test_an_object_that_leaves_for_good_expires_ten_seconds_later_at_every_rate(fps, detect_every):
    scene = Scene([still(12, 10), still(12, 50, end=4.0)], fps=fps, detect_every=detect_every)
    scene.run(18.0)
    assert scene.ids_over(0.0, 13.0) == [1, 2]
    assert scene.history[-1] == {1: 16 * 12}
    gone_s = max(number for number, shown in enumerate(scene.history) if 2 in shown) / fps
    assert 12.9 <= gone_s <= 15.0
    assert scene.retracted == []


def test_when_it_comes_back_after_that_it_is_a_new_object():
    scene = Scene([Thing(lambda t: (12, 50) if t < 4.0 or t > 16.0 else None)])
    scene.run(18.0)
    assert scene.ids_over() == [1, 2]
    assert scene.history[-1] == {2: 16 * 12}


def test_a_ghost_that_the_tracker_keeps_alive_expires_too():
    def seen_at_first(scene, time_s):
        ghost = np.zeros((HEIGHT, WIDTH), bool)
        ghost[4:14, 60:70] = True
        return [(ghost, 0.9, 0)] if time_s < 2.0 else []

    scene = Scene([], detections=seen_at_first)
    scene.run(14.0)
    assert scene.history[110] == {1: 100}
    assert scene.history[-1] == {}
    assert scene.retracted == []


def test_the_same_thing_found_for_two_concepts_is_an_object_of_each():
    scene = Scene([still(12, 10)], detections=lambda s, t: [(s.visible(t)[0][0], 0.9, concept) for concept in (0, 1)])
    scene.run(4.0)
    assert scene.history[-1] == {1: 192, 2: 192}


def test_limits_keep_the_best_of_each_concept_and_of_all():
    def crowd(scene, time_s):
        return [(mask, 0.95 - 0.02 * index, index % 2) for index, (mask, _) in enumerate(scene.visible(time_s))]

    things = [still(4, 2 + 18 * column) for column in range(6)]
    scene = Scene(things, detections=crowd, limits={1: 1})
    scene.run(1.0)
    assert len(scene.history[-1]) == 4, "three of concept 0 and one of concept 1"
    scene = Scene(things, detections=crowd, capacity=2)
    scene.run(1.0)
    assert len(scene.history[-1]) == 2
    assert scene.ids_over() == [1, 2]


def test_room_that_frees_up_is_used():
    scene = Scene([still(4, 2, end=2.0), still(4, 40), still(4, 80)], capacity=2)
    scene.run(15.0)
    assert scene.ids_over(0.0, 11.0) == [1, 2]
    assert sorted(scene.history[-1]) == [2, 3]


def test_hundreds_of_objects_come_and_go_through_sixteen_slots():
    def passing(index):
        """A new thing every second; each crosses in four."""
        return Thing(lambda t: (12, 108 - 27 * ((t - index) % 20)) if (t - index) % 20 < 4 else None)

    things = [passing(index) for index in range(20)]
    scene = Scene(things, config=AssociationConfig(expire_after_s=2.0), fps=5.0)
    scene.run(220.0)
    assert len(scene.ids_over()) == 223, "three are in the picture from the start"
    assert max(len(shown) for shown in scene.history) <= 8
