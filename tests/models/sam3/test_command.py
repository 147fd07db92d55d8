"""The command with a SAM 3 checkpoint, from a video file to masks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from tests.models.sam3.conftest import SaveCheckpoint
from tests.support.clips import write_clip
from tests.support.command import Command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capfd)


def track(command: Command, clip: Path, folder: Path, out: Path, *prompts: str) -> list[dict]:
    done = command("track", clip, "--model", folder, "--device", "cpu", "--masks", out, "--quiet", *prompts)
    assert done.code == 0, done.err
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_video_and_clicks_give_masks_of_every_frame(checkpoint: SaveCheckpoint, command: Command, tmp_path: Path):
    clip = write_clip(tmp_path / "clip.mp4", frames=20, size=(160, 96))
    prompts = ["--click", "40,40#disc", "--click", "60,50,-#disc", "--box", "90,20,140,70@0.25#box"]
    _header, *frames = track(command, clip, checkpoint(), tmp_path / "masks.jsonl", *prompts)
    assert [frame["frame"] for frame in frames] == list(range(20))
    labels = [sorted(one["label"] for one in frame["objects"]) for frame in frames]
    assert any("disc" in names for names in labels)
    assert all("box" not in names for names in labels[:6])
    shown = [one for frame in frames for one in frame["objects"] if one.get("rle") or one.get("segmentation")]
    assert shown
    for one in shown:
        pixels = coco_mask.decode(one.get("rle") or one["segmentation"])
        assert pixels.shape == (96, 160)
        assert np.isin(pixels, (0, 1)).all()


def test_the_same_command_twice_gives_the_same_file(checkpoint: SaveCheckpoint, command: Command, tmp_path: Path):
    clip = write_clip(tmp_path / "clip.mp4", frames=8, size=(160, 96))
    for name in ("a.jsonl", "b.jsonl"):
        track(command, clip, checkpoint(), tmp_path / name, "--click", "40,40")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_an_overlay_is_written(checkpoint: SaveCheckpoint, command: Command, tmp_path: Path):
    clip = write_clip(tmp_path / "clip.mp4", frames=6, size=(160, 96))
    out = tmp_path / "out.mp4"
    done = command("track", clip, "--model", checkpoint(), "--device", "cpu", "--overlay", out, "--click", "40,40")
    assert done.code == 0, done.err
    assert out.stat().st_size > 0


def test_a_folder_that_holds_another_model_is_a_usage_error(command: Command, tmp_path: Path):
    clip = write_clip(tmp_path / "clip.mp4", frames=2)
    folder = tmp_path / "sam2"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "sam2_video"}')
    done = command("track", clip, "--model", folder, "--click", "40,40", "--masks", tmp_path / "masks.jsonl")
    assert done.code == 2
    assert "SAM 2, another model" in done.error_line
