"""VP9 with alpha in WebM: a stream by nature, so what is written plays whenever the process is killed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import av
import cv2
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.reformatter import ColorRange
from av.video.stream import VideoStream

from sam3_stream.core.records import Frame, ImageArray, MaskArray, StreamInfo
from sam3_stream.stages.sinks.output_place import ffmpeg_name, remove_if_empty, reporting
from sam3_stream.stages.sinks.timeline import Timeline
from sam3_stream.stages.sinks.yuv_canvas import YuvCanvas, plane_pixels

ENCODER: Final = "libvpx-vp9"
ENCODER_OPTIONS = {"deadline": "realtime", "cpu-used": "6", "row-mt": "1", "lag-in-frames": "0", "crf": "20", "b": "0"}
_GROWING = {"cluster_time_limit": "500", "flush_packets": "1"}  # milliseconds
_RIM = 8
_BLACK, _NO_COLOR = 16, 128


class WebmWriter:
    """Encodes pictures and their masks. WebM counts milliseconds, and so rounds the time stamps of the input.

    Args:
        path: The file; replaced if it is there.
        info: What is known of the stream.
    """

    def __init__(self, path: Path, info: StreamInfo) -> None:
        self._path = path
        self._info = info
        self._timeline = Timeline(info, is_window=False)
        self._canvas = YuvCanvas()
        self._container: av.container.OutputContainer | None = None
        self._stream: VideoStream | None = None

    def write(self, frame: Frame, mask: MaskArray) -> None:
        """Add a frame that shows where `mask`, bool (height, width), is set.

        Raises:
            SinkError: The file cannot be written any more; it plays as far as it came.
        """
        with reporting(self._path, f"write frame {frame.sequence} to"):
            picture = self._canvas.frame_of(frame.picture)
            shown = _with_alpha(picture, mask)
            try:
                stream = self._stream or self._begin(shown)
                shown.pts, shown.time_base = self._timeline.place(frame), self._info.time_base
                self._mux(stream.encode(shown))
            except (OSError, av.FFmpegError):
                self._abandon()
                raise

    def close(self) -> None:
        """Finish the file. Without a frame there is none. Safe to call twice.

        Raises:
            SinkError: The file cannot be finished; it plays as far as it came.
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

    def _begin(self, shown: av.VideoFrame) -> VideoStream:
        self._container = av.open(ffmpeg_name(self._path), "w", format="webm", options=_GROWING)
        stream = self._container.add_stream(ENCODER, rate=self._timeline.rate, options=ENCODER_OPTIONS)
        stream.metadata["alpha_mode"] = "1"
        codec: VideoCodecContext = stream.codec_context
        codec.width, codec.height, codec.pix_fmt = shown.width, shown.height, "yuva420p"
        codec.time_base = self._info.time_base
        codec.color_range, codec.colorspace = shown.color_range, shown.colorspace
        if self._info.sample_aspect_ratio:
            codec.sample_aspect_ratio = self._info.sample_aspect_ratio
        self._stream = stream
        return stream

    def _mux(self, packets: list[av.Packet[Any]]) -> None:
        assert self._container is not None
        for packet in packets:
            packet.duration = self._timeline.step
            self._container.mux_one(packet)

    def _abandon(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            with contextlib.suppress(OSError, av.FFmpegError):
                container.close()
            remove_if_empty(self._path)


def _with_alpha(picture: av.VideoFrame, mask: MaskArray) -> av.VideoFrame:
    """A yuva420p frame: transparent outside of the mask, and black but for a rim, where colours would bleed inwards."""
    shown = av.VideoFrame(picture.width, picture.height, "yuva420p")
    shown.colorspace, shown.color_range = picture.colorspace, ColorRange.MPEG
    odd = ((0, picture.height - mask.shape[0]), (0, picture.width - mask.shape[1]))
    alpha = np.pad(mask, odd).view(np.uint8) * np.uint8(255)
    near: ImageArray = np.asarray(cv2.dilate(alpha, np.ones((2 * _RIM + 1, 2 * _RIM + 1), np.uint8)), np.uint8)
    for source, target, step, empty in zip(
        picture.planes, shown.planes, (1, 2, 2), (_BLACK, _NO_COLOR, _NO_COLOR), strict=False
    ):
        plane_pixels(target)[:] = np.where(near[::step, ::step], plane_pixels(source), np.uint8(empty))
    plane_pixels(shown.planes[3])[:] = alpha
    return shown
