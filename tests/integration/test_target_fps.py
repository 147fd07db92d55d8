"""A target frame rate through the command and a config: every frame has masks, and says where they come from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import av
import pytest

from tests.support.clips import disc_center, write_clip
from tests.support.command import Command

SIZE = (320, 192)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.mp4"
    write_clip(path, frames=40, size=SIZE, fps=30)
    return path


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def click() -> str:
    x, y = disc_center(0, SIZE)
    return f"{x:.0f},{y:.0f}"


def check_facts(rows: Sequence[dict[str, object]]) -> None:
    age = 0
    for row in rows:
        age = 0 if row["state"] == "tracked" else age + 1
        assert row["mask_age"] == age
        assert set(row["rate"]) == {"resolution", "model_on", "look_every", "reachable"}  # type: ignore[call-overload]
        assert len(row["objects"]) == 1  # type: ignore[arg-type]


def test_a_file_comes_out_whole_and_in_order_faster_than_full_quality_allows(
    sam3_stream_command: Command, clip: Path, tmp_path: Path
):
    masks, overlay = tmp_path / "masks.jsonl", tmp_path / "overlay.mp4"
    outcome = sam3_stream_command(
        "track", clip, "--click", click(), "--masks", masks, "--overlay", overlay, "--show-rate", "--target-fps", 5000
    )
    assert outcome.code == 0, outcome.err
    rows = rows_of(masks)
    assert [row["frame"] for row in rows] == list(range(40))
    check_facts(rows)
    assert any(row["state"] == "propagated" for row in rows)
    assert not rows[-1]["rate"]["reachable"]  # type: ignore[index, call-overload]
    assert "5000 fps is out of reach" in outcome.err
    assert "frames lost: none" in outcome.err
    with av.open(str(overlay)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 40


def test_without_a_target_the_masks_file_says_nothing_of_rates(
    sam3_stream_command: Command, clip: Path, tmp_path: Path
):
    masks = tmp_path / "masks.jsonl"
    assert sam3_stream_command("track", clip, "--model", "fake", "--click", click(), "--masks", masks).code == 0
    for row in rows_of(masks):
        assert set(row) == {"frame", "pts", "time_s", "state", "objects"}
        assert row["state"] == "tracked"


def test_a_file_played_as_a_live_source_comes_out_at_the_rate_asked_for(
    sam3_stream_command: Command, clip: Path, tmp_path: Path
):
    masks = tmp_path / "masks.jsonl"
    options = ("--model", "fake", "--realtime", "--target-fps", 10, "--max-latency-ms", 5000)
    outcome = sam3_stream_command("track", clip, "--click", click(), "--masks", masks, *options)
    assert outcome.code == 0, outcome.err
    rows = rows_of(masks)
    check_facts(rows)
    frames = [row["frame"] for row in rows]
    assert 11 <= len(frames) <= 16  # a third of 40, and what is let through before the source's own rate is known
    assert frames == sorted(set(frames))  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-skip", "2"], "max_skip limits what is done for a target_fps"),
        (["--target-fps", "0"], "target_fps"),
        (["--target-fps", "30", "--backward"], "target_fps does not go with backward"),
        (["--realtime", "--resume"], "source.realtime does not go with resume"),
        (["--target-fps", "30", "--give-up", "skip,quality"], "give_up"),
        (["--target-fps", "30", "--min-resolution", "4000"], "min_resolution 4000 leaves none"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    sam3_stream_command: Command, clip: Path, tmp_path: Path, options: list[str], message: str
):
    outcome = sam3_stream_command(
        "track", clip, "--model", "fake", "--click", click(), "--masks", tmp_path / "m.jsonl", *options
    )
    assert outcome.code == 2
    assert message in outcome.error_line
