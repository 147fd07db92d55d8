"""Objects on transparency: exact in PNGs, close in VP9."""

import os
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from sam3_stream.core.errors import OutputError
from sam3_stream.core.records import ImageArray, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.cutout import CutoutSink
from sam3_stream.stages.sinks.yuv_canvas import plane_pixels
from tests.stages.sinks.tracked import HEADER, SIZE, object_of, rectangle, stream_info, tracked_frame
from tests.support.clips import disc_mask, draw_frame, vfr_pts_ms


def write(path: Path, *frames: TrackedFrame, info: StreamInfo | None = None) -> Path:
    sink = CutoutSink(path)
    sink.check()
    sink.open(info or stream_info(), HEADER)
    for tracked in frames:
        sink.write(tracked)
    sink.close()
    sink.close()
    return path


def read_webm(path: Path) -> tuple[list[ImageArray], list[int]]:
    """RGBA pictures and their milliseconds, as a browser's decoder sees them (FFmpeg's own drops the alpha)."""
    decoder = av.CodecContext.create("libvpx-vp9", "r")
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.metadata["ALPHA_MODE"] == "1"
        frames = [frame for packet in container.demux(stream) if packet.size for frame in decoder.decode(packet)]
        frames += decoder.decode(None)
    return [to_rgba(frame) for frame in frames], [frame.pts for frame in frames]


def to_rgba(frame: av.VideoFrame) -> ImageArray:
    """RGBA with the alpha that was decoded: swscale's own leaves the last columns of such widths as they were."""
    rgba = frame.to_ndarray(format="rgba")
    rgba[..., 3] = plane_pixels(frame.planes[3])
    return rgba


def test_webm_is_transparent_outside_of_the_objects(tmp_path: Path) -> None:
    images, times_ms = read_webm(write(tmp_path / "out.webm", *map(tracked_frame, range(20))))
    assert times_ms == [40 * number for number in range(20)]
    for number, image in enumerate(images):
        mask, original = disc_mask(number, SIZE), draw_frame(number, SIZE)
        shown = image[..., 3] > 127
        assert (shown & mask).sum() / (shown | mask).sum() > 0.98
        assert image[..., 3][mask].mean() > 250
        assert image[..., 3][~mask].mean() < 5
        assert abs(image[..., :3][mask].astype(int) - original[mask]).mean() < 16


def test_the_background_is_not_in_the_webm(tmp_path: Path) -> None:
    images, _ = read_webm(write(tmp_path / "out.webm", tracked_frame(0, objects=())))
    assert images[0][..., 3].max() == 0
    assert images[0][..., :3].max() < 8


def test_webm_with_odd_sides_and_variable_rate(tmp_path: Path) -> None:
    size = (161, 121)
    info = StreamInfo(*size, Fraction(1, 1000))
    frames = [
        tracked_frame(number, size=size, pts=pts, time_base=info.time_base) for number, pts in enumerate(vfr_pts_ms(10))
    ]
    images, times_ms = read_webm(write(tmp_path / "out.webm", *frames, info=info))
    assert times_ms == vfr_pts_ms(10)
    assert images[0].shape == (122, 162, 4)
    assert images[0][:, -1, 3].max() < 5


def test_without_frames_there_is_no_webm(tmp_path: Path) -> None:
    write(tmp_path / "out.webm")
    assert list(tmp_path.iterdir()) == []


def test_pictures_are_exact_and_hold_nothing_of_the_background(tmp_path: Path) -> None:
    objects = object_of(rectangle(10, 10, 50, 50), 1), object_of(rectangle(40, 40, 90, 90), 2)
    folder = write(tmp_path / "out", tracked_frame(0, objects=objects), tracked_frame(1, objects=()))
    image = np.asarray(Image.open(folder / "00000.png"))
    mask = objects[0].mask | objects[1].mask
    assert image.shape == (120, 160, 4)
    assert np.array_equal(image[..., 3], mask * 255)
    assert np.array_equal(image[mask][:, :3], draw_frame(0, SIZE)[mask])
    assert not image[~mask].any()
    assert not np.asarray(Image.open(folder / "00001.png")).any()


def test_formats_without_transparency_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"must be a \.webm file, .* or a folder"):
        CutoutSink(tmp_path / "out.mp4")


STOP_IN_THE_MIDDLE = """
import itertools, resource, sys
from sam3_stream.core.errors import SinkError
from sam3_stream.stages.sinks.cutout import CutoutSink
from sam3_stream.stages.sinks.yuv_canvas import plane_pixels
from tests.stages.sinks.tracked import HEADER, stream_info, tracked_frame

limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sink = CutoutSink(sys.argv[1])
sink.open(stream_info(), HEADER)
try:
    for number in itertools.count():
        sink.write(tracked_frame(number))
        print(number, flush=True)
except SinkError as error:
    print(error, flush=True)
sink.close()
"""


def test_a_webm_that_is_killed_plays_to_the_last_second(tmp_path: Path) -> None:
    path = tmp_path / "out.webm"
    command = [sys.executable, "-c", STOP_IN_THE_MIDDLE, path, str(1 << 30)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 40:
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.stdout.read()
    assert len(read_webm(path)[0]) > 15


def test_a_full_disk_is_named_and_the_webm_plays(tmp_path: Path) -> None:
    path = tmp_path / "out.webm"
    command = [sys.executable, "-c", STOP_IN_THE_MIDDLE, str(path), "25000"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    *numbers, message = result.stdout.splitlines()
    assert f"cannot write frame {len(numbers)} to {path}: File too large" in message
    assert len(numbers) - len(read_webm(path)[0]) < 25
