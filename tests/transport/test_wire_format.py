"""Records survive the wire whole, and nothing else gets through it."""

from __future__ import annotations

from random import Random

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sam3_stream.core.masks_format import encode_rle
from sam3_stream.transport.pictures import JpegPictures, NoPictures
from sam3_stream.transport.records import RecordCodec, rle_pixels
from sam3_stream.transport.wire_format import (
    FrameHeader,
    MalformedMessageError,
    TrackedHeader,
    UnknownVersionError,
    decoder_for,
    frame_topic,
    stream_of,
    unpack,
)
from tests.transport.mutation import mutated
from tests.transport.records import (
    FEATURES,
    a_frame,
    a_tracked_frame,
    an_encoded_frame,
    assert_same_frame,
    assert_same_objects,
)

DECODER = decoder_for(FrameHeader | TrackedHeader)


def through(codec: RecordCodec, record):
    parts = [bytes(part) for part in codec.pack(record, epoch=2)]
    topic, header, buffers = unpack(parts, DECODER)
    assert header.frame.epoch == 2
    return codec.unpack(topic, header, buffers)


def test_a_frame_arrives_with_every_field_and_pixel():
    frame = a_frame()
    assert_same_frame(frame, through(RecordCodec(), frame))


def test_an_encoded_frame_arrives_with_every_array():
    encoded = an_encoded_frame()
    arrived = through(RecordCodec(features=FEATURES), encoded)
    assert_same_frame(encoded.frame, arrived.frame)
    assert (arrived.resolution, arrived.dtype) == ((448, 256), "float16")
    assert arrived.features.keys() == encoded.features.keys()
    for name, array in encoded.features.items():
        assert arrived.features[name].shape == array.shape
        assert np.array_equal(arrived.features[name], array)


@pytest.mark.parametrize("masks", ["bits", "rle"])
def test_a_tracked_frame_arrives_with_every_mask(masks):
    tracked = a_tracked_frame()
    arrived = through(RecordCodec(masks=masks), tracked)
    assert_same_frame(tracked.frame, arrived.frame)
    assert_same_objects(tracked, arrived)


def test_jpeg_arrives_as_nearly_the_same_picture_and_much_smaller():
    smooth = np.add.outer(np.arange(240), np.arange(320)).astype(np.uint8)[:, :, None].repeat(3, 2) // 2
    frame = a_frame(size=(320, 240))
    object.__setattr__(frame.picture, "_rgb", smooth)
    codec = RecordCodec(JpegPictures(90))
    assert sum(len(part) for part in codec.pack(frame, 0)) < smooth.nbytes / 5
    arrived = through(codec, frame).picture.to_ndarray()
    assert np.abs(arrived.astype(int) - smooth).mean() < 3


def test_a_picture_that_was_left_out_keeps_its_size_and_says_why_it_has_no_pixels():
    arrived = through(RecordCodec(NoPictures()), a_tracked_frame())
    assert (arrived.frame.width, arrived.frame.height) == (37, 22)
    with pytest.raises(ValueError, match="left out on the way"):
        arrived.frame.picture.to_ndarray()


def test_a_header_is_plain_msgpack_with_the_documented_keys():
    _, header, *buffers = RecordCodec(masks="rle").pack(a_tracked_frame(), 2)
    fields = msgpack.unpackb(header)
    assert (fields["v"], fields["type"], fields["frame"]["epoch"], len(buffers)) == (1, "tracked", 2, 1)
    assert fields["frame"]["sequence"] == 3
    assert fields["frame"]["time_base"] == [1, 30000]
    assert fields["frame"]["picture"]["pixel_format"] == "rgb24"
    assert fields["frame"]["trace"].startswith("00-")
    assert [each["label"] for each in fields["objects"]] == ["dog", "Käse, gerieben/fein", "dog", "all"]


@pytest.mark.parametrize("stream_id", ["cam1", "yard/1", "Hof %2F", "", "frame/x/"])
def test_any_stream_id_fits_a_topic_and_none_is_the_beginning_of_another(stream_id):
    assert stream_of(frame_topic(stream_id)) == stream_id
    assert not frame_topic(stream_id + "0").startswith(frame_topic(stream_id))


def test_unknown_versions_are_told_apart():
    topic, header, *buffers = RecordCodec().pack(a_frame())
    other = msgpack.packb(msgpack.unpackb(header) | {"v": 2})
    with pytest.raises(UnknownVersionError, match="version 2 of the wire format; expected 1"):
        unpack([topic, other, *buffers], DECODER)


def test_unknown_keys_are_passed_over_so_that_the_format_may_grow():
    topic, header, *buffers = RecordCodec().pack(a_frame())
    other = msgpack.packb(msgpack.unpackb(header) | {"lens": "fisheye"})
    unpack([topic, other, *buffers], DECODER)


def test_features_that_are_no_numbers_are_never_sent():
    codec = RecordCodec(features=FEATURES)
    encoded = an_encoded_frame()
    encoded.features["object"] = np.array([object()])
    with pytest.raises(TypeError, match="'object' has dtype object"):
        codec.pack(encoded)


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (64, 48), (3, 200)])
def test_run_lengths_are_counted_as_pycocotools_would(shape):
    random = np.random.default_rng(0)
    for density in (0.0, 0.02, 0.5, 0.99, 1.0):
        counts = encode_rle(random.random(shape) < density)["counts"]
        assert rle_pixels(counts) == shape[0] * shape[1]


CODECS = {
    "raw": RecordCodec(features=FEATURES),
    "jpeg": RecordCodec(JpegPictures(), FEATURES, masks="rle"),
}
MESSAGES = [
    (name, [bytes(part) for part in codec.pack(record)])
    for name, codec in CODECS.items()
    for record in (a_frame(), an_encoded_frame(), a_tracked_frame())
]


@settings(max_examples=10_000, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_mutated_messages_are_refused_or_read_but_never_crash(seed):
    random = Random(seed)
    name, parts = random.choice(MESSAGES)
    parts = mutated(parts, random)
    try:
        topic, header, buffers = unpack(parts, DECODER)
        record = CODECS[name].unpack(topic, header, buffers)
    except MalformedMessageError:
        return
    frame = record if hasattr(record, "picture") else record.frame
    assert frame.picture.to_ndarray().shape == (frame.height, frame.width, 3)


@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_noise_is_refused(parts):
    with pytest.raises(MalformedMessageError):
        unpack(parts, DECODER)
