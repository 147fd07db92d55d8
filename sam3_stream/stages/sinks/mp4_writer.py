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
from sam3_stream.stages.sinks.output_place import ffmpeg_name, reporting

ENCODER: Final = "libx264"
ENCODER_OPTIONS = {"preset": "veryfast", "tune": "zerolatency", "crf": "20"}
KEY_FRAME_INTERVAL_S = 2
MAX_START_S = 10
_GROWING = {
    "movflags": "delay_moov+default_base_moof+skip_trailer",
    "frag_duration": "500000",  # microseconds
    "flush_packets": "1",
}


class Mp4Writer:
    """Encodes yuv420p frames as H.264 into an MP4.

    Time stamps stay those of the input as long as it starts within its first 10 seconds. A later start (a window of the
    input, a live source) would be a long wait in a player, so such a video begins at its first frame.

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
        self._origin = 0
        self._last_pts = -1
        self._frames = 0
        self._whole_bytes = 0
        self._step = max(1, round(1 / (info.average_rate or 25) / info.time_base))

    def write(self, picture: av.VideoFrame, frame: Frame) -> None:
        """Encode a picture of its own, which belongs to `frame`.

        Raises:
            SinkError: The file cannot be written any more. It plays up to the last piece that is whole.
        """
        with reporting(self._path, f"write frame {frame.sequence} to"):
            try:
                stream = self._stream or self._begin(picture, frame)
                picture.pts, picture.time_base = self._place(frame), self._info.time_base
                self._mux(stream.encode(picture))
                self._whole_bytes = self._path.stat().st_size
                self._frames += 1
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

    def _begin(self, picture: av.VideoFrame, frame: Frame) -> VideoStream:
        self._origin = frame.pts if self._starts_at_zero(frame) else 0
        self._container = av.open(ffmpeg_name(self._path), "w", format="mp4", options=_GROWING)
        rate = self._info.average_rate or 25
        stream = self._container.add_stream(ENCODER, rate=rate, options=ENCODER_OPTIONS)
        codec: VideoCodecContext = stream.codec_context
        codec.width, codec.height, codec.pix_fmt = picture.width, picture.height, "yuv420p"
        codec.time_base = self._info.time_base
        codec.gop_size = max(1, round(KEY_FRAME_INTERVAL_S * float(rate)))
        codec.color_range, codec.colorspace = picture.color_range, picture.colorspace
        codec.color_primaries, codec.color_trc = picture.color_primaries, picture.color_trc
        if self._info.sample_aspect_ratio:
            codec.sample_aspect_ratio = self._info.sample_aspect_ratio
        self._stream = stream
        return stream

    def _starts_at_zero(self, first: Frame) -> bool:
        return self._is_window or not 0 <= first.time_s <= MAX_START_S

    def _place(self, frame: Frame) -> int:
        """The frame's time stamp in the file: its own, made to increase where the input's does not."""
        if frame.discontinuity and frame.pts - self._origin <= self._last_pts:
            self._origin = frame.pts - self._last_pts - self._step
        self._last_pts = max(frame.pts - self._origin, self._last_pts + 1)
        return self._last_pts

    def _mux(self, packets: list[av.Packet[Any]]) -> None:
        assert self._container is not None
        for packet in packets:
            # Players take the distance to the next frame; this is for the last frame, which has none.
            packet.duration = self._step
            self._container.mux_one(packet)

    def _abandon(self) -> None:
        """Leave what plays: close the file and cut off a piece that is not whole."""
        container, self._container = self._container, None
        if container is not None:
            with contextlib.suppress(OSError, av.FFmpegError):
                container.close()
            with contextlib.suppress(OSError):
                os.truncate(self._path, self._whole_bytes)

    def _audio_window(self) -> AudioWindow | None:
        if self._audio_from is None or not self._info.has_audio:
            return None
        unit = self._info.time_base
        origin_s = self._origin * unit
        all_frames = self._info.frame_count is not None and self._frames >= self._info.frame_count
        return AudioWindow(
            source=self._audio_from,
            origin_s=origin_s,
            start_s=origin_s if self._is_window else None,
            end_s=None if all_frames else origin_s + (self._last_pts + self._step) * unit,
        )
