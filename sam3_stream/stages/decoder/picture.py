"""A decoded picture that is converted when, and only as large as, somebody asks."""

from __future__ import annotations

import threading

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter

from sam3_stream.core.records import ImageArray, PixelFormat
from sam3_stream.stages.decoder.orientation import Orientation

_UNSPECIFIED_COLORSPACE = 2  # AVCOL_SPC_UNSPECIFIED
_BT709, _SMPTE170M = 1, 6  # AVCOL_SPC_BT709, AVCOL_SPC_SMPTE170M
_BT601_AND_BT709 = (_BT709, 5, _SMPTE170M)  # 5 is AVCOL_SPC_BT470BG, BT.601 for 625 lines
_HD_HEIGHT = 720
_WITH_ALPHA = {"rgb24": "rgba", "bgr24": "bgra"}
_per_thread = threading.local()


class VideoPicture:
    """A `Picture` over a decoder's frame.

    swscale converts straight from the decoded planes to the size and format asked for, honouring the stream's colour
    matrix and range; where it names no matrix, BT.709 from 720 lines up and BT.601 below, as players do. What is
    transparent is shown on white. Several threads may convert at once.

    Args:
        frame: Decoded frame; kept until the picture goes.
        orientation: How the coded picture is displayed.
    """

    __slots__ = ("_frame", "_lock", "_orientation", "height", "width")

    def __init__(self, frame: av.VideoFrame, orientation: Orientation) -> None:
        self._frame = frame
        self._prepare(orientation, (frame.width, frame.height))

    def _prepare(self, orientation: Orientation, coded_size: tuple[int, int]) -> None:
        self._orientation = orientation
        self._lock = threading.Lock()
        self.width, self.height = orientation.size(coded_size)

    @property
    def decoded(self) -> av.VideoFrame:
        """The decoder's own frame; shared, not to be changed."""
        return self._frame

    @property
    def orientation(self) -> Orientation:
        """How the coded picture is displayed."""
        return self._orientation

    def to_ndarray(self, pixel_format: PixelFormat = "rgb24", size: tuple[int, int] | None = None) -> ImageArray:
        """Convert to an array of its own that the caller may change.

        Args:
            pixel_format: Channel order of the result.
            size: (width, height) in pixels to scale to, as displayed; the displayed size when None.

        Returns:
            uint8 array of shape (height, width, 3).
        """
        frame = self.decoded
        has_alpha = _has_alpha(frame)
        coded_size = self._orientation.size(size or (self.width, self.height))
        converted = self._convert(coded_size, _WITH_ALPHA[pixel_format] if has_alpha else pixel_format)
        image = np.asarray(converted.to_ndarray(), dtype=np.uint8)
        if has_alpha:
            image = _on_white(image)
        elif converted is frame:  # there was nothing to convert, and these are the decoder's own pixels
            image = image.copy()
        return np.ascontiguousarray(self._orientation.apply(image))

    def native_yuv420p(self) -> tuple[av.VideoFrame, int] | None:
        """The decoder's own frame, where an encoder can take its pixels as they are; shared, not to be changed.

        Returns:
            The frame and FFmpeg's number for its matrix; None unless it is yuv420p in limited range with the matrix of
            BT.601 or BT.709, and displayed as it is coded.
        """
        frame = self.decoded
        if frame.format.name != "yuv420p" or self._orientation != Orientation():
            return None
        with self._lock:
            matrix = frame.colorspace
            if frame.color_range == ColorRange.JPEG or matrix not in (*_BT601_AND_BT709, _UNSPECIFIED_COLORSPACE):
                return None
        if matrix == _UNSPECIFIED_COLORSPACE:
            matrix = _BT709 if frame.height >= _HD_HEIGHT else _SMPTE170M
        return frame, matrix

    def _convert(self, coded_size: tuple[int, int], pixel_format: str) -> av.VideoFrame:
        frame = self.decoded
        # PyAV sets the source frame's colour tags for the time of the conversion: one thread a frame at a time.
        with self._lock:
            matrix = None
            if frame.colorspace == _UNSPECIFIED_COLORSPACE:
                matrix = Colorspace.ITU709 if frame.height >= _HD_HEIGHT else Colorspace.ITU601
            return _reformatter().reformat(
                frame,
                width=coded_size[0],
                height=coded_size[1],
                format=pixel_format,
                src_colorspace=matrix,
                interpolation=Interpolation.AREA,
                threads=1,
            )


def _reformatter() -> VideoReformatter:
    """This thread's own: one must not be used by two threads at once."""
    if not hasattr(_per_thread, "reformatter"):
        _per_thread.reformatter = VideoReformatter()
    reformatter: VideoReformatter = _per_thread.reformatter
    return reformatter


def _has_alpha(frame: av.VideoFrame) -> bool:
    return frame.format.has_palette or any(component.is_alpha for component in frame.format.components)


def _on_white(rgba: ImageArray) -> ImageArray:
    alpha = rgba[:, :, 3:].astype(np.uint16)
    blended = (rgba[:, :, :3] * alpha + 255 * (255 - alpha) + 127) // 255
    return blended.astype(np.uint8)
