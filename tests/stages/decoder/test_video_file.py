"""Every frame of every kind of video comes out once, in order, upright and with its own time stamp."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.stream import Disposition

from sam3_stream.core.errors import DecodeError, InputError, UsageError
from sam3_stream.core.records import Frame
from sam3_stream.stages.decoder import Anchor, VideoDecoder, open_source
from tests.support.clips import CORNER_COLORS, draw_frame, read_corners, read_number, vfr_pts_ms, write_clip, write_tone
from tests.support.damage import lie_in_header

OPEN_GOP = {"qp": "4", "x264-params": "bframes=3:b-adapt=0:open-gop=1:keyint=12"}
INTRA_REFRESH = {"qp": "4", "x264-params": "intra-refresh=1:keyint=12"}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "constant rate": ("clip.mp4", {}),
    "variable rate": ("clip.mp4", {"vfr": True}),
    "b-frames": ("clip.mp4", {"b_frames": 3}),
    "open gop": ("clip.mp4", {"b_frames": 3, "codec_options": OPEN_GOP}),
    "turned 90": ("clip.mp4", {"rotation": 90}),
    "turned 180": ("clip.mp4", {"rotation": 180}),
    "turned 270": ("clip.mov", {"rotation": 270}),
    "mirrored": ("clip.mp4", {"mirrored": True}),
    "turned 90 and mirrored": ("clip.mp4", {"rotation": 90, "mirrored": True}),
    "odd size 4:2:0": ("clip.webm", {"size": (853, 481), "frames": 6}),
    "odd size 4:4:4": ("clip.mp4", {"size": (853, 481), "frames": 6, "pix_fmt": "yuv444p"}),
    "10-bit hevc": ("clip.mp4", {"codec": "libx265", "pix_fmt": "yuv420p10le"}),
    "hevc b-frames in ts": ("clip.ts", {"codec": "libx265", "b_frames": 2}),
    "full range": ("clip.mp4", {"full_range": True, "color_space": "bt709"}),
    "bt601": ("clip.mp4", {"color_space": "bt601"}),
    "bt709": ("clip.mp4", {"color_space": "bt709"}),
    "yuv444": ("clip.mp4", {"pix_fmt": "yuv444p"}),
    "audio": ("clip.mp4", {"audio": True}),
    "audio in mkv": ("clip.mkv", {"audio": True}),
    "one frame": ("clip.mp4", {"frames": 1}),
    "mjpeg avi": ("clip.avi", {}),
    "mpeg4 avi with b-frames": ("clip.avi", {"codec": "mpeg4", "b_frames": 2}),
    "h264 avi with b-frames": ("clip.avi", {"codec": "libx264", "b_frames": 2}),
    "webm": ("clip.webm", {}),
    "vp8": ("clip.webm", {"codec": "libvpx"}),
    "ts": ("clip.ts", {"b_frames": 2}),
    "mpeg2 program stream": ("clip.mpg", {"codec": "mpeg2video", "b_frames": 2}),
    "no time stamps": ("clip.h264", {"b_frames": 2}),
    "fragmented mp4": ("clip.mp4", {"container_options": {"movflags": "frag_keyframe+empty_moov"}}),
    "ffv1": ("clip.mkv", {"codec": "ffv1"}),
}


def frames_of(path: Path, **window: Any) -> list[Frame]:
    with VideoDecoder(path, **window) as video:
        return list(video)


@pytest.mark.parametrize("kind", KINDS)
def test_every_frame_comes_once_in_order_and_upright(kind: str, tmp_path: Path) -> None:
    name, how = KINDS[kind]
    path = write_clip(tmp_path / name, **how)
    size = how.get("size", (160, 120))
    with VideoDecoder(path) as video:
        info, frames = video.info, list(video)
    count = how.get("frames", 24)
    assert (info.width, info.height) == size
    assert [frame.sequence for frame in frames] == list(range(count))
    assert all(later.pts > earlier.pts for earlier, later in itertools.pairwise(frames))
    assert not any(frame.corrupt for frame in frames)
    assert {frame.rotation for frame in frames} == {how.get("rotation", 0)}
    for number, frame in enumerate(frames):
        image = frame.picture.to_ndarray()
        assert image.shape == (size[1], size[0], 3)
        assert (frame.width, frame.height) == size
        assert read_number(image) == number
        for corner, color in CORNER_COLORS.items():
            np.testing.assert_allclose(read_corners(image)[corner], color, atol=8, err_msg=corner)


def test_animated_gif(tmp_path: Path) -> None:
    frames = frames_of(write_clip(tmp_path / "clip.gif"))
    assert [read_number(frame.picture.to_ndarray()) for frame in frames] == list(range(24))
    corners = read_corners(frames[0].picture.to_ndarray())
    for corner, color in CORNER_COLORS.items():
        np.testing.assert_allclose(corners[corner], color, atol=60, err_msg=corner)  # 8 bits for the three channels


def test_a_frame_has_its_own_time_stamp(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mkv", vfr=True, b_frames=2, frames=20)
    with VideoDecoder(path) as video:
        assert video.info.time_base == Fraction(1, 1000)
        assert [frame.pts for frame in video] == vfr_pts_ms(20)


def test_time_stamps_need_not_begin_at_zero(tmp_path: Path) -> None:
    pts = list(range(3000, 3500, 50))
    frames = frames_of(write_clip(tmp_path / "clip.mkv", frames=10, pts=pts))
    assert [frame.pts for frame in frames] == pts
    assert [frame.sequence for frame in frames] == list(range(10))


@pytest.mark.parametrize("color_space", ["bt601", "bt709", None])
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("height", [120, 720])
def test_colors_follow_the_stream(color_space: str | None, full_range: bool, height: int, tmp_path: Path) -> None:
    size = (height * 4 // 3, height)
    path = write_clip(
        tmp_path / "clip.mp4", frames=1, size=size, color_space=color_space, full_range=full_range, pix_fmt="yuv444p"
    )
    image = frames_of(path)[0].picture.to_ndarray()
    np.testing.assert_allclose(image.astype(int), draw_frame(0, size).astype(int), atol=4)


def test_info_says_what_is_known_before_the_first_frame(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", size=(90, 160), rotation=90, fps=25, frames=50, audio=True)
    with VideoDecoder(path) as video:
        info = video.info
    assert (info.width, info.height, info.rotation) == (90, 160, 90)
    assert info.average_rate == 25
    assert info.frame_count == 50
    assert info.duration_s == pytest.approx(2.0)
    assert info.has_audio
    assert info.sample_aspect_ratio is None


@pytest.mark.parametrize(("rotation", "expected"), [(0, Fraction(4, 3)), (90, Fraction(3, 4))])
def test_pixels_need_not_be_square(rotation: int, expected: Fraction, tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", rotation=rotation, sample_aspect_ratio=Fraction(4, 3))
    with VideoDecoder(path) as video:
        assert (video.info.width, video.info.height) == (160, 120)
        assert video.info.sample_aspect_ratio == expected


@pytest.mark.parametrize(("name", "claim"), [("clip.avi", 5), ("clip.avi", 999), ("clip.mp4", 30)])
def test_a_header_that_lies_about_the_frame_count_is_no_damage(name: str, claim: int, tmp_path: Path) -> None:
    path = lie_in_header(write_clip(tmp_path / name, codec="mpeg4"), claim)
    assert [read_number(frame.picture.to_ndarray()) for frame in frames_of(path)] == list(range(24))


def test_gaps_in_an_avi_are_no_damage(tmp_path: Path) -> None:
    pts = [0, 1, 2, 8, 9, 30]
    path = write_clip(tmp_path / "clip.avi", codec="mpeg4", frames=6, pts=pts, time_base=Fraction(1, 24))
    assert [frame.pts for frame in frames_of(path)] == pts


def test_the_window_is_exact(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", b_frames=3, frames=60, fps=20, codec_options=OPEN_GOP)
    frames = frames_of(path, start_s=0.75, end_s=1.5)
    assert [read_number(frame.picture.to_ndarray()) for frame in frames] == list(range(15, 30))
    assert [frame.sequence for frame in frames] == list(range(15))
    assert frames[0].time_s == 0.75
    assert [frame.sequence for frame in frames_of(path, start_s=0.75, max_frames=4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("clip.mp4", {"b_frames": 3, "codec_options": OPEN_GOP}),
        ("clip.mp4", {"codec_options": INTRA_REFRESH}),
        ("clip.mp4", {"codec": "libx265", "b_frames": 3}),
        ("clip.mkv", {"b_frames": 3, "vfr": True}),
        ("clip.webm", {}),
        ("clip.ts", {"b_frames": 2}),
        ("clip.avi", {"codec": "mpeg4", "b_frames": 2}),
        ("clip.h264", {"b_frames": 2}),
        ("clip.gif", {}),
    ],
)
def test_starting_later_gives_the_very_same_frames(name: str, how: dict[str, Any], tmp_path: Path) -> None:
    path = write_clip(tmp_path / name, frames=50, **how)
    whole = frames_of(path)
    for number in (5, 13, 36, 49):
        later = whole[number:]
        anchor = Anchor(number, whole[number].pts)
        resumed = [frames_of(path, first_sequence=number), frames_of(path, first_sequence=number, anchor=anchor)]
        assert [[frame.sequence for frame in frames] for frames in resumed] == [[frame.sequence for frame in later]] * 2
        started = frames_of(path, start_s=whole[number].time_s)
        assert [frame.sequence for frame in started] == list(range(len(later)))
        for frames in (*resumed, started):
            assert [frame.pts for frame in frames] == [frame.pts for frame in later]
            for frame, expected in zip(frames, later, strict=True):
                np.testing.assert_array_equal(frame.picture.to_ndarray(), expected.picture.to_ndarray())


def test_an_anchor_that_is_not_in_the_stream_is_not_trusted(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mkv", frames=50)
    frames = frames_of(path, first_sequence=30, anchor=Anchor(30, 1251))
    assert [read_number(frame.picture.to_ndarray()) for frame in frames] == list(range(30, 50))


def test_an_empty_window_is_an_input_error(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4")
    with pytest.raises(InputError, match=r"no frame of .* from 5 s to the end; it runs to 0\.958 s"):
        frames_of(path, start_s=5)
    with pytest.raises(UsageError, match="must come after the start"):
        VideoDecoder(path, start_s=5, end_s=4)


def test_cover_art_is_no_video(tmp_path: Path) -> None:
    path = _with_cover_art(tmp_path, write_clip(tmp_path / "clip.mp4", audio=True))
    assert [read_number(frame.picture.to_ndarray()) for frame in frames_of(path)] == list(range(24))
    with pytest.raises(InputError, match="audio only"):
        VideoDecoder(_with_cover_art(tmp_path, write_tone(tmp_path / "song.m4a")))


@pytest.mark.parametrize("best_first", [True, False])
def test_the_best_of_several_video_streams_is_taken(best_first: bool, tmp_path: Path) -> None:
    clips = [write_clip(tmp_path / "large.mp4", size=(320, 240)), write_clip(tmp_path / "small.mp4", frames=12)]
    path = _remux(clips if best_first else clips[::-1], tmp_path / "both.ts")
    frames = frames_of(path)
    assert [read_number(frame.picture.to_ndarray()) for frame in frames] == list(range(24))
    assert (frames[0].width, frames[0].height) == (320, 240)


@pytest.mark.parametrize("how", [{}, {"b_frames": 3}, {"audio": True}])
def test_what_an_edit_list_cuts_off_is_neither_shown_nor_missed(how: dict[str, Any], tmp_path: Path) -> None:
    path = _remux([write_clip(tmp_path / "clip.mp4", frames=36, **how)], tmp_path / "cut.mp4", cut_s=Fraction(5, 24))
    frames = frames_of(path)
    assert [read_number(frame.picture.to_ndarray()) for frame in frames] == list(range(5, 36))
    assert [frame.pts for frame in frames_of(path, start_s=0.3)] == [frame.pts for frame in frames[8:]]


@pytest.mark.data
def test_a_real_video(bedroom_video: Path) -> None:
    with av.open(str(bedroom_video)) as container:
        expected = [frame.pts for frame in container.decode(video=0)]
    assert [frame.pts for frame in frames_of(bedroom_video)] == expected


def test_a_change_of_size_ends_the_stream_with_an_error_that_says_where(tmp_path: Path) -> None:
    first = write_clip(tmp_path / "first.ts", frames=36)
    second = write_clip(tmp_path / "second.ts", frames=12, size=(320, 240))
    joined = tmp_path / "joined.ts"
    joined.write_bytes(first.read_bytes() + second.read_bytes())
    frames: list[Frame] = []
    with (
        pytest.raises(DecodeError, match=r"from 160x120 to 320x240 at frame 36 \(1\.5"),
        VideoDecoder(joined) as video,
    ):
        frames.extend(video)
    assert len(frames) == 36


def test_joined_files_keep_time_going_forward(tmp_path: Path) -> None:
    part = write_clip(tmp_path / "part.ts", frames=48).read_bytes()
    (tmp_path / "joined.ts").write_bytes(part * 2)
    frames: list[Frame] = []
    with (
        VideoDecoder(tmp_path / "joined.ts") as video,
        pytest.raises(DecodeError, match="1 packet incomplete; 96 frames"),
    ):
        frames.extend(video)  # the packet counters do not go on where they were, which is what a lost packet looks like
    assert [read_number(frame.picture.to_ndarray()) for frame in frames] == [*range(48)] * 2
    steps = {later.pts - earlier.pts for earlier, later in itertools.pairwise(frames)}
    assert steps == {90000 // 24}


def test_a_name_means_nothing_to_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_clip(tmp_path / "clip.mp4").rename(tmp_path / "rtsp:%03d -i clip.mp4")
    assert len(frames_of(Path("rtsp:%03d -i clip.mp4"))) == 24


def test_close_may_come_at_any_time_and_twice(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4")
    video = open_source(path)
    first = next(iter(video))
    video.close()
    video.close()
    assert read_number(first.picture.to_ndarray()) == 0
    assert list(video) == []


def _remux(clips: list[Path], target: Path, cut_s: Fraction = Fraction(0)) -> Path:
    """Put the streams of several clips into one file, time shifted so that `cut_s` lies before its beginning."""
    with av.open(str(target), "w") as output:
        packets = []
        for clip in clips:
            source = av.open(str(clip))
            copies = {stream: output.add_stream_from_template(stream) for stream in source.streams}
            for packet in source.demux():
                if packet.dts is not None and packet.pts is not None:
                    shift = round(cut_s / packet.time_base)
                    packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
                    packets.append((packet.dts * packet.time_base, packet, copies[packet.stream]))
        for _, packet, copy in sorted(packets, key=lambda each: each[0]):
            packet.stream = copy
            output.mux(packet)
    return target


def _with_cover_art(folder: Path, clip: Path) -> Path:
    target = folder / f"with_cover_{clip.name}"
    cover = av.VideoFrame.from_ndarray(draw_frame(4095, (640, 480)), "rgb24")
    with av.open(str(clip)) as source, av.open(str(target), "w", format="mp4") as output:
        art = output.add_stream("mjpeg", rate=1)
        art.width, art.height, art.pix_fmt = 640, 480, "yuvj420p"
        art.disposition = Disposition.attached_pic
        copies = {stream: output.add_stream_from_template(stream) for stream in source.streams}
        output.mux(art.encode(cover) + art.encode(None))
        for packet in source.demux():
            if packet.dts is not None:
                packet.stream = copies[packet.stream]
                output.mux(packet)
    return target
