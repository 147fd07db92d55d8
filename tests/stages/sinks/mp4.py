"""Looking into finished and unfinished MP4 files the way a player would."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from sam3_stream.core.records import ImageArray


@dataclass(frozen=True)
class Video:
    """What a player finds in a file."""

    times_s: list[Fraction]
    images: list[ImageArray]
    header_frames: int
    duration_s: Fraction
    container_duration_s: float
    size: tuple[int, int]


def read_video(path: Path, *, lenient: bool = False) -> Video:
    """Decode a file; `lenient` stops at the first error, as a player does that plays what it can."""
    images, times_s = [], []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        with contextlib.suppress(av.FFmpegError) if lenient else contextlib.nullcontext():
            for frame in container.decode(stream):
                images.append(frame.to_ndarray(format="rgb24"))
                times_s.append(frame.pts * frame.time_base)
        return Video(
            times_s,
            images,
            stream.frames,
            (stream.duration or 0) * stream.time_base,
            (container.duration or 0) / av.time_base,
            (stream.width, stream.height),
        )


@dataclass(frozen=True)
class Sound:
    """The decoded sound of a file."""

    codec: str
    start_s: float
    end_s: float
    samples: np.ndarray
    rate: int

    def pitch_hz(self) -> float:
        """The loudest frequency."""
        spectrum = np.abs(np.fft.rfft(self.samples * np.hanning(len(self.samples))))
        return float(np.argmax(spectrum) * self.rate / len(self.samples))


def read_sound(path: Path) -> Sound | None:
    with av.open(str(path)) as container:
        if not container.streams.audio:
            return None
        stream = container.streams.audio[0]
        frames = list(container.decode(stream))
        samples = np.concatenate([_first_channel(frame) for frame in frames])
        last = frames[-1]
        return Sound(
            stream.codec_context.name,
            float(frames[0].pts * frames[0].time_base),
            float(last.pts * last.time_base) + last.samples / last.sample_rate,
            samples.astype(np.float64),
            last.sample_rate,
        )


def _first_channel(frame: av.AudioFrame) -> np.ndarray:
    samples = frame.to_ndarray()
    return samples[0] if frame.format.is_planar else samples[0, :: len(frame.layout.channels)]
