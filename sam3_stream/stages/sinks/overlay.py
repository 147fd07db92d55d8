"""The video with its objects drawn over it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.mp4_writer import Mp4Writer
from sam3_stream.stages.sinks.output_place import check_output_file
from sam3_stream.stages.sinks.yuv_canvas import YuvCanvas

if TYPE_CHECKING:
    from sam3_stream.stages.sinks.object_painter import ObjectPainter


class OverlaySink:
    """Writes an H.264 MP4 that plays in browsers; each object has tint, outline and label in a colour of its own.

    Killed at any moment, the file plays up to the last second of video handed over, as yet without sound.

    Args:
        path: The file.
        force: Replace a file that is there.
        audio_from: A file whose sound goes along, copied or made AAC; None for silence.
        start_s: Where in that file a window of it starts; the video then begins at 0. None for the whole of it.
    """

    name = "overlay"

    def __init__(
        self,
        path: str | Path,
        *,
        force: bool = False,
        audio_from: str | Path | None = None,
        start_s: float | None = None,
    ) -> None:
        self.path = Path(path)
        self._force = force
        self._audio_from = None if audio_from is None else Path(audio_from)
        self._start_s = start_s
        self._canvas = YuvCanvas()
        self._writer: Mp4Writer | None = None
        self._painter: ObjectPainter | None = None

    def check(self, source: Path | None = None) -> None:
        check_output_file(self.path, force=self._force, source=source)

    def open(self, info: StreamInfo, header: RunHeader) -> None:  # noqa: ARG002
        from sam3_stream.stages.sinks.object_painter import ObjectPainter  # supervision takes a second to import

        self.check(self._audio_from)
        self._painter = ObjectPainter(info.width, info.height)
        self._writer = Mp4Writer(self.path, info, audio_from=self._audio_from, start_s=self._start_s)

    def write(self, tracked: TrackedFrame) -> None:
        if self._writer is None or self._painter is None:
            raise ValueError("the overlay sink is not open")
        painter = self._painter
        picture = self._canvas.frame_of(tracked.frame.picture)
        drawing = painter.plan(tracked)
        if drawing is not None:
            self._canvas.draw(picture, drawing.region, lambda scene: painter.paint(drawing, scene))
        self._writer.write(picture, tracked.frame)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
