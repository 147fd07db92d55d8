"""A damaged file gives what decodes, and then says what was lost; a file that cannot be used says so at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sam3_stream.core.errors import DecodeError, InputError
from sam3_stream.core.records import Frame
from sam3_stream.stages.decoder import VideoDecoder, open_source
from sam3_stream.stages.decoder.completeness import Completeness, check_file
from tests.support.clips import draw_frame, read_number, write_clip, write_tone
from tests.support.damage import blank, overwrite, truncate

FAST_START = {"movflags": "faststart"}
FRAGMENTED = {"movflags": "frag_keyframe+empty_moov"}
CONTAINERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mp4": ("clip.mp4", {"container_options": FAST_START, "b_frames": 2}),
    "mp4 with audio": ("clip.mp4", {"container_options": FAST_START, "audio": True}),
    "fragmented mp4": ("clip.mp4", {"container_options": FRAGMENTED}),
    "hevc": ("clip.mp4", {"container_options": FAST_START, "codec": "libx265", "b_frames": 2}),
    "mkv": ("clip.mkv", {}),
    "webm": ("clip.webm", {}),
    "mjpeg avi": ("clip.avi", {}),
    "mpeg4 avi": ("clip.avi", {"codec": "mpeg4"}),
    "ts": ("clip.ts", {}),
    "flv": ("clip.flv", {}),
    "gif": ("clip.gif", {}),
}


def read(path: Path) -> tuple[list[Frame], str | None]:
    """The frames, and the error that came after them."""
    frames: list[Frame] = []
    with VideoDecoder(path) as video:
        try:
            frames.extend(video)
        except DecodeError as error:
            return frames, str(error)
    return frames, None


def exact_share(frames: list[Frame]) -> float:
    """Share of frames that show what they should, but for what lossy codecs change."""
    shown = 0
    for frame in frames:
        image = frame.picture.to_ndarray().astype(int)
        shown += bool(np.abs(image - draw_frame(read_number(frame.picture.to_ndarray()), (160, 120))).mean() < 12)
    return shown / len(frames)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_truncated_file_gives_what_is_there_and_then_an_error(kind: str, tmp_path: Path) -> None:
    name, how = CONTAINERS[kind]
    path = write_clip(tmp_path / name, frames=48, **how)
    assert check_file(path) == Completeness()
    frames, error = read(truncate(path, 0.6))
    assert 20 <= len(frames) <= 36
    whole = [frame for frame in frames if not frame.corrupt][:-1]
    assert [read_number(frame.picture.to_ndarray()) for frame in whole] == list(range(len(whole)))
    assert error is not None
    assert str(path) in error
    assert f"; {len(frames)} frames delivered" in error
    assert "\n" not in error


def test_a_truncated_file_loses_no_frame_to_the_number_of_threads(tmp_path: Path) -> None:
    # 29 packets are left and the last of them is cut; B-frames are still in the decoder when it is found out.
    path = truncate(write_clip(tmp_path / "clip.mp4", frames=48, b_frames=2, container_options=FAST_START), 0.6)
    frames, error = read(path)
    assert [read_number(frame.picture.to_ndarray()) for frame in frames] == list(range(28))
    assert error is not None
    assert "19 packets missing, 1 packet incomplete" in error
    assert "28 frames delivered of about 48" in error


@pytest.mark.parametrize("kind", ["mp4", "mp4 with audio", "fragmented mp4", "mkv", "mpeg4 avi", "ts", "flv"])
def test_corrupt_packets_are_counted_and_the_rest_is_delivered(kind: str, tmp_path: Path) -> None:
    name, how = CONTAINERS[kind]
    path = overwrite(write_clip(tmp_path / name, frames=48, **how), begin=0.4, end=0.9)
    frames, error = read(path)
    assert len(frames) >= 44
    assert exact_share(frames) > 0.5
    assert error is not None
    flagged = sum(frame.corrupt for frame in frames)
    assert flagged == 0 or f"{flagged} frame{'s' if flagged > 1 else ''} decoded with errors" in error
    assert flagged or "packet" in error


@pytest.mark.parametrize("kind", ["mp4", "hevc", "mkv", "webm", "mjpeg avi", "mpeg4 avi", "ts", "flv"])
def test_a_hole_in_the_file_is_reported(kind: str, tmp_path: Path) -> None:
    name, how = CONTAINERS[kind]
    path = blank(write_clip(tmp_path / name, frames=48, **how), begin=0.5, end=0.6)
    frames, error = read(path)
    assert len(frames) >= 24
    assert exact_share(frames) > 0.5
    assert error is not None


def test_a_hole_in_a_gif_is_reported(tmp_path: Path) -> None:
    frames, error = read(blank(write_clip(tmp_path / "clip.gif", frames=48), begin=0.5, end=0.6))
    assert len(frames) == 24
    assert error is not None
    assert "unreadable from byte" in error


def test_damage_outside_the_window_is_none_of_its_business(tmp_path: Path) -> None:
    path = truncate(write_clip(tmp_path / "clip.mp4", frames=48, container_options=FAST_START), 0.6)
    with VideoDecoder(path, max_frames=12) as video:
        assert len(list(video)) == 12
    with VideoDecoder(path, end_s=0.5) as video:
        assert len(list(video)) == 12


def test_a_video_without_a_single_picture_is_an_input_error(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", container_options=FAST_START)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"mdat") + 4])
    with pytest.raises(InputError, match="holds no picture"):
        open_source(path)


def _a_text(path: Path) -> Path:
    path.write_text("This is no video.\n" * 50)
    return path


def _empty(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("missing.mp4", lambda path: path, "No such file"),
        ("text.mp4", _a_text, "is not a video that FFmpeg can read"),
        ("empty.mp4", _empty, "is empty"),
        ("sound.m4a", write_tone, r"has no video stream \(audio only\)"),
    ],
)
def test_a_source_that_cannot_be_used_says_so_in_one_line(name: str, make: Any, message: str, tmp_path: Path) -> None:
    path = make(tmp_path / name)
    with pytest.raises(InputError, match=message) as caught:
        open_source(path)
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_video_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        VideoDecoder(tmp_path)


def test_credentials_do_not_show() -> None:
    with pytest.raises(InputError) as caught:
        open_source("nosuchprotocol://user:hunter2@camera.example/stream?token=abc123&quality=high")
    assert "hunter2" not in str(caught.value)
    assert "abc123" not in str(caught.value)
    assert "nosuchprotocol://***@camera.example/stream?token=***&quality=high" in str(caught.value)
