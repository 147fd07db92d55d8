"""From a fragmented MP4 to an ordinary one with its index at the front, its true length and its sound."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av

from sam3_stream.stages.sinks.audio import AudioWindow, add_audio
from sam3_stream.stages.sinks.output_place import ffmpeg_name


def finish_mp4(path: Path, audio: AudioWindow | None) -> None:
    """Rewrite a fragmented MP4 in place, without encoding its video again.

    The new file grows beside it as ``<name>.part`` and replaces it when it is whole.

    Args:
        path: The fragmented MP4, with a video stream only.
        audio: The sound that goes with it.

    Raises:
        OSError: The new file cannot be written; the old one is as it was. So with `av.FFmpegError`.
    """
    path = path.resolve()  # what a link points to, not the link
    growing = path.with_name(path.name + ".part")
    try:
        with (
            av.open(ffmpeg_name(path)) as fragments,
            av.open(ffmpeg_name(growing), "w", format="mp4", options={"movflags": "faststart"}) as output,
        ):
            source = fragments.streams.video[0]
            stream = output.add_stream_from_template(source)
            sound: Iterator[av.Packet[Any]] = add_audio(audio, output) if audio else iter(())
            video = _copied(fragments.demux(source), stream)
            for packet in heapq.merge(video, sound, key=_decoding_time):
                output.mux_one(packet)
        growing.replace(path)
    finally:
        growing.unlink(missing_ok=True)


def _copied(packets: Iterator[av.Packet[Any]], stream: av.VideoStream) -> Iterator[av.Packet[Any]]:
    for packet in packets:
        if packet.dts is not None:
            packet.stream = stream
            yield packet


def _decoding_time(packet: av.Packet[Any]) -> float:
    assert packet.dts is not None
    return float(packet.dts * packet.time_base)
