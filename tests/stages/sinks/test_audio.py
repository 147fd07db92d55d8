"""The sound of the input: copied where browsers take it, else AAC, in step with the picture and cut to its window."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from sam3_stream.core.records import StreamInfo
from sam3_stream.stages.sinks.overlay import OverlaySink
from tests.stages.sinks.mp4 import Sound, read_sound, read_video
from tests.stages.sinks.tracked import HEADER, SIZE, tracked_frame
from tests.support.clips import write_clip

TONE_STARTS_S = 1.0
RATE = 48000


def write_beep(path: Path, codec: str, *, duration_s: float = 3.0, layout: str = "mono", rate: int = RATE) -> Path:
    """A video of 25 frames a second whose sound is silent for one second, and a 440 Hz tone from then on."""
    with av.open(str(path), "w") as container:
        picture = container.add_stream("mpeg4", rate=25)
        picture.width, picture.height = SIZE
        sound = container.add_stream(codec, rate=rate, layout=layout)
        for number in range(round(duration_s * 25)):
            frame = av.VideoFrame(*SIZE, "yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(picture.encode(frame))
        container.mux(picture.encode(None))
        times_s = np.arange(round(duration_s * rate)) / rate
        samples = np.where(times_s >= TONE_STARTS_S, 0.5 * np.sin(2 * np.pi * 440 * times_s), 0).astype(np.float32)
        channels = np.tile(samples, (len(av.AudioLayout(layout).channels), 1))
        for start in range(0, len(samples), 960):
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(channels[:, start : start + 960]), format="fltp", layout=layout
            )
            frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
            container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    return path


def overlay(path: Path, source: Path, *, first: int = 0, frames: int = 75, start_s: float | None = None) -> Path:
    info = StreamInfo(*SIZE, Fraction(1, 25), Fraction(25), frame_count=75, duration_s=3.0, has_audio=True)
    sink = OverlaySink(path, audio_from=source, start_s=start_s)
    sink.open(info, HEADER)
    for number in range(first, first + frames):
        sink.write(tracked_frame(number, objects=()))
    sink.close()
    return path


def tone_start_s(sound: Sound) -> float:
    loud = np.flatnonzero(abs(sound.samples) > 0.1)
    return sound.start_s + float(loud[0]) / sound.rate


def heard(path: Path) -> Sound:
    sound = read_sound(path)
    assert sound is not None
    assert 430 < sound.pitch_hz() < 450
    return sound


@pytest.mark.parametrize(
    ("name", "codec", "expected"),
    [
        ("in.mp4", "aac", "aac"),
        ("in.ts", "aac", "aac"),
        ("in.mkv", "aac", "aac"),
        ("in.mp4", "libmp3lame", "mp3"),
        ("in.mkv", "libopus", "opus"),
        ("in.mkv", "flac", "flac"),
        ("in.mkv", "pcm_s16le", "aac"),
        ("in.avi", "pcm_s16le", "aac"),
        ("in.mkv", "ac3", "aac"),
        ("in.mpg", "mp2", "aac"),
    ],
)
def test_every_kind_of_sound_is_kept_in_step(tmp_path: Path, name: str, codec: str, expected: str) -> None:
    source = write_beep(tmp_path / name, codec)
    with av.open(str(source)) as container:
        offset_s = float(container.streams.video[0].start_time * container.streams.video[0].time_base)
    shift = round(offset_s * 25)  # a transport stream does not begin at 0, and neither do its frames
    sound = heard(overlay(tmp_path / "out.mp4", source, first=shift))
    assert sound.codec.startswith(expected)
    assert tone_start_s(sound) == pytest.approx(tone_start_s(heard(source)), abs=0.03)
    assert sound.end_s == pytest.approx(3 + offset_s, abs=0.1)
    assert read_video(tmp_path / "out.mp4").header_frames == 75


@pytest.mark.parametrize("codec", ["aac", "pcm_s16le"])
def test_a_window_cuts_the_sound_with_the_picture(tmp_path: Path, codec: str) -> None:
    source = write_beep(tmp_path / "in.mkv", codec)
    out = overlay(tmp_path / "out.mp4", source, first=15, frames=40, start_s=0.6)
    sound = heard(out)
    assert tone_start_s(sound) == pytest.approx(0.4, abs=0.03)
    assert sound.start_s == pytest.approx(0, abs=0.03)
    assert sound.end_s == pytest.approx(1.6, abs=0.05)


def test_a_run_that_ends_early_ends_its_sound(tmp_path: Path) -> None:
    source = write_beep(tmp_path / "in.mp4", "aac")
    assert heard(overlay(tmp_path / "out.mp4", source, frames=40)).end_s == pytest.approx(1.6, abs=0.05)


def test_sound_longer_than_the_picture_is_kept_whole(tmp_path: Path) -> None:
    source = write_beep(tmp_path / "in.mp4", "aac", duration_s=5)
    assert heard(overlay(tmp_path / "out.mp4", source, frames=75)).end_s == pytest.approx(5, abs=0.05)


def test_many_channels_and_odd_rates_become_stereo_aac(tmp_path: Path) -> None:
    source = write_beep(tmp_path / "in.mkv", "flac", layout="5.1", rate=RATE)
    assert heard(overlay(tmp_path / "flac.mp4", source)).codec == "flac"
    source = write_beep(tmp_path / "pcm.mkv", "pcm_s16le", layout="5.1", rate=37800)
    out = overlay(tmp_path / "out.mp4", source)
    assert heard(out).end_s == pytest.approx(3, abs=0.1)
    with av.open(str(out)) as container:
        codec = container.streams.audio[0].codec_context
        assert (codec.name, codec.sample_rate, codec.layout.name) == ("aac", 48000, "stereo")


def test_the_sound_of_a_real_clip_is_copied_bit_for_bit(tmp_path: Path) -> None:
    source = write_clip(tmp_path / "in.mp4", frames=75, fps=25, audio=True)

    def packets(path: Path) -> list[bytes]:
        with av.open(str(path)) as container:
            return [bytes(packet) for packet in container.demux(audio=0) if packet.size]

    assert packets(overlay(tmp_path / "out.mp4", source)) == packets(source)


def test_sound_that_cannot_be_read_is_left_out_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in.mp4").write_text("no video")
    out = overlay(tmp_path / "out.mp4", tmp_path / "in.mp4")
    assert read_sound(out) is None
    assert len(read_video(out).images) == 75
    assert "is left out" in caplog.text
