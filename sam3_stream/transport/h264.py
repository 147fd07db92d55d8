"""H.264 on the wire, for the thinnest links: one packet a picture, no picture waits for another."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import ImageArray, Picture
from sam3_stream.transport.pictures import expect
from sam3_stream.transport.wire_format import MalformedMessageError, Parts, PictureLayout

KEY_FRAME_INTERVAL = 100
_TIME_BASE = Fraction(1, 30)
_OPTIONS = {"preset": "ultrafast", "tune": "zerolatency"}


class H264Pictures:
    """Each end keeps a codec: pictures must arrive once and in order, from a key picture on.

    Args:
        bitrate: Bits a second, at 30 pictures a second.
    """

    def __init__(self, bitrate: int = 4_000_000) -> None:
        self._bitrate = bitrate
        self._encoder: VideoCodecContext | None = None
        self._decoder: VideoCodecContext | None = None
        self._count = 0
        self._key_is_due = True
        self.stands_alone = True

    def pack(self, picture: Picture) -> tuple[PictureLayout, Parts]:
        rgb = picture.to_ndarray("rgb24")
        odd = ((0, rgb.shape[0] % 2), (0, rgb.shape[1] % 2), (0, 0))
        frame = av.VideoFrame.from_ndarray(np.pad(rgb, odd, mode="edge"), "rgb24").reformat(format="yuv420p", threads=1)
        if self._encoder is None or (self._encoder.width, self._encoder.height) != (frame.width, frame.height):
            self._encoder = self._make_encoder(frame.width, frame.height)
            self._key_is_due = True
        frame.pts, frame.time_base = self._count, _TIME_BASE
        frame.pict_type = PictureType.I if self._key_is_due else PictureType.NONE
        self._count += 1
        (packet,) = self._encoder.encode(frame)
        self._key_is_due, self.stands_alone = False, packet.is_keyframe
        layout = PictureLayout(
            encoding="h264", width=picture.width, height=picture.height, key=packet.is_keyframe, buffers=1
        )
        return layout, [bytes(packet)]

    def unpack(self, layout: PictureLayout, buffers: Sequence[memoryview]) -> Picture:
        expect(layout, buffers, "h264", count=1)
        if layout.key:
            self._decoder = av.CodecContext.create("h264", "r")
            self._decoder.thread_type = "NONE"
            self._decoder.flags |= av.codec.context.Flags.low_delay
        if self._decoder is None:
            raise MalformedMessageError("an H.264 picture that needs those before it, which did not come")
        try:
            frames = self._decoder.decode(av.Packet(bytes(buffers[0])))
        except av.FFmpegError as error:
            raise MalformedMessageError(f"not an H.264 picture: {error.strerror}") from error
        padded = (layout.width + layout.width % 2, layout.height + layout.height % 2)
        if len(frames) != 1 or (frames[0].width, frames[0].height) != padded:
            raise MalformedMessageError("not one H.264 picture of the size that its header names")
        rgb: ImageArray = np.asarray(frames[0].to_ndarray(format="rgb24"), np.uint8)
        return ArrayPicture(rgb[: layout.height, : layout.width])

    def restart(self) -> None:
        self._key_is_due = True

    def _make_encoder(self, width: int, height: int) -> VideoCodecContext:
        encoder = av.CodecContext.create("libx264", "w")
        encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuv420p"
        encoder.time_base, encoder.framerate = _TIME_BASE, 1 / _TIME_BASE
        encoder.bit_rate, encoder.gop_size, encoder.max_b_frames = self._bitrate, KEY_FRAME_INTERVAL, 0
        encoder.thread_count = 1
        encoder.options = {**_OPTIONS, "forced-idr": "1"}
        return encoder
