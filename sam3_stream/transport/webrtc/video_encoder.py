"""Encoding for viewers that are watching now: no looking ahead, and a key frame when somebody needs one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType

Codec = Literal["H264", "VP8"]

RTP_TIME_BASE = Fraction(1, 90_000)
_KEY_FRAME_INTERVAL = 600  # frames; whoever needs one sooner asks
_OPTIONS = {
    "H264": {"preset": "ultrafast", "tune": "zerolatency", "profile": "baseline", "level": "31"},
    "VP8": {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0", "error-resilient": "1"},
}
_ENCODERS = {"H264": "libx264", "VP8": "libvpx"}


class VideoEncoder:
    """Encodes pictures of one size.

    Args:
        codec: H.264 (constrained baseline) or VP8.
        width: In pixels, even.
        height: In pixels, even.
        bit_rate: In bits per second.
    """

    def __init__(self, codec: Codec, width: int, height: int, bit_rate: int) -> None:
        context = av.CodecContext.create(_ENCODERS[codec], "w")
        assert isinstance(context, VideoCodecContext)
        context.width, context.height, context.pix_fmt = width, height, "yuv420p"
        context.time_base, context.framerate = RTP_TIME_BASE, Fraction(30)
        context.bit_rate = context.bit_rate_tolerance = bit_rate
        context.gop_size = _KEY_FRAME_INTERVAL
        context.max_b_frames = 0
        context.thread_count = 1
        # A key frame that is as large as a second of video would stop a thin line for as long.
        options = {"maxrate": str(bit_rate), "bufsize": str(bit_rate // 2)}
        context.options = {**_OPTIONS[codec], **(options if codec == "H264" else {})}
        self._context = context
        self.size = width, height

    def encode(self, picture: av.VideoFrame, pts: int, *, key_frame: bool) -> list[av.Packet[Any]]:
        """The picture's packets.

        Args:
            picture: yuv420p of the encoder's size.
            pts: Its time, in units of `RTP_TIME_BASE`.
            key_frame: Whether it must not build on others.
        """
        picture.pts, picture.time_base = pts, RTP_TIME_BASE
        picture.pict_type = PictureType.I if key_frame else PictureType.NONE
        return self._context.encode(picture)
