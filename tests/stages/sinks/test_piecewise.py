"""A video made by segments is the video made in one go, however often its process was killed on the way."""

from __future__ import annotations

from fractions import Fraction

import av
import pytest

from sam3_stream.core.records import RunHeader, StreamInfo
from sam3_stream.stages.sinks import CutoutSink, DavisSink, MasksSink, OverlaySink
from sam3_stream.stages.sinks.piecewise import FRAMES_A_SEGMENT, PiecewiseSink
from tests.stages.sinks.tracked import tracked_frame
from tests.support.clips import read_number, write_clip

FRAMES = 130
INFO = StreamInfo(160, 120, Fraction(1, 12800), Fraction(25), FRAMES, FRAMES / 25)
HEADER = RunHeader("clip", "fake")
SIZE = (160, 120)


def frames(first, last, pts_of=lambda n: n * 512):
    return [tracked_frame(n, size=SIZE, pts=pts_of(n), time_base=INFO.time_base) for n in range(first, last)]


def overlay(tmp_path, **options):
    return PiecewiseSink("overlay", tmp_path / "out.mp4", OverlaySink, tmp_path / "segments", **options)


def write_all(sink, items, info=INFO):
    sink.open(info, HEADER)
    for each in items:
        sink.write(each)
    sink.close()


def video(path):
    with av.open(str(path)) as container:
        decoded = list(container.decode(video=0))
        return [(frame.pts * frame.time_base, read_number(frame.to_ndarray(format="rgb24"))) for frame in decoded]


def test_the_joined_video_has_every_frame_once_at_its_time(tmp_path):
    write_all(overlay(tmp_path), frames(0, FRAMES))
    assert video(tmp_path / "out.mp4") == [(Fraction(n, 25), n) for n in range(FRAMES)]
    assert not (tmp_path / "segments").exists()


def test_frames_keep_uneven_times_also_beyond_ten_seconds(tmp_path):
    def pts_of(n):
        return n * n * 200 + 1300

    write_all(overlay(tmp_path), frames(0, FRAMES, pts_of))
    write_all(OverlaySink(tmp_path / "whole.mp4"), frames(0, FRAMES, pts_of))
    assert video(tmp_path / "out.mp4") == video(tmp_path / "whole.mp4")
    assert [number for _, number in video(tmp_path / "out.mp4")] == list(range(FRAMES))


@pytest.mark.parametrize("killed_after", [0, 10, FRAMES_A_SEGMENT, 117])
def test_a_killed_process_is_taken_up_at_its_last_whole_segment(tmp_path, killed_after):
    killed = overlay(tmp_path)
    killed.open(INFO, HEADER)
    for each in frames(0, killed_after):
        killed.write(each)
    taken_up = overlay(tmp_path, force=True)
    assert taken_up.next_sequence == killed_after // FRAMES_A_SEGMENT * FRAMES_A_SEGMENT
    # Frames that another output needs again come again; those that are in a segment are passed over.
    write_all(taken_up, frames(0, FRAMES))
    assert video(tmp_path / "out.mp4") == [(Fraction(n, 25), n) for n in range(FRAMES)]


def test_the_sound_goes_along(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", frames=50, size=SIZE, audio=True)
    info = StreamInfo(160, 120, Fraction(1, 12800), Fraction(24), 50, 50 / 24, has_audio=True)
    write_all(overlay(tmp_path, audio_from=clip), frames(0, 50), info)
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert len(container.streams.audio) == 1
        assert sum(frame.samples for frame in container.decode(audio=0)) > 1.5 * 44100


def test_a_cutout_keeps_its_transparency(tmp_path):
    sink = PiecewiseSink("cutout", tmp_path / "out.webm", CutoutSink, tmp_path / "segments")
    write_all(sink, frames(0, 60))
    with av.open(str(tmp_path / "out.webm")) as container:
        container.streams.video[0].codec_context.thread_type = "NONE"
        packets = [packet for packet in container.demux(video=0) if packet.dts is not None]
    assert len(packets) == 60
    assert len([packet for packet in packets if list(packet.iter_sidedata())]) == 60, "alpha travels beside the colours"


def test_nothing_in_means_no_file(tmp_path):
    write_all(overlay(tmp_path), [])
    assert not (tmp_path / "out.mp4").exists()


@pytest.mark.parametrize("kind", [DavisSink, CutoutSink])
def test_a_folder_of_pictures_goes_on_where_it_ended(tmp_path, kind):
    first = kind(tmp_path / "out")
    write_all(first, frames(0, 5))
    before = (tmp_path / "out" / "00002.png").stat().st_mtime_ns
    second = kind(tmp_path / "out", resume=True)
    assert second.next_sequence == 5
    write_all(second, frames(5, 8))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{n:05d}.png" for n in range(8)]
    assert (tmp_path / "out" / "00002.png").stat().st_mtime_ns == before


def test_a_masks_file_says_where_to_go_on(tmp_path):
    write_all(MasksSink(tmp_path / "out.jsonl"), frames(0, 5))
    with (tmp_path / "out.jsonl").open("ab") as file:
        file.write(b'{"frame":5,"pts"')
    assert MasksSink(tmp_path / "out.jsonl", resume=True).next_sequence == 5
    assert MasksSink(tmp_path / "out.jsonl", force=True).next_sequence == 0
    assert MasksSink(tmp_path / "other.jsonl", resume=True).next_sequence == 0
