"""Every frame in gives one record out, with its own timestamp, whatever the video."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av
import pytest
from pycocotools import mask as coco_mask

from sam3_stream.core.records import ImageArray
from tests.support.clips import read_number, vfr_pts_ms, write_clip, write_images

CLIPS = {
    "constant rate": {},
    "variable rate": {"vfr": True},
    "B-frames": {"b_frames": 2},
    "rotated 90": {"rotation": 90},
    "rotated 180": {"rotation": 180},
    "rotated 270": {"rotation": 270},
    "odd size": {"size": (213, 121), "pix_fmt": "yuv444p"},
    "10-bit HEVC": {"codec": "libx265", "pix_fmt": "yuv420p10le"},
    "full range": {"full_range": True},
    "BT.601": {"color_space": "bt601"},
    "BT.709": {"color_space": "bt709"},
    "yuv444": {"pix_fmt": "yuv444p"},
    "sound": {"audio": True},
    "one frame": {"frames": 1},
    "MJPEG AVI": {"suffix": ".avi"},
    "WebM": {"suffix": ".webm"},
    "GIF": {"suffix": ".gif", "fps": 20},
}


def read_video(path: Path) -> tuple[list[float], list[ImageArray]]:
    """Times in seconds and RGB pictures of a video."""
    with av.open(str(path)) as container:
        frames = [(float(frame.time), frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    return [time_s for time_s, _ in frames], [picture for _, picture in frames]


def read_rows(path: Path) -> tuple[dict, list[dict]]:
    header, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    return header, rows


@pytest.mark.parametrize("kind", CLIPS)
def test_one_record_a_frame(kind, tmp_path, sam3_stream_command):
    options = dict(CLIPS[kind])
    clip = tmp_path / f"clip{options.pop('suffix', '.mp4')}"
    size = options.get("size", (160, 120))
    frames = options.setdefault("frames", 12)
    write_clip(clip, **options)
    overlay, masks = tmp_path / "out.mp4", tmp_path / "out.jsonl"

    outcome = sam3_stream_command(
        "track", clip, "--model", "fake", "--click", "40,40", "--overlay", overlay, "--masks", masks
    )
    assert outcome.code == 0, outcome.err

    header, rows = read_rows(masks)
    assert (header["width"], header["height"]) == size, "sizes are those of the displayed picture"
    assert [row["frame"] for row in rows] == list(range(frames))
    time_base = Fraction(*header["time_base"])
    times_s = [float(row["pts"] * time_base) for row in rows]
    fps = options.get("fps", 24)
    expected_s = [ms / 1000 for ms in vfr_pts_ms(frames)] if options.get("vfr") else [n / fps for n in range(frames)]
    assert [time_s - times_s[0] for time_s in times_s] == pytest.approx(expected_s, abs=0.0011)
    assert [row["time_s"] for row in rows] == pytest.approx(times_s, abs=1e-6)
    for row in rows:
        (tracked,) = row["objects"]
        assert coco_mask.decode(tracked["rle"]).shape == (size[1], size[0])

    overlay_s, pictures = read_video(overlay)
    assert [time_s - overlay_s[0] for time_s in overlay_s] == pytest.approx(expected_s, abs=0.0011)
    padded = (size[0] + size[0] % 2, size[1] + size[1] % 2)
    assert {(picture.shape[1], picture.shape[0]) for picture in pictures} == {padded}
    assert [read_number(picture[: size[1], : size[0]]) for picture in pictures] == list(range(frames))


def test_a_folder_of_pngs(tmp_path, sam3_stream_command):
    folder = tmp_path / "pictures"
    write_images(folder, frames=7)
    overlay, masks = tmp_path / "out.mp4", tmp_path / "out.jsonl"
    outcome = sam3_stream_command(
        "track", folder, "--model", "fake", "--box", "20,20,60,70#thing", "--overlay", overlay, "--masks", masks
    )
    assert outcome.code == 0, outcome.err
    _, rows = read_rows(masks)
    assert [row["frame"] for row in rows] == list(range(7))
    assert {row["objects"][0]["label"] for row in rows} == {"thing"}
    assert [read_number(picture) for picture in read_video(overlay)[1]] == list(range(7))


def test_a_window_of_the_video(tmp_path, sam3_stream_command):
    clip = write_clip(tmp_path / "clip.mp4", frames=48)
    masks = tmp_path / "out.jsonl"
    arguments = ["track", clip, "--model", "fake", "--click", "40,40", "--masks", masks, "--force"]
    assert sam3_stream_command(*arguments, "--start", 0.5, "--end", 1).code == 0
    assert [round(row["time_s"] * 24) for row in read_rows(masks)[1]] == list(range(12, 24))
    assert sam3_stream_command(*arguments, "--start", 0.5, "--max-frames", 3).code == 0
    assert [round(row["time_s"] * 24) for row in read_rows(masks)[1]] == [12, 13, 14]


def test_the_same_command_twice_gives_the_same_masks_file(tmp_path, sam3_stream_command):
    clip = write_clip(tmp_path / "clip.mp4", frames=12)
    for name in ("a.jsonl", "b.jsonl"):
        outcome = sam3_stream_command(
            "track", clip, "--click", "80,40", "--box", "9,9,70,70", "--masks", tmp_path / name
        )
        assert outcome.code == 0, outcome.err
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_times_count_from_the_first_frame_whatever_its_time_stamp(tmp_path, sam3_stream_command):
    """A recording of a camera starts at any time stamp; players, and so users, count from its first frame."""
    clip = write_clip(tmp_path / "clip.ts", frames=24, pts=range(1000, 25_000, 1000), time_base=Fraction(1, 1000))
    masks = tmp_path / "out.jsonl"
    arguments = ["track", clip, "--model", "fake", "--masks", masks, "--force"]
    assert sam3_stream_command(*arguments, "--click", "40,40@5").code == 0
    rows = read_rows(masks)[1]
    assert [row["time_s"] for row in rows] == pytest.approx(range(24))
    assert [len(row["objects"]) for row in rows] == [0] * 5 + [1] * 19
    assert sam3_stream_command(*arguments, "--click", "40,40", "--start", 5, "--end", 8).code == 0
    assert [row["time_s"] for row in read_rows(masks)[1]] == pytest.approx([5, 6, 7])
