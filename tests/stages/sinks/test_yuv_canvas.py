"""What goes to the encoder is what the decoder saw, whatever the input's colours, sides and orientation are."""

from pathlib import Path

import numpy as np
import pytest

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import TrackedFrame
from sam3_stream.stages.decoder.video_file import VideoDecoder
from sam3_stream.stages.sinks.overlay import OverlaySink
from sam3_stream.stages.sinks.yuv_canvas import Region, YuvCanvas, grown_region
from tests.stages.sinks.tracked import HEADER
from tests.support.clips import CORNER_COLORS, draw_frame, read_corners, read_number, write_clip

CLIPS = {
    "untagged": {},
    "bt601": {"color_space": "bt601"},
    "bt709": {"color_space": "bt709"},
    "untagged HD": {"size": (1280, 720)},
    "full range": {"full_range": True, "color_space": "bt709"},
    "yuv444": {"pix_fmt": "yuv444p"},
    "odd sides": {"size": (161, 121), "pix_fmt": "yuv444p"},
    "turned": {"rotation": 90, "size": (120, 160)},
    "mirrored": {"mirrored": True},
    "B-frames": {"b_frames": 2},
    "variable rate": {"vfr": True},
}


@pytest.mark.parametrize("options", CLIPS.values(), ids=CLIPS)
def test_an_overlay_without_objects_looks_like_its_input(tmp_path: Path, options: dict[str, object]) -> None:
    source = write_clip(tmp_path / "in.mp4", frames=6, **options)
    sink = OverlaySink(tmp_path / "out.mp4")
    with VideoDecoder(source) as decoder:
        sink.open(decoder.info, HEADER)
        for frame in decoder:
            sink.write(TrackedFrame(frame))
        sink.close()
    with VideoDecoder(source) as before, VideoDecoder(tmp_path / "out.mp4") as after:
        pairs = list(zip(before, after, strict=True))
    assert len(pairs) == 6
    for number, (frame, drawn) in enumerate(pairs):
        image = drawn.picture.to_ndarray()[: frame.height, : frame.width]
        assert drawn.time_s == frame.time_s
        assert read_number(image) == number
        for name, color in read_corners(image).items():
            assert np.allclose(color, CORNER_COLORS[name], atol=12), name


def test_the_decoders_pixels_are_taken_as_they_are_and_left_alone(tmp_path: Path) -> None:
    with VideoDecoder(write_clip(tmp_path / "in.mp4", frames=1, color_space="bt601")) as decoder:
        picture = next(decoder).picture
    native = picture.native_yuv420p()
    assert native is not None
    before = [bytes(plane) for plane in native[0].planes]
    canvas = YuvCanvas()
    frame = canvas.frame_of(picture)
    assert np.array_equal(frame.to_ndarray(), native[0].to_ndarray())
    canvas.draw(frame, (0, 0, 64, 64), lambda scene: scene.fill(0))
    assert [bytes(plane) for plane in native[0].planes] == before


@pytest.mark.parametrize("region", [(0, 0, 64, 64), (96, 56, 160, 120), (32, 20, 96, 84)])
def test_drawing_changes_the_region_and_nothing_else(region: Region) -> None:
    canvas = YuvCanvas()
    frame = canvas.frame_of(ArrayPicture(draw_frame(3, (160, 120))))
    before = frame.to_ndarray(format="rgb24")

    def paint(scene: np.ndarray) -> None:
        scene[:] = (200, 60, 20)  # BGR

    canvas.draw(frame, region, paint)
    after = frame.to_ndarray(format="rgb24")
    x0, y0, x1, y1 = region
    assert np.allclose(after[y0:y1, x0:x1], (20, 60, 200), atol=4)
    after[y0:y1, x0:x1] = before[y0:y1, x0:x1]
    assert np.array_equal(after, before)


def test_drawing_nothing_leaves_the_picture_as_it_was() -> None:
    canvas = YuvCanvas()
    frame = canvas.frame_of(ArrayPicture(draw_frame(3, (160, 120))))
    before = frame.to_ndarray().astype(int)
    canvas.draw(frame, (0, 0, 160, 120), lambda scene: None)
    assert abs(frame.to_ndarray() - before).mean() < 1


@pytest.mark.parametrize(
    ("region", "size", "expected"),
    [
        ((3, 5, 20, 20), (160, 120), (2, 4, 66, 68)),
        ((100, 100, 161, 121), (161, 121), (98, 58, 162, 122)),
        ((0, 0, 160, 120), (160, 120), (0, 0, 160, 120)),
        ((10, 10, 75, 20), (160, 30), (10, 0, 138, 30)),
    ],
)
def test_regions_grow_to_few_sizes_within_the_picture(region: Region, size: tuple[int, int], expected: Region) -> None:
    assert grown_region(region, *size) == expected


def test_frames_are_ready_for_an_encoder() -> None:
    frame = YuvCanvas().frame_of(ArrayPicture(draw_frame(0, (161, 121))))
    assert (frame.width, frame.height, frame.format.name) == (162, 122, "yuv420p")
    assert (frame.colorspace, frame.color_range) == (1, 1)
