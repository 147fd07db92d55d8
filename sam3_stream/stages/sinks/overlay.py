"""The video with its objects drawn over it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import cv2

from sam3_stream.core.records import ImageArray, RunHeader, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.mp4_sink import Mp4Sink

if TYPE_CHECKING:
    from sam3_stream.stages.sinks.object_painter import ObjectPainter


_RATE_HEIGHT = 26  # pixels of the strip for what rate control does


class OverlaySink(Mp4Sink):
    """Writes an MP4 as `Mp4Sink` does; each object has tint, outline and label in a colour of its own.

    Args:
        path: The file.
        show_rate: Write what rate control does into the upper left corner.
        options: As `Mp4Sink` has them.
    """

    name = "overlay"
    _painter: ObjectPainter

    def __init__(self, path: str | Path, *, show_rate: bool = False, **options: Any) -> None:
        super().__init__(path, **options)
        self._show_rate = show_rate

    def open(self, info: StreamInfo, header: RunHeader) -> None:
        from sam3_stream.stages.sinks.object_painter import ObjectPainter  # supervision takes a second to import

        super().open(info, header)
        self._painter = ObjectPainter(info.width, info.height)

    def _draw(self, picture: av.VideoFrame, tracked: TrackedFrame) -> None:
        drawing = self._painter.plan(tracked)
        if drawing is not None:
            self._canvas.draw(picture, drawing.region, lambda scene: self._painter.paint(drawing, scene))
        if self._show_rate and tracked.rate is not None:
            age = f", {tracked.state} {tracked.mask_age}" if tracked.mask_age else ""
            region = (0, 0, picture.width // 2 * 2, min(_RATE_HEIGHT, picture.height // 2 * 2))
            self._canvas.draw(picture, region, lambda scene: _write(scene, f"{tracked.rate}{age}"))


def _write(scene: ImageArray, text: str) -> None:
    for color, thickness in (((0, 0, 0), 3), ((255, 255, 255), 1)):
        cv2.putText(scene, text, (6, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.5, color, thickness, cv2.LINE_AA)
