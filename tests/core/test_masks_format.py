"""The masks file holds what was tracked, for this program and for every tool that reads COCO run lengths."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from sam3_stream.core.errors import InputError
from sam3_stream.core.masks_format import (
    MasksHeader,
    decode_rle,
    describe_prompt,
    encode_rle,
    read_masks,
    row_from_line,
    row_to_line,
)
from sam3_stream.core.prompts import BoxPrompt, ExemplarPrompt, MaskPrompt, PointPrompt, TextPrompt
from sam3_stream.core.records import RateFacts, RunHeader, StreamInfo, TrackedFrame
from tests.stages.sinks.tracked import object_of, rectangle, tracked_frame
from tests.support.frames import blank_frame


def write_file(path: Path, *lines: bytes) -> Path:
    header = MasksHeader.of(StreamInfo(160, 120, Fraction(1, 25)), RunHeader("clip.mp4", "lite"))
    path.write_bytes(b"".join([header.to_line(), *lines]))
    return path


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_any_mask_survives_the_round_trip_through_json(width: int, height: int, seed: int, density: float) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < density
    rle = json.loads(json.dumps(encode_rle(mask)))
    assert np.array_equal(decode_rle(rle), mask)
    assert np.array_equal(coco_mask.decode(rle).astype(bool), mask)


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    frames = [
        tracked_frame(0, pts=7),
        tracked_frame(1, pts=9, objects=()),
        tracked_frame(
            2,
            pts=10,
            objects=(object_of(rectangle(0, 0, 0, 0), 2, present=False), object_of(rectangle(3, 4, 160, 120), 5)),
        ),
    ]
    reader = read_masks(write_file(tmp_path / "masks.jsonl", *map(row_to_line, frames)))
    assert reader.header == MasksHeader(RunHeader("clip.mp4", "lite"), 160, 120, Fraction(1, 25))
    rows = list(reader)
    assert [(row.sequence, row.pts, row.state) for row in rows] == [
        (0, 7, "tracked"),
        (1, 9, "tracked"),
        (2, 10, "tracked"),
    ]
    for row, tracked in zip(rows, frames, strict=True):
        assert len(row.objects) == len(tracked.objects)
        for read, written in zip(row.objects, tracked.objects, strict=True):
            assert np.array_equal(read.mask, written.mask)
            assert (read.object_id, read.label, read.prompt_id, read.score, read.present) == (
                written.object_id,
                written.label,
                written.prompt_id,
                written.score,
                written.present,
            )
    assert not reader.ends_in_cut_line


def test_a_row_reads_as_documented() -> None:
    absent, there = object_of(rectangle(0, 0, 0, 0), 1, present=False), object_of(rectangle(10, 20, 40, 60), 2)
    row = json.loads(row_to_line(tracked_frame(3, pts=75, time_base=Fraction(1, 600), objects=(absent, there))))
    assert list(row) == ["frame", "pts", "time_s", "state", "objects"]
    assert (row["frame"], row["pts"], row["time_s"], row["state"]) == (3, 75, 0.125, "tracked")
    assert [each["id"] for each in row["objects"]] == [1, 2]
    assert (row["objects"][0]["present"], row["objects"][0]["box"]) == (False, None)
    assert coco_mask.area(row["objects"][0]["rle"]) == 0
    assert row["objects"][1]["box"] == [10, 20, 30, 40]
    assert coco_mask.decode(row["objects"][1]["rle"]).shape == (120, 160)


def test_a_cut_last_line_is_left_out_and_said(tmp_path: Path) -> None:
    second = row_to_line(tracked_frame(1))
    path = write_file(tmp_path / "masks.jsonl", row_to_line(tracked_frame(0)), second[: len(second) // 2])
    reader = read_masks(path)
    assert [row.sequence for row in reader] == [0]
    assert reader.ends_in_cut_line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a masks file"),
        (b"hello\n", "not a masks file"),
        (b"\x00\xff\xfe\n", "not a masks file"),
        (b'{"format":"coco","version":1}\n', "not a masks file"),
        (b'{"format":"sam3_stream.masks","version":2}\n', "version 2"),
    ],
)
def test_what_is_not_a_masks_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "masks.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_masks(path)


def test_a_missing_file_and_a_broken_row_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*none\.jsonl: No such file"):
        read_masks(tmp_path / "none.jsonl")
    path = write_file(tmp_path / "masks.jsonl", row_to_line(tracked_frame(0)), b'{"frame":1}\n')
    with pytest.raises(InputError, match="line 3 "):
        list(read_masks(path))


def test_prompts_are_described_in_json() -> None:
    mask = rectangle(1, 2, 30, 40)
    prompts = [
        PointPrompt(x=3, y=4.5, positive=False, name="dog", time_s=1.5),
        BoxPrompt(x0=1, y0=2, x1=3, y1=4),
        TextPrompt(text="a cat"),
        ExemplarPrompt(boxes_xyxy=((1, 2, 3, 4),), positive=(True,)),
        MaskPrompt(mask=mask),
    ]
    described = json.loads(json.dumps([describe_prompt(prompt) for prompt in prompts]))
    assert described[0] == {"type": "click", "x": 3, "y": 4.5, "positive": False, "time_s": 1.5, "name": "dog"}
    assert [each["type"] for each in described] == ["click", "box", "text", "exemplars", "mask"]
    assert np.array_equal(decode_rle(described[4]["rle"]), mask)


def test_a_row_says_what_rate_control_did_and_other_rows_say_nothing_of_it():
    frame = blank_frame(3)
    plain = TrackedFrame(frame, resolution=(32, 24))
    assert b"rate" not in row_to_line(plain)
    assert b"age" not in row_to_line(plain)
    facts = RateFacts((320, 192), tracked=1, of=3, look_every=2, reachable=False)
    controlled = TrackedFrame(frame, state="propagated", mask_age=2, rate=facts)
    row = row_from_line(row_to_line(controlled))
    assert (row.state, row.mask_age, row.rate) == ("propagated", 2, facts)
    assert row_from_line(row_to_line(plain)).rate is None
