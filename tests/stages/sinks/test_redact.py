"""Nothing of a hidden object can be got back from the file."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sam3_stream.core.records import ImageArray, MaskArray, StreamInfo
from sam3_stream.stages.sinks.redact import RedactSink
from tests.stages.sinks.mp4 import read_sound, read_video
from tests.stages.sinks.tracked import HEADER, SIZE, object_of, rectangle, stream_info, tracked_frame
from tests.support.clips import draw_frame, write_clip

FACE = rectangle(50, 30, 98, 78)


def redact(
    path: Path, images: list[ImageArray], mask: MaskArray = FACE, size: tuple[int, int] = SIZE
) -> list[ImageArray]:
    sink = RedactSink(path)
    sink.check()
    sink.open(stream_info(size), HEADER)
    for number, image in enumerate(images):
        sink.write(tracked_frame(number, size=size, image=image, objects=(object_of(mask),)))
    sink.close()
    return read_video(path).images


def with_face(seed: int, mask: MaskArray = FACE) -> ImageArray:
    """A frame whose object is a shuffle of the same 8x8 tiles: another object with the same colours."""
    image = draw_frame(0, SIZE)
    tiles = np.random.default_rng(1).integers(0, 255, (36, 8, 8, 3), dtype=np.uint8)
    tiles = tiles[np.random.default_rng(seed).permutation(36)]
    image[30:78, 50:98] = tiles.reshape(6, 6, 8, 8, 3).transpose(0, 2, 1, 3, 4).reshape(48, 48, 3)
    return image


def test_two_objects_of_the_same_average_colour_give_the_same_video(tmp_path: Path) -> None:
    one, other = (redact(tmp_path / f"{seed}.mp4", [with_face(seed)] * 5) for seed in (2, 3))
    assert abs(with_face(2).astype(int) - with_face(3)).mean() > 5, "they do look different"
    for first, second in zip(one, other, strict=True):
        assert abs(first.astype(int) - second).max() <= 4


def test_a_moving_object_leaves_no_more_than_its_colour(tmp_path: Path) -> None:
    """What a mosaic of means gives away over time: how its blocks change as the object moves under them."""
    frames = [np.roll(with_face(2), shift, axis=1) for shift in range(6)]
    images = redact(tmp_path / "out.mp4", frames, np.roll(FACE, 0) | np.roll(FACE, 6, axis=1))
    inside = np.stack([image[34:74, 60:98] for image in images]).astype(int)
    changes = np.diff(inside, axis=0)
    assert abs(changes - np.median(changes, axis=(1, 2), keepdims=True)).max() <= 10, "all blocks change as one"


def test_the_object_and_a_margin_are_covered_and_the_rest_stays(tmp_path: Path) -> None:
    image = np.full((120, 160, 3), 100, np.uint8)
    image[FACE] = (250, 250, 0)
    covered = redact(tmp_path / "out.mp4", [image])[0]
    rows, columns = np.nonzero(abs(covered.astype(int) - 100).max(axis=2) > 30)
    # The object spans columns 50 to 97 and rows 30 to 77; its blocks are 8 pixels wide, the margin 4.
    assert (columns.min(), columns.max(), rows.min(), rows.max()) == pytest.approx((42, 106, 22, 86), abs=4)
    assert covered[FACE].max() < 250


def test_a_hole_in_the_mask_is_hidden_too(tmp_path: Path) -> None:
    image = np.full((120, 160, 3), 100, np.uint8)
    image[52:56, 72:76] = (255, 255, 0)
    mask = FACE & ~rectangle(64, 44, 84, 64)
    assert redact(tmp_path / "out.mp4", [image], mask)[0].max() < 150


@pytest.mark.parametrize(
    "box", [(0, 0, 1, 1), (160, 120, 161, 121), (0, 0, 161, 121), (150, 5, 161, 9), (80, 60, 81, 61)]
)
def test_objects_of_any_size_at_the_border_are_hidden(tmp_path: Path, box: tuple[int, int, int, int]) -> None:
    size = (161, 121)
    image = np.full((121, 161, 3), 100, np.uint8)
    mask = rectangle(*box, size)
    image[mask] = (250, 250, 0)
    covered = redact(tmp_path / "out.mp4", [image], mask, size)[0]
    if box == (0, 0, 161, 121):
        assert np.ptp(covered.astype(int), axis=(0, 1)).max() < 60
    else:
        assert covered[: box[3] + 1, : box[2] + 1].max() < 220


def test_sound_is_kept(tmp_path: Path) -> None:
    source = write_clip(tmp_path / "in.mp4", frames=25, fps=25, audio=True)
    sink = RedactSink(tmp_path / "out.mp4", audio_from=source)
    sink.open(StreamInfo(*SIZE, Fraction(1, 25), Fraction(25), frame_count=25, has_audio=True), HEADER)
    for number in range(25):
        sink.write(tracked_frame(number))
    sink.close()
    sound = read_sound(sink.path)
    assert sound is not None
    assert 430 < sound.pitch_hz() < 450
    assert sound.end_s == pytest.approx(1, abs=0.05)
