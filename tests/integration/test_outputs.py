"""What comes out of whole runs of the command, on the demo clip and with every kind of output at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
from PIL import Image
from pycocotools import mask as coco_mask

from tests.support.clips import disc_mask, write_clip
from tests.support.command import start_command


def rows_of(masks: Path) -> list[dict]:
    return [json.loads(line) for line in masks.read_text().splitlines()[1:]]


def intersection_over_union(first: np.ndarray, second: np.ndarray) -> float:
    return float((first & second).sum() / (first | second).sum())


def test_the_demo_keeps_one_object_on_the_bunny(tmp_path, sam3_stream_command):
    """One click on the belly at 2 s; the bunny climbs out of its hole before, and stands to the end after."""
    outcome = sam3_stream_command("demo", "--out", tmp_path / "demo", "--quiet")
    assert outcome.code == 0, outcome.err
    rows = rows_of(tmp_path / "demo" / "bunny.jsonl")
    assert len(rows) == 132
    for row in rows:
        (bunny,) = row["objects"]
        assert (bunny["id"], bunny["label"], bunny["present"]) == (1, "bunny", True)
        mask = coco_mask.decode(bunny["rle"]).astype(bool)
        # The body stands left of the middle; the grass to the right and the sky never belong to it.
        assert mask[:, 700:].sum() < 0.02 * mask.sum()
        if row["time_s"] >= 1.8:
            assert mask[300:500, 380:520].mean() > 0.95, "the belly is in the mask"
            assert 60_000 < mask.sum() < 160_000
    with av.open(str(tmp_path / "demo" / "bunny.mp4")) as container:
        assert container.streams.video[0].frames == 132
        assert len(container.streams.audio) == 1


def test_every_output_at_once_and_lite_follows_the_disc(tmp_path, sam3_stream_command):
    frames, size = 24, (320, 240)
    clip = write_clip(tmp_path / "clip.mp4", frames=frames, size=size, audio=True)
    Image.fromarray(disc_mask(0, size).astype(np.uint8) * 255).save(tmp_path / "disc.png")
    outputs = {
        "--overlay": tmp_path / "overlay.mp4",
        "--masks": tmp_path / "masks.jsonl",
        "--davis": tmp_path / "davis",
        "--cutout": tmp_path / "cutout",
        "--redact": tmp_path / "redact.mp4",
    }
    arguments = [each for pair in outputs.items() for each in pair]
    outcome = sam3_stream_command("track", clip, "--mask", f"{tmp_path / 'disc.png'}#disc", *arguments)
    assert outcome.code == 0, outcome.err
    rows = rows_of(outputs["--masks"])
    truths = [disc_mask(number, size) for number in range(frames)]
    masks = [coco_mask.decode(row["objects"][0]["rle"]).astype(bool) for row in rows]
    overlaps = [intersection_over_union(mask, truth) for mask, truth in zip(masks, truths, strict=True)]
    assert np.mean(overlaps) > 0.8, overlaps
    indexed = [np.asarray(Image.open(path)) for path in sorted(outputs["--davis"].glob("*.png"))]
    cutouts = [np.asarray(Image.open(path)) for path in sorted(outputs["--cutout"].glob("*.png"))]
    for mask, index, cutout in zip(masks, indexed, cutouts, strict=True):
        assert np.array_equal(index == 1, mask)
        assert np.array_equal(cutout[..., 3] > 0, mask)
    for name in ("--overlay", "--redact"):
        with av.open(str(outputs[name])) as container:
            assert container.streams.video[0].frames == frames
            assert len(container.streams.audio) == 1


def test_backward_fills_the_frames_before_the_click(tmp_path, sam3_stream_command):
    size = (320, 240)
    clip = write_clip(tmp_path / "clip.mp4", frames=24, size=size)
    Image.fromarray(disc_mask(12, size).astype(np.uint8) * 255).save(tmp_path / "disc.png")
    masks = tmp_path / "masks.jsonl"
    arguments = ["track", clip, "--mask", f"{tmp_path / 'disc.png'}@0.5#disc", "--masks", masks, "--force"]
    assert sam3_stream_command(*arguments).code == 0
    assert [len(row["objects"]) for row in rows_of(masks)] == [0] * 12 + [1] * 12
    outcome = sam3_stream_command(*arguments, "--backward")
    assert outcome.code == 0, outcome.err
    rows = rows_of(masks)
    assert [row["frame"] for row in rows] == list(range(24))
    overlaps = [
        intersection_over_union(coco_mask.decode(row["objects"][0]["rle"]).astype(bool), disc_mask(number, size))
        for number, row in enumerate(rows)
    ]
    assert np.mean(overlaps) > 0.8, overlaps


def test_the_schema_describes_the_committed_config(sam3_stream_command):
    outcome = sam3_stream_command("schema")
    job = json.loads(outcome.out)["$defs"]["JobConfig"]
    assert {"source", "model", "prompts", "sinks"} <= set(job["properties"])
    config = Path(__file__).parents[2] / "configs" / "track_file.yaml"
    assert sam3_stream_command("check", config).code == 0


def test_help_names_every_option_of_track(sam3_stream_command):
    outcome = sam3_stream_command("track", "--help")
    assert outcome.code == 0
    for option in ("--click", "--box", "--mask", "--text", "--overlay", "--backward", "--resume", "--max-frames"):
        assert option in outcome.out


def test_the_pipeline_wired_by_hand_does_what_the_config_does(tmp_path):
    """`pipelines/track_file.py` and `configs/track_file.yaml`, as a user runs them, in an empty folder."""
    root = Path(__file__).parents[2]
    clip = write_clip(tmp_path / "clip.mp4", frames=12, size=(320, 240), audio=True)
    for folder in ("by_hand", "by_config"):
        (tmp_path / folder).mkdir()
    by_hand = [sys.executable, root / "pipelines" / "track_file.py", clip, "80,60"]
    done = subprocess.run(by_hand, cwd=tmp_path / "by_hand", capture_output=True, text=True, check=True)
    assert "1 objects" in done.stdout.splitlines()[-1]
    settings = [f"source.path={clip}", "prompts.0.x=80.0", "prompts.0.y=60.0"]
    overrides = [each for setting in settings for each in ("--set", setting)]
    process = start_command("run", root / "configs" / "track_file.yaml", *overrides, cwd=tmp_path / "by_config")
    _, err = process.communicate()
    assert process.returncode == 0, err
    for name in ("tracked.jsonl", "tracked.mp4"):
        assert (tmp_path / "by_hand" / name).read_bytes() == (tmp_path / "by_config" / name).read_bytes()
