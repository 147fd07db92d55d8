"""The sound of the input, copied where an MP4 in a browser takes it, else made AAC."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import av
from av.container import InputContainer, OutputContainer

from sam3_stream.core.records import StreamInfo
from sam3_stream.stages.sinks.output_place import ffmpeg_name
from sam3_stream.stages.sinks.timeline import Timeline

BROWSER_CODECS = {"aac", "mp3", "mp3float", "opus", "flac"}
AAC_RATES_HZ = {8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000}
_SEEK_MARGIN_S = 1
_MAX_DRIFT_S = 0.1

AudioPacket: TypeAlias = "av.Packet[av.AudioStream]"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AudioWindow:
    """Which sound goes into an output, and when.

    Attributes:
        source: The file that has it.
        origin_s: The time in the source that is 0 in the output.
        start_s: Where it starts, in the source's seconds; None for its beginning, which may lie before 0.
        end_s: Where it ends, in the source's seconds; None for its end.
    """

    source: Path
    origin_s: Fraction
    start_s: Fraction | None
    end_s: Fraction | None

    @classmethod
    def of(cls, source: Path, info: StreamInfo, timeline: Timeline, *, is_window: bool) -> AudioWindow:
        """The sound that goes with the frames that a timeline has placed."""
        unit = info.time_base
        has_all = info.frame_count is not None and timeline.frames >= info.frame_count
        return cls(
            source=source,
            origin_s=timeline.origin * unit,
            start_s=timeline.origin * unit if is_window else None,
            end_s=None if has_all else (timeline.origin + timeline.end) * unit,
        )

    def holds(self, start_s: Fraction, end_s: Fraction) -> bool:
        """Whether a piece of sound lies in the window, at least in part."""
        return (self.start_s is None or end_s > self.start_s) and not self.is_over(start_s)

    def is_over(self, time_s: Fraction) -> bool:
        """Whether the window has ended at this time of the source."""
        return self.end_s is not None and time_s >= self.end_s


def add_audio(window: AudioWindow, output: OutputContainer) -> Iterator[AudioPacket]:
    """Add an audio stream to an output whose header is not written yet, and give its packets.

    Sound that cannot be read is left out with a warning: pictures do not wait for it.
    """
    try:
        container = av.open(ffmpeg_name(window.source), metadata_errors="replace")
        source = container.streams.best("audio")
        if not isinstance(source, av.AudioStream):
            raise ValueError("it has no audio stream")
        _seek(container, window)
        if source.codec_context.codec.name in BROWSER_CODECS:
            return _copied(container, source, window, output.add_stream_from_template(source))
        return _transcoded(container, source, window, _add_aac(output, source))
    except (av.FFmpegError, OSError, ValueError) as error:
        _log.warning("the sound of %s is left out: %s", window.source, error)
        return iter(())


def _seek(container: InputContainer, window: AudioWindow) -> None:
    if window.start_s is not None and window.start_s > _SEEK_MARGIN_S:
        container.seek(int((window.start_s - _SEEK_MARGIN_S) * av.time_base))


def _add_aac(output: OutputContainer, source: av.AudioStream) -> av.AudioStream:
    rate = source.codec_context.sample_rate
    layout = "mono" if source.codec_context.channels == 1 else "stereo"
    return output.add_stream("aac", rate=rate if rate in AAC_RATES_HZ else 48000, layout=layout)


def _packets(container: InputContainer, source: av.AudioStream, window: AudioWindow) -> Iterator[AudioPacket]:
    """The packets in the window. Closes the container."""
    with container:
        try:
            for packet in container.demux(source):
                if packet.pts is None or packet.dts is None:
                    continue
                start_s = packet.pts * packet.time_base
                if window.is_over(start_s):
                    return
                if window.holds(start_s, start_s + (packet.duration or 0) * packet.time_base):
                    yield packet
        except av.FFmpegError as error:
            _log.warning("the sound of %s breaks off: %s", window.source, error)


def _copied(
    container: InputContainer, source: av.AudioStream, window: AudioWindow, stream: av.AudioStream
) -> Iterator[AudioPacket]:
    for packet in _packets(container, source, window):
        shift = round(window.origin_s / packet.time_base)
        packet.pts, packet.dts = (packet.pts or 0) - shift, (packet.dts or 0) - shift
        packet.stream = stream
        yield packet


def _transcoded(
    container: InputContainer, source: av.AudioStream, window: AudioWindow, stream: av.AudioStream
) -> Iterator[AudioPacket]:
    next_sample: int | None = None
    for packet in _packets(container, source, window):
        for frame in _decoded(packet):
            time_base = Fraction(1, frame.sample_rate)
            sample = round(((frame.pts or 0) * packet.time_base - window.origin_s) / time_base)
            # Containers round time stamps, so samples are counted; only a gap in the sound moves the count.
            if next_sample is None or abs(sample - next_sample) > _MAX_DRIFT_S * frame.sample_rate:
                next_sample = sample
            frame.pts, frame.time_base = next_sample, time_base
            next_sample += frame.samples
            yield from stream.encode(frame)
    yield from stream.encode(None)


def _decoded(packet: AudioPacket) -> list[av.AudioFrame]:
    try:
        return [frame for frame in packet.decode() if frame.pts is not None]
    except av.FFmpegError:  # a damaged packet is a moment of silence
        return []
