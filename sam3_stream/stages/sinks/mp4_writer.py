"""An MP4 that plays whenever the process is killed, and is an ordinary MP4 once it is finished.

While frames come, the file grows at its own name as a fragmented MP4: every half second of video is a piece that needs
nothing after it. The encoder looks at no frame ahead, so each frame is encoded when `write` returns. The header waits
for the first piece (delayed moov), because only then it can say at what time the first frame is shown. When the last
frame is in, `mp4_finish` rewrites the file, without encoding anything again.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final

import av
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream

from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.stages.sinks.audio import AudioWindow
from sam3_stream.stages.sinks.mp4_finish import finish_mp4
from sam3_stream.stages.sinks.output_place import ffmpeg_name, remove_if_empty, reporting
from sam3_stream.stages.sinks.timeline import Timeline

ENCODER: Final = "libx264"
ENCODER_OPTIONS = {"preset": "veryfast", "tune": "zerolatency", "crf": "20"}
KEY_FRAME_INTERVAL_S = 2
_GROWING = {
    "movflags": "delay_moov+default_base_moof+skip_trailer",
    "frag_duration": "500000",  # microseconds
    "flush_packets": "1",
}


class Mp4Writer:
    """Encodes yuv420p frames as H.264 into an MP4, at the times that `Timeline` gives them.

    Args:
        path: The file; replaced if it is there.
        info: What is known of the stream.
        audio_from: A file whose sound goes along, in the finished file.
        start_s: Where a window of the input starts, and its sound with it; None for all of it.
    """

    def __init__(self, path: Path, info: StreamInfo, *, audio_from: Path | None, start_s: float | None) -> None:
        self._path = path
        self._info = info
        self._audio_from = audio_from
        self._is_window = start_s is not None
        self._container: av.container.OutputContainer | None = None
        self._stream: VideoStream | None = None
        self._timeline = Timeline(info, is_window=start_s is not None)
        self._whole_bytes = 0

    def write(self, picture: av.VideoFrame, frame: Frame) -> None:
        """Encode a picture of its own, which belongs to `frame`.

        Raises:
            SinkError: The file cannot be written any more. It plays up to the last piece that is whole.
        """
        with reporting(self._path, f"write frame {frame.sequence} to"):
            try:
                stream = self._stream or self._begin(picture)
                picture.pts, picture.time_base = self._timeline.place(frame), self._info.time_base
                self._mux(stream.encode(picture))
                self._whole_bytes = self._path.stat().st_size
            except (OSError, av.FFmpegError):
                self._abandon()
                raise

    def close(self) -> None:
        """Make the file an ordinary MP4 with its sound. Without a frame there is no file. Safe to call twice.

        Raises:
            SinkError: The file cannot be finished; what there is plays.
        """
        if self._container is None or self._stream is None:
            return
        with reporting(self._path, "finish"):
            try:
                self._mux(self._stream.encode(None))
                container, self._container = self._container, None
                container.close()
            except (OSError, av.FFmpegError):
                self._abandon()
                raise
            finish_mp4(self._path, self._audio_window())

    def _begin(self, picture: av.VideoFrame) -> VideoStream:
        self._container = av.open(ffmpeg_name(self._path), "w", format="mp4", options=_GROWING)
        stream = self._container.add_stream(ENCODER, rate=self._timeline.rate, options=ENCODER_OPTIONS)
        codec: VideoCodecContext = stream.codec_context
        codec.width, codec.height, codec.pix_fmt = picture.width, picture.height, "yuv420p"
        codec.time_base = self._info.time_base
        codec.gop_size = max(1, round(KEY_FRAME_INTERVAL_S * self._timeline.rate))
        codec.color_range, codec.colorspace = picture.color_range, picture.colorspace
        codec.color_primaries, codec.color_trc = picture.color_primaries, picture.color_trc
        if self._info.sample_aspect_ratio:
            codec.sample_aspect_ratio = self._info.sample_aspect_ratio
        self._stream = stream
        return stream

    def _mux(self, packets: list[av.Packet[Any]]) -> None:
        assert self._container is not None
        for packet in packets:
            # Players take the distance to the next frame; this is for the last frame, which has none.
            packet.duration = self._timeline.step
            self._container.mux_one(packet)

    def _abandon(self) -> None:
        """Leave what plays: close the file and cut off a piece that is not whole."""
        container, self._container = self._container, None
        if container is not None:
            with contextlib.suppress(OSError, av.FFmpegError):
                container.close()
            with contextlib.suppress(OSError):
                os.truncate(self._path, self._whole_bytes)
            remove_if_empty(self._path)

    def _audio_window(self) -> AudioWindow | None:
        if self._audio_from is None or not self._info.has_audio:
            return None
        return AudioWindow.of(self._audio_from, self._info, self._timeline, is_window=self._is_window)
