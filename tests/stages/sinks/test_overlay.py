"""The overlay: every frame of the input with its time stamp and size, objects drawn in colours of their own."""

import itertools
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

from sam3_stream.core.records import ImageArray, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.overlay import OverlaySink
from tests.stages.sinks.mp4 import read_video
from tests.stages.sinks.tracked import HEADER, SIZE, object_of, rectangle, stream_info, tracked_frame
from tests.support.clips import CORNER_COLORS, read_corners, read_number, vfr_pts_ms


def write(path: Path, frames: Iterable[TrackedFrame], info: StreamInfo | None = None, **options: object) -> Path:
    sink = OverlaySink(path, **options)
    sink.check()
    sink.open(info or stream_info(), HEADER)
    for tracked in frames:
        sink.write(tracked)
    sink.close()
    sink.close()
    return path


def test_every_frame_is_there_with_its_number_and_time(tmp_path: Path) -> None:
    video = read_video(write(tmp_path / "out.mp4", map(tracked_frame, range(40))))
    assert [read_number(image) for image in video.images] == list(range(40))
    assert video.times_s == [Fraction(number, 25) for number in range(40)]
    assert (video.header_frames, video.duration_s, video.container_duration_s) == (40, Fraction(40, 25), 1.6)
    assert [path.name for path in tmp_path.iterdir()] == ["out.mp4"]


def test_a_single_frame_makes_a_video(tmp_path: Path) -> None:
    video = read_video(write(tmp_path / "out.mp4", [tracked_frame(0)]))
    assert (len(video.images), video.header_frames, video.duration_s) == (1, 1, Fraction(1, 25))


def test_without_frames_there_is_no_file(tmp_path: Path) -> None:
    write(tmp_path / "out.mp4", [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("time_base", "pts"),
    [
        pytest.param(Fraction(1, 1000), vfr_pts_ms(20), id="variable"),
        pytest.param(Fraction(1001, 30000), list(range(20)), id="ntsc"),
        pytest.param(Fraction(1, 90000), [126000 + 3600 * number for number in range(20)], id="starts-late"),
        pytest.param(Fraction(1, 100), [0, 300, 301, 900], id="slow"),
        pytest.param(Fraction(1, 1_000_000), [number * 33_333 for number in range(20)], id="microseconds"),
    ],
)
def test_time_stamps_are_exactly_those_of_the_input(tmp_path: Path, time_base: Fraction, pts: list[int]) -> None:
    info = StreamInfo(*SIZE, time_base, average_rate=Fraction(25))
    frames = [tracked_frame(number, pts=each, time_base=time_base) for number, each in enumerate(pts)]
    video = read_video(write(tmp_path / "out.mp4", frames, info))
    assert video.times_s == [each * time_base for each in pts]
    assert video.header_frames == len(pts)


@pytest.mark.parametrize(("first_pts", "start_s"), [(250, 10.0), (25 * 3600, None), (-50, None)])
def test_a_window_and_a_late_start_begin_at_zero(tmp_path: Path, first_pts: int, start_s: float | None) -> None:
    frames = [tracked_frame(number, pts=first_pts + number) for number in range(5)]
    video = read_video(write(tmp_path / "out.mp4", frames, start_s=start_s))
    assert video.times_s == [Fraction(number, 25) for number in range(5)]


def test_time_stamps_that_do_not_increase_still_give_every_frame(tmp_path: Path) -> None:
    frames = [tracked_frame(number, pts=pts) for number, pts in enumerate([0, 1, 1, 1, 5, 6])]
    times_s = read_video(write(tmp_path / "out.mp4", frames)).times_s
    assert len(times_s) == 6
    assert all(earlier < later for earlier, later in itertools.pairwise(times_s))


@pytest.mark.parametrize("size", [(161, 120), (160, 121), (161, 121)])
def test_an_odd_side_is_padded_by_one_replicated_pixel(tmp_path: Path, size: tuple[int, int]) -> None:
    frames = [tracked_frame(number, size=size) for number in range(3)]
    video = read_video(write(tmp_path / "out.mp4", frames, stream_info(size)))
    width, height = size
    assert video.size == (width + width % 2, height + height % 2)
    for number, image in enumerate(video.images):
        assert read_number(image[:height, :width]) == number
        assert abs(image[:, -1].astype(int) - image[:, width - 1]).max() < 40
        assert abs(image[-1].astype(int) - image[height - 1]).max() < 40


def test_colours_stay_what_they_were_and_players_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "out.mp4", [tracked_frame(number, objects=()) for number in range(3)])
    for name, color in read_corners(read_video(path).images[-1]).items():
        assert np.allclose(color, CORNER_COLORS[name], atol=8), name
    with av.open(str(path)) as container:
        codec = container.streams.video[0].codec_context
        assert (codec.name, codec.pix_fmt) == ("h264", "yuv420p")
        assert (codec.colorspace, codec.color_primaries, codec.color_trc, codec.color_range) == (1, 1, 1, 1)


def test_the_shape_of_pixels_is_kept(tmp_path: Path) -> None:
    info = StreamInfo(*SIZE, Fraction(1, 25), sample_aspect_ratio=Fraction(64, 45))
    with av.open(str(write(tmp_path / "out.mp4", map(tracked_frame, range(3)), info))) as container:
        assert container.streams.video[0].sample_aspect_ratio == Fraction(64, 45)


def test_the_index_comes_first_so_that_browsers_start_at_once(tmp_path: Path) -> None:
    content = write(tmp_path / "out.mp4", map(tracked_frame, range(30))).read_bytes()
    assert 0 < content.index(b"moov") < content.index(b"mdat")
    assert b"moof" not in content


GRAY = np.full((SIZE[1], SIZE[0], 3), 128, np.uint8)


def distance_from_gray(image: ImageArray) -> npt.NDArray[np.int_]:
    return abs(image.astype(int) - 128).max(axis=2)


def test_each_object_has_a_steady_colour_of_its_own_and_the_rest_is_untouched(tmp_path: Path) -> None:
    left, right = rectangle(10, 40, 60, 90), rectangle(90, 40, 140, 90)
    frames = [
        # The second object comes, goes, and comes back; the first is there throughout.
        tracked_frame(number, image=GRAY, objects=(object_of(left, 1), *([object_of(right, 2)] if number != 2 else [])))
        for number in range(4)
    ]
    images = read_video(write(tmp_path / "out.mp4", frames)).images
    inside_left = [image[70, 30].astype(int) for image in images]
    inside_right = [image[70, 120].astype(int) for image in images]
    assert all(abs(color - inside_left[0]).max() < 12 for color in inside_left)
    assert all(abs(inside_right[number] - inside_right[0]).max() < 12 for number in (1, 3))
    assert abs(inside_right[2] - 128).max() < 12
    assert abs(inside_left[0] - inside_right[0]).max() > 40
    assert abs(images[0][100:, :].astype(int) - 128).max() < 24


def test_tint_outline_and_label_are_drawn(tmp_path: Path) -> None:
    mask = rectangle(40, 40, 120, 100)
    image = read_video(write(tmp_path / "out.mp4", [tracked_frame(0, image=GRAY, objects=(object_of(mask),))])).images[
        0
    ]
    distance = distance_from_gray(image)
    assert distance[70, 80] > 20
    assert distance[40:100, 39:42].max(axis=1).min() > distance[70, 80] + 20
    assert (distance[22:38, 42:80] > 60).mean() > 0.5, "the label stands on the box"


def test_absent_objects_are_not_drawn(tmp_path: Path) -> None:
    absent = object_of(rectangle(0, 0, 0, 0), present=False)
    drawn = write(tmp_path / "drawn.mp4", [tracked_frame(number, objects=(absent,)) for number in range(3)])
    plain = write(tmp_path / "plain.mp4", [tracked_frame(number, objects=()) for number in range(3)])
    assert drawn.read_bytes() == plain.read_bytes()


@pytest.mark.parametrize(
    "box", [(0, 0, 20, 20), (150, 0, 160, 10), (150, 110, 160, 120), (0, 0, 160, 120), (3, 119, 4, 120)]
)
def test_objects_at_the_border_are_drawn(tmp_path: Path, box: tuple[int, int, int, int]) -> None:
    objects = object_of(rectangle(*box), 1), object_of(rectangle(*box), 2)
    video = read_video(write(tmp_path / "out.mp4", [tracked_frame(0, image=GRAY, objects=objects)]))
    assert distance_from_gray(video.images[0])[box[1] : box[3], box[0] : box[2]].max() > 20


def test_the_picture_away_from_the_object_is_untouched(tmp_path: Path) -> None:
    mask = rectangle(60, 60, 90, 90)
    frames = [tracked_frame(number, image=GRAY, objects=(object_of(mask),)) for number in range(5)]
    for image in read_video(write(tmp_path / "out.mp4", frames)).images:
        distance = distance_from_gray(image)
        distance[35:96, 54:] = 0  # the object with its outline, and its label from there to the right
        assert distance.max() < 12
