from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sam3_stream.core.records import Frame
from sam3_stream.stages.decoder import Anchor, VideoDecoder, open_backward, open_source
from sam3_stream.stages.decoder.backward import video_backward
from tests.support.clips import write_clip, write_images
from tests.support.damage import overwrite


def assert_same(frames: list[Frame], expected: list[Frame]) -> None:
    assert [(frame.sequence, frame.pts) for frame in frames] == [(frame.sequence, frame.pts) for frame in expected]
    for frame, other in zip(frames, expected, strict=True):
        np.testing.assert_array_equal(frame.picture.to_ndarray(), other.picture.to_ndarray())


@pytest.mark.parametrize("piece_frames", [1, 7, 100])
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("clip.mp4", {"b_frames": 3}),
        ("clip.mp4", {"gop": 300}),
        ("clip.mkv", {"vfr": True}),
        ("clip.ts", {"b_frames": 2}),
        ("clip.h264", {"b_frames": 2}),
        ("clip.gif", {}),
    ],
)
def test_frames_come_in_reverse_as_the_forward_pass_gives_them(
    name: str, how: dict[str, Any], piece_frames: int, tmp_path: Path
) -> None:
    path = write_clip(tmp_path / name, frames=30, **how)
    with VideoDecoder(path) as video:
        forward = list(video)

    def open_video(first_sequence: int, anchor: Anchor | None) -> VideoDecoder:
        return VideoDecoder(path, first_sequence=first_sequence, anchor=anchor)

    with video_backward(open_video, float("inf"), piece_frames) as reverse:
        assert_same(list(reverse), forward[::-1])


def test_it_begins_with_the_first_frame_at_or_after_the_time_given(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", frames=48, fps=24, b_frames=2)
    window = {"start_s": 0.5, "end_s": 1.5}
    with open_source(path, **window) as video:
        forward = list(video)
    with open_backward(path, from_s=1.01, **window) as reverse:
        assert (reverse.info.width, reverse.info.height) == (160, 120)
        frames = list(reverse)
    assert frames[0].time_s == pytest.approx(25 / 24)
    assert_same(frames, forward[13::-1])
    with open_backward(path, from_s=60, **window) as reverse:
        assert_same(list(reverse), forward[::-1])


def test_a_folder_of_images(tmp_path: Path) -> None:
    write_images(tmp_path, frames=24)
    forward = list(open_source(tmp_path, start_s=0.25))
    with open_backward(tmp_path, from_s=0.5, start_s=0.25) as reverse:
        assert_same(list(reverse), forward[6::-1])


def test_a_damaged_file_gives_what_decodes(tmp_path: Path) -> None:
    path = overwrite(write_clip(tmp_path / "clip.mp4", frames=48), begin=0.4, end=0.9)
    forward: list[Frame] = []
    with VideoDecoder(path) as video, pytest.raises(Exception, match="damaged"):
        forward.extend(video)
    with open_backward(path, from_s=60) as reverse:
        assert [(frame.sequence, frame.pts) for frame in reverse] == [(f.sequence, f.pts) for f in forward[::-1]]


def test_it_can_be_left_early(tmp_path: Path) -> None:
    with open_backward(write_clip(tmp_path / "clip.mp4"), from_s=60) as reverse:
        assert next(iter(reverse)).sequence == 23
    reverse.close()
