"""Records to send, and how to tell that they arrived whole."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import EncodedFrame, Frame, Retraction, TrackedFrame, TrackedObject
from sam3_stream.transport.records import FeatureCodec

SIZE = (37, 22)  # (width, height): rows of packed bits do not end on a byte

FRAME_FIELDS = ("stream_id", "sequence", "pts", "time_base", "start_pts", "capture_time_s", "rotation", "key_frame")
FRAME_FIELDS += ("discontinuity", "corrupt", "width", "height")
OBJECT_FIELDS = ("object_id", "prompt_id", "label", "score", "present")
FEATURES = FeatureCodec(to_arrays=lambda features: features, from_arrays=lambda arrays: arrays)


def a_frame(sequence: int = 3, size: tuple[int, int] = SIZE, stream_id: str = "yard/1") -> Frame:
    random = np.random.default_rng(sequence)
    picture = ArrayPicture(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    return Frame(
        stream_id,
        sequence,
        sequence * 1001,
        Fraction(1, 30000),
        picture,
        start_pts=90,
        capture_time_s=1.7e9 + sequence / 25,
        rotation=90,
        key_frame=sequence % 2 == 1,
        discontinuity=True,
        corrupt=True,
    )


def an_encoded_frame(sequence: int = 3) -> EncodedFrame:
    random = np.random.default_rng(sequence)
    features = {
        "level.0": random.normal(size=(2, 3, 4)).astype(np.float32),
        "half": random.normal(size=(5,)).astype(np.float16),
        "big-endian": np.arange(4, dtype=">i4"),
        "flags": np.array([True, False]),
        "scalar": np.array(7, np.int64),
        "empty": np.zeros((0, 3), np.float32),
        "strided": np.arange(12, dtype=np.uint8).reshape(3, 4)[:, ::2],
    }
    return EncodedFrame(a_frame(sequence), features, (448, 256), "float16")


def a_tracked_frame(sequence: int = 3, size: tuple[int, int] = SIZE) -> TrackedFrame:
    width, height = size
    random = np.random.default_rng(sequence)
    blob = np.zeros((height, width), np.bool_)
    blob[2:9, 3:30] = True
    objects = (
        TrackedObject(1, "p1", "dog", 0.875, blob),
        TrackedObject(4, "p2", "Käse, gerieben/fein", 0.5, random.random((height, width)) < 0.5),
        TrackedObject(9, "p2", "dog", 0.0, np.zeros((height, width), np.bool_), present=False),
        TrackedObject(12, "p3", "all", 1.0, np.ones((height, width), np.bool_)),
    )
    return TrackedFrame(a_frame(sequence, size), objects, "propagated", (640, 360), 2, (Retraction(7, 1, 2),))


def assert_same_frame(ours: Frame, theirs: Frame) -> None:
    for name in FRAME_FIELDS:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert np.array_equal(ours.picture.to_ndarray(), theirs.picture.to_ndarray())


def assert_same_objects(ours: TrackedFrame, theirs: TrackedFrame) -> None:
    for one, other in zip(ours.objects, theirs.objects, strict=True):
        assert [getattr(one, name) for name in OBJECT_FIELDS] == [getattr(other, name) for name in OBJECT_FIELDS]
        assert other.mask.dtype == np.bool_
        assert np.array_equal(one.mask, other.mask)
    assert (ours.state, ours.resolution, ours.mask_age) == (theirs.state, theirs.resolution, theirs.mask_age)
    assert ours.retracted == theirs.retracted
