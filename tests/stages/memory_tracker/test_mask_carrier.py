from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import Frame, ImageArray, MaskArray, TrackedFrame, TrackedObject
from sam3_stream.stages.memory_tracker.mask_carrier import CarryMode, MaskCarrier

MOVING = ("camel", "car-roundabout", "cows", "goat", "kite-surf", "drift-chicane")


def frame_of(sequence: int, rgb: ImageArray) -> Frame:
    return Frame("clip", sequence, sequence, Fraction(1, 24), ArrayPicture(rgb))


def tracked_of(frame: Frame, *masks: MaskArray) -> TrackedFrame:
    objects = tuple(TrackedObject(number, "p", "thing", 0.9, mask) for number, mask in enumerate(masks, start=1))
    return TrackedFrame(frame, objects, resolution=(448, 256))


def overlap(first: MaskArray, second: MaskArray) -> float:
    return float((first & second).sum() / max(1, (first | second).sum()))


def scene(shift: int, size: tuple[int, int] = (240, 320)) -> tuple[ImageArray, MaskArray]:
    """A textured square that moves to the right over a still, textured background."""
    texture = np.random.default_rng(0)
    height, width = size
    rgb = cv2.GaussianBlur(texture.integers(0, 255, (height, width, 3), dtype=np.uint8), (0, 0), 3)
    square = cv2.GaussianBlur(texture.integers(0, 255, (80, 80, 3), dtype=np.uint8), (0, 0), 3)
    mask = np.zeros((height, width), np.bool_)
    mask[60:140, 60 + shift : 140 + shift] = True
    rgb[60:140, 60 + shift : 140 + shift] = square
    return rgb, mask


def test_propagated_masks_follow_what_moves() -> None:
    carrier = MaskCarrier("propagated")
    rgb, mask = scene(0)
    carrier.start(tracked_of(frame_of(0, rgb), mask))
    for age in range(1, 5):
        rgb, truth = scene(6 * age)
        carried = carrier.carry(frame_of(age, rgb))
        assert overlap(carried.objects[0].mask, truth) > overlap(mask, truth) + 0.04 * age
        assert (carried.state, carried.mask_age, carried.resolution) == ("propagated", age, None)
        assert carried.frame.sequence == age


def test_held_masks_stay() -> None:
    carrier = MaskCarrier("held")
    rgb, mask = scene(0)
    carrier.start(tracked_of(frame_of(0, rgb), mask))
    for age in range(1, 4):
        carried = carrier.carry(frame_of(age, scene(6 * age)[0]))
        assert np.array_equal(carried.objects[0].mask, mask)
        assert (carried.state, carried.mask_age) == ("held", age)


def test_many_overlapping_objects_keep_their_own_masks() -> None:
    rgb, mask = scene(0)
    masks = [np.roll(mask, (3 * number, 2 * number), axis=(0, 1)) for number in range(41)]
    carrier = MaskCarrier()
    carrier.start(tracked_of(frame_of(0, rgb), *masks))
    carried = carrier.carry(frame_of(1, rgb))

    assert [item.object_id for item in carried.objects] == list(range(1, 42))
    for item, expected in zip(carried.objects, masks, strict=True):
        assert overlap(item.mask, expected) > 0.97
        assert item.score == 0.9


def test_absent_objects_stay_absent_and_in_place() -> None:
    rgb, mask = scene(0)
    there, gone = TrackedObject(2, "p", "a", 0.8, mask), TrackedObject(1, "p", "b", 0.1, mask & False, present=False)
    carrier = MaskCarrier()
    carrier.start(TrackedFrame(frame_of(0, rgb), (gone, there)))
    carried = carrier.carry(frame_of(1, scene(4)[0]))

    assert [(item.object_id, item.present) for item in carried.objects] == [(1, False), (2, True)]
    assert not carried.objects[0].mask.any()
    assert overlap(carried.objects[1].mask, scene(4)[1]) > 0.9


def test_frame_without_objects_is_carried_as_one() -> None:
    carrier = MaskCarrier()
    carrier.start(TrackedFrame(frame_of(0, scene(0)[0])))
    assert carrier.carry(frame_of(1, scene(3)[0])).objects == ()


@pytest.mark.parametrize("size", [(481, 853), (200, 150), (160, 6000), (20, 20)])
def test_masks_come_at_display_size(size: tuple[int, int]) -> None:
    rgb = np.random.default_rng(1).integers(0, 255, (*size, 3), dtype=np.uint8)
    mask = np.zeros(size, np.bool_)
    mask[: size[0] // 2, : size[1] // 2] = True
    carrier = MaskCarrier()
    carrier.start(tracked_of(frame_of(0, rgb), mask))
    carried = carrier.carry(frame_of(1, rgb)).objects[0].mask
    assert carried.shape == size
    assert overlap(carried, mask) > 0.9


def test_source_that_changes_size_leaves_the_objects_absent() -> None:
    rgb, mask = scene(0)
    carrier = MaskCarrier()
    carrier.start(tracked_of(frame_of(0, rgb), mask))
    carried = carrier.carry(frame_of(1, np.zeros((100, 100, 3), np.uint8)))
    assert [(item.object_id, item.present) for item in carried.objects] == [(1, False)]


def test_needs_a_tracked_frame_first() -> None:
    carrier = MaskCarrier()
    assert not carrier.ready
    with pytest.raises(RuntimeError, match="start"):
        carrier.carry(frame_of(0, scene(0)[0]))


def carried_overlap(root: Path, sequence: str, mode: CarryMode, age: int, every: int = 16) -> float:
    """Mean IoU with the ground truth, of ground truth carried over `age` frames."""
    pictures = sorted((root / "JPEGImages" / sequence).glob("*.jpg"))
    overlaps = []
    for first in range(0, len(pictures) - age, every):
        carrier = MaskCarrier(mode)
        for number in range(first, first + age + 1):
            path = pictures[number]
            frame = frame_of(number, cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB))
            truth_path = root / "Annotations" / sequence / f"{path.stem}.png"
            truth = cv2.imread(str(truth_path), cv2.IMREAD_GRAYSCALE) > 127
            if number == first:
                carrier.start(tracked_of(frame, truth))
            else:
                carried = carrier.carry(frame)
        overlaps.append(overlap(carried.objects[0].mask, truth))
    return float(np.mean(overlaps))


@pytest.mark.data
@pytest.mark.parametrize("age", [1, 2, 4])
def test_propagating_beats_holding_on_what_moves(davis_root: Path, age: int) -> None:
    gains = {
        sequence: carried_overlap(davis_root, sequence, "propagated", age)
        - carried_overlap(davis_root, sequence, "held", age)
        for sequence in MOVING
    }
    assert np.mean(list(gains.values())) > 0.07, gains
    assert min(gains.values()) > -0.02, gains
