"""The video with its objects drawn over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av

from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.mp4_sink import Mp4Sink

if TYPE_CHECKING:
    from sam3_stream.stages.sinks.object_painter import ObjectPainter


class OverlaySink(Mp4Sink):
    """Writes an MP4 as `Mp4Sink` does; each object has tint, outline and label in a colour of its own."""

    name = "overlay"
    _painter: ObjectPainter

    def open(self, info: StreamInfo, header: RunHeader) -> None:
        from sam3_stream.stages.sinks.object_painter import ObjectPainter  # supervision takes a second to import

        super().open(info, header)
        self._painter = ObjectPainter(info.width, info.height)

    def _draw(self, picture: av.VideoFrame, tracked: TrackedFrame) -> None:
        drawing = self._painter.plan(tracked)
        if drawing is not None:
            self._canvas.draw(picture, drawing.region, lambda scene: self._painter.paint(drawing, scene))
