"""A decoded picture that went over the wire gives the same pixels, whatever its format, colours and orientation."""

from __future__ import annotations

from random import Random

import av
import numpy as np
import pytest

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.stages.decoder import open_source
from sam3_stream.stages.decoder.frame_tags import CHROMA_LOCATIONS, FrameTagger
from sam3_stream.stages.decoder.orientation import Orientation
from sam3_stream.stages.decoder.picture import VideoPicture
from sam3_stream.stages.decoder.wire_picture import RawPictures
from sam3_stream.transport.wire_format import MalformedMessageError, PictureLayout
from tests.support.clips import write_clip

FORMATS = [
    "yuv420p",
    "yuvj420p",
    "yuv422p10le",
    "yuva420p",
    "yuv444p",
    "nv12",
    "rgb24",
    "gray",
    "gray10le",
    "pal8",
    "gbrp",
]


def a_picture(pixel_format, size=(70, 46), orientation=None, colour=(2, 0, 2, 2)):
    frame = av.VideoFrame(*size, pixel_format)
    random = np.random.default_rng(1)
    for plane in frame.planes:
        plane.update(random.integers(0, 4 if "10le" in pixel_format else 256, plane.buffer_size, np.uint8).tobytes())
    frame.colorspace, frame.color_range, frame.color_primaries, frame.color_trc = colour
    return VideoPicture(frame, orientation or Orientation())


def through(picture):
    layout, buffers = RawPictures().pack(picture)
    layout.check()
    return RawPictures().unpack(layout, [memoryview(bytes(buffer)) for buffer in buffers])


def assert_same(ours, theirs):
    assert (ours.width, ours.height) == (theirs.width, theirs.height)
    for size in (None, (33, 20), (200, 90)):
        assert np.array_equal(ours.to_ndarray("rgb24", size), theirs.to_ndarray("rgb24", size))


@pytest.mark.parametrize("pixel_format", FORMATS)
def test_every_pixel_format(pixel_format):
    picture = a_picture(pixel_format)
    assert_same(picture, through(picture))


@pytest.mark.parametrize(
    "orientation", [Orientation(90), Orientation(180, True), Orientation(270), Orientation(0, True)]
)
def test_every_orientation(orientation):
    picture = a_picture("yuv420p", orientation=orientation)
    assert_same(picture, through(picture))


@pytest.mark.parametrize("colour", [(1, 1, 1, 1), (6, 2, 6, 6), (9, 1, 9, 16)])
def test_every_colour_matrix_and_range_and_what_an_encoder_takes(colour):
    picture = a_picture("yuv420p", colour=colour)
    arrived = through(picture)
    assert_same(picture, arrived)
    ours, theirs = picture.native_yuv420p(), arrived.native_yuv420p()
    assert (ours is None) == (theirs is None)
    if ours is not None:
        assert ours[1] == theirs[1]
        assert (ours[0].color_primaries, ours[0].color_trc) == (theirs[0].color_primaries, theirs[0].color_trc)


@pytest.mark.parametrize("location", CHROMA_LOCATIONS)
@pytest.mark.parametrize("interlaced", [False, True])
def test_every_place_of_the_chroma_samples_and_fields(location, interlaced):
    untagged = a_picture("yuv420p", size=(70, 48))  # two fields of 4:2:0 have four lines in common
    tagged = VideoPicture(FrameTagger().tag(untagged.decoded, location, interlaced), Orientation())
    assert_same(tagged, through(tagged))
    if location != "center" or interlaced:
        assert not np.array_equal(tagged.to_ndarray("rgb24", (33, 20)), untagged.to_ndarray("rgb24", (33, 20)))


@pytest.mark.parametrize("name", ["clip.mp4", "clip.webm", "clip.avi"])
def test_frames_of_real_decoders(tmp_path, name):
    source = open_source(write_clip(tmp_path / name, frames=3, size=(96, 64)))
    for frame in source:
        assert_same(frame.picture, through(frame.picture))
    source.close()


def test_a_picture_of_no_decoder_goes_as_rgb():
    picture = ArrayPicture(np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8))
    assert_same(picture, through(picture))


@pytest.mark.parametrize(
    "change",
    [
        {"pixel_format": "foo"},
        {"pixel_format": ""},
        {"pixel_format": "yuv444p"},
        {"pixel_format": "pal8"},
        {"coded_width": 9},
        {"coded_height": 9000},
        {"strides": [1, 1, 1]},
        {"strides": [-80, 48, 48]},
        {"strides": [80]},
        {"colour": []},
        {"rotation": 90},
        {"chroma_location": "everywhere"},
    ],
)
def test_a_layout_that_does_not_fit_its_buffers_is_refused(change):
    layout, buffers = RawPictures().pack(a_picture("yuv420p"))
    fields = {name: getattr(layout, name) for name in layout.__struct_fields__} | change
    with pytest.raises(MalformedMessageError):
        RawPictures().unpack(PictureLayout(**fields), [memoryview(bytes(buffer)) for buffer in buffers])


def test_random_layouts_are_refused_or_read_but_never_crash():
    random = Random(3)
    layout, buffers = RawPictures().pack(a_picture("yuv420p"))
    views = [memoryview(bytes(buffer)) for buffer in buffers]
    for _ in range(3000):
        fields = {name: getattr(layout, name) for name in layout.__struct_fields__}
        name = random.choice(list(fields))
        fields[name] = random.choice(
            [0, 1, -1, 70, 46, 3000, "rgb24", "cuda", "nv12", [], [80, 48, 48], [3, 3, 3, 300]]
        )
        changed = PictureLayout(**fields)
        try:
            changed.check()
            RawPictures().unpack(changed, random.choice([views, views[:1], views[::-1]])).to_ndarray()
        except (MalformedMessageError, TypeError):  # msgspec sees to types when a message is read
            continue
