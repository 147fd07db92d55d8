"""Features that went to another process track to the same masks, bit for bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.core.records import EncodedFrame, Frame
from sam3_stream.models.lite import load_lite
from sam3_stream.models.protocols import PortableFeatures
from sam3_stream.transport.records import FeatureCodec, RecordCodec
from sam3_stream.transport.signals import SIGNAL_DECODER
from sam3_stream.transport.wire_format import unpack
from tests.support.clips import disc_mask, draw_frame

SIZE = (192, 108)


@pytest.fixture(scope="module")
def model():
    return load_lite()


def frames(count):
    return [Frame("0", n, n, Fraction(1, 25), ArrayPicture(draw_frame(n, SIZE))) for n in range(count)]


def track(model, encoded_frames):
    session = model.open_session(ObjectIds().new)
    prompt = ObjectPrompt(1, "p1", "disc", mask=disc_mask(0, SIZE))
    return [session.step(encoded, [prompt] if n == 0 else []) for n, encoded in enumerate(encoded_frames)]


def test_tracking_on_features_from_the_wire_is_tracking_on_features(model):
    assert isinstance(model, PortableFeatures)
    codec = RecordCodec(features=FeatureCodec(model.features_to_arrays, model.features_from_arrays))
    encoded = model.encode(frames(8))
    arrived = []
    for each in encoded:
        # One byte more or less in front: arrays in a socket's buffer lie where they lie.
        shift = each.frame.sequence % 4
        parts = [memoryview(bytes(shift) + bytes(part))[shift:] for part in codec.pack(each)]
        record = codec.unpack(*unpack(parts, SIGNAL_DECODER))
        assert isinstance(record, EncodedFrame)
        arrived.append(record)
    for ours, theirs in zip(track(model, encoded), track(model, arrived), strict=True):
        assert ours.objects[0].score == theirs.objects[0].score
        assert np.array_equal(ours.objects[0].mask, theirs.objects[0].mask)
    assert ours.objects[0].mask.any()


@pytest.mark.parametrize("break_it", [lambda a: a.pop("grid_rgb"), lambda a: a.update(level0_hwc=np.zeros((2, 2, 2)))])
def test_arrays_that_are_no_features_are_refused(model, break_it):
    arrays = dict(model.features_to_arrays(model.encode(frames(1))[0].features))
    break_it(arrays)
    with pytest.raises((ValueError, KeyError, TypeError)):
        model.features_from_arrays(arrays)
