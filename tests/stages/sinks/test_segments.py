"""An endless output stays within its limits, and every file of it can be used, whatever happens."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import pytest

from sam3_stream.core.clock import SimulatedClock
from sam3_stream.core.errors import OutputError, SinkError
from sam3_stream.core.masks_format import read_masks
from sam3_stream.core.stream_status import SourceStatus
from sam3_stream.stages.sinks import MasksSink, OverlaySink, SegmentsSink
from tests.stages.sinks.tracked import HEADER, disc_object, stream_info, tracked_frame

LIVE = Fraction(1, 90_000)


def live_frame(number: int, *, size: tuple[int, int] = (160, 120), discontinuity: bool = False):
    """Frame `number` of a 25 fps stream that began a while ago."""
    tracked = tracked_frame(number, size=size, pts=number * 3600, time_base=LIVE, objects=(disc_object(number, size),))
    frame = replace(tracked.frame, capture_time_s=1_800_000_000 + number / 25, discontinuity=discontinuity)
    return replace(tracked, frame=frame)


def masks_segments(folder: Path, **options) -> SegmentsSink:
    return SegmentsSink(folder, ".jsonl", MasksSink, **options)


def run(sink: SegmentsSink, frames, clock: SimulatedClock | None = None) -> None:
    sink.open(stream_info(time_base=LIVE), HEADER)
    for frame in frames:
        if clock is not None:
            clock.sleep(0.04)
        sink.write(frame)
    sink.close()


def rows(path: Path) -> list[int]:
    return [row.sequence for row in read_masks(path)]


def test_masks_are_cut_into_files_and_no_frame_is_lost_or_doubled(tmp_path):
    run(masks_segments(tmp_path / "masks", segment_seconds=2.0), map(live_frame, range(120)))
    files = sorted((tmp_path / "masks").iterdir())
    assert [path.name for path in files] == [
        "20270115T080000Z-000001.jsonl",
        "20270115T080002Z-000002.jsonl",
        "20270115T080004Z-000003.jsonl",
    ]
    assert [rows(path) for path in files] == [list(range(50)), list(range(50, 100)), list(range(100, 120))]


def test_overlay_files_each_begin_at_zero_and_play(tmp_path):
    sink = SegmentsSink(tmp_path, ".mp4", lambda path: OverlaySink(path, start_s=0.0), segment_seconds=1.0)
    run(sink, map(live_frame, range(30, 80)))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    for path in files:
        with av.open(str(path)) as container:
            times = [frame.time for frame in container.decode(video=0)]
        assert times == pytest.approx([n / 25 for n in range(25)], abs=0.002)


def test_a_file_that_was_never_finished_plays_up_to_the_last_second(tmp_path):
    sink = SegmentsSink(tmp_path, ".mp4", lambda path: OverlaySink(path, start_s=0.0), segment_seconds=60.0)
    sink.open(stream_info(time_base=LIVE), HEADER)
    for number in range(60):
        sink.write(live_frame(number))
    copy = tmp_path / "as_if_killed.mp4"
    shutil.copy(next(tmp_path.glob("*.mp4")), copy)
    sink.close()
    with av.open(str(copy)) as container:
        assert sum(1 for _ in container.decode(video=0)) >= 60 - 25


def test_only_the_newest_files_are_kept(tmp_path):
    other = tmp_path / "notes.jsonl"
    other.write_text("mine")
    clock = SimulatedClock()
    run(masks_segments(tmp_path, segment_seconds=1.0, keep=3, clock=clock), map(live_frame, range(250)), clock)
    files = sorted(set(tmp_path.iterdir()) - {other})
    assert [rows(path)[0] for path in files] == [175, 200, 225]
    assert other.read_text() == "mine"


def test_all_files_together_stay_below_the_limit(tmp_path):
    clock = SimulatedClock()
    sink = masks_segments(tmp_path, segment_seconds=1.0, max_bytes=60_000, clock=clock)
    sink.open(stream_info(time_base=LIVE), HEADER)
    for number in range(500):
        clock.sleep(0.04)
        sink.write(live_frame(number))
        # What a second adds may come on top, because room is made once a second.
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 60_000 + 15_000
    sink.close()
    assert len(list(tmp_path.iterdir())) > 2


def test_a_disk_that_is_nearly_full_keeps_its_last_bytes(tmp_path, monkeypatch):
    free = [10_000_000]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, free[0]))
    clock = SimulatedClock()
    sink = masks_segments(tmp_path, segment_seconds=1.0, min_free_bytes=1_000_000, clock=clock)
    sink.open(stream_info(time_base=LIVE), HEADER)
    for number in range(300):
        clock.sleep(0.04)
        free[0] = 500_000 if 100 <= number < 200 else 10_000_000
        sink.write(live_frame(number))
    sink.close()
    written = sorted(number for path in tmp_path.iterdir() for number in rows(path))
    assert not set(written) & set(range(130, 200))
    assert set(range(226, 300)) <= set(written)
    assert sink.lost_frames >= 70


def test_a_sink_that_breaks_is_tried_again_and_the_stream_goes_on(tmp_path):
    clock = SimulatedClock()
    broken = [True]

    class Breaking(MasksSink):
        def write(self, tracked):
            if broken[0]:
                raise SinkError(f"cannot write {self.path}: {errno.errorcode[errno.ENOSPC]}")
            super().write(tracked)

    sink = SegmentsSink(tmp_path, ".jsonl", Breaking, segment_seconds=100.0, clock=clock)
    sink.open(stream_info(time_base=LIVE), HEADER)
    for number in range(500):
        clock.sleep(0.04)
        broken[0] = number < 100
        sink.write(live_frame(number))
    sink.close()
    written = rows(max(tmp_path.iterdir()))
    assert written == list(range(written[0], 500))
    assert 100 <= written[0] <= 100 + 130
    assert sink.lost_frames == written[0]


def test_another_size_and_a_break_in_time_begin_another_file(tmp_path):
    frames = [
        *map(live_frame, range(10)),
        *(live_frame(number, size=(80, 60)) for number in range(10, 20)),
        live_frame(20, size=(80, 60), discontinuity=True),
        live_frame(21, size=(80, 60)),
    ]
    run(masks_segments(tmp_path), frames)
    headers = [read_masks(path).header for path in sorted(tmp_path.iterdir())]
    assert [(header.width, header.height) for header in headers] == [(160, 120), (80, 60), (80, 60)]


def test_when_the_stream_is_lost_the_file_is_finished(tmp_path):
    sink = SegmentsSink(tmp_path, ".mp4", lambda path: OverlaySink(path, start_s=0.0))
    sink.open(stream_info(time_base=LIVE), HEADER)
    for number in range(30):
        sink.write(live_frame(number))
    sink.on_status(SourceStatus("stalled"))
    sink.write(live_frame(30))
    sink.on_status(SourceStatus("reconnecting", "the camera is off"))
    with av.open(str(next(tmp_path.iterdir()))) as container:
        assert container.streams.video[0].frames == 31
    sink.write(live_frame(100))
    sink.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_folders_are_made_and_a_place_that_cannot_be_is_named_before_any_work(tmp_path):
    sink = masks_segments(tmp_path / "a" / "b" / "masks")
    sink.check()
    assert not (tmp_path / "a").exists()
    run(sink, [live_frame(0)])
    assert len(list((tmp_path / "a" / "b" / "masks").iterdir())) == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file, expected a folder"):
        masks_segments(tmp_path / "file" / "masks").check()


def test_numbers_go_on_after_a_restart_of_the_process(tmp_path):
    run(masks_segments(tmp_path), map(live_frame, range(5)))
    run(masks_segments(tmp_path), map(live_frame, range(5, 9)))
    assert [path.name[-12:] for path in sorted(tmp_path.iterdir())] == ["000001.jsonl", "000002.jsonl"]
