"""What the sinks have in common that write the video back with something drawn on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import av

from sam3_stream.core.errors import OutputError
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.mp4_writer import Mp4Writer
from sam3_stream.stages.sinks.output_place import check_output_file
from sam3_stream.stages.sinks.yuv_canvas import YuvCanvas


class Mp4Sink(ABC):
    """Writes an H.264 MP4 that plays in browsers, with the frames, times, size and sound of the input.

    Killed at any moment, the file plays up to the last second of video handed over, as yet without sound.

    Args:
        path: The file.
        force: Replace a file that is there.
        audio_from: A file whose sound goes along, copied or made AAC; None for silence.
        start_s: Where in that file a window of it starts; the video then begins at 0. None for the whole of it.
    """

    name: str

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

    def check(self, source: Path | None = None) -> None:
        if self.path.suffix.lower() != ".mp4":
            raise OutputError(
                f"the {self.name} {self.path} must be an .mp4 file; write {self.path.with_suffix('.mp4').name}"
            )
        check_output_file(self.path, force=self._force, source=source)

    def open(self, info: StreamInfo, header: RunHeader) -> None:  # noqa: ARG002
        self.check(self._audio_from)
        self._writer = Mp4Writer(self.path, info, audio_from=self._audio_from, start_s=self._start_s)

    def write(self, tracked: TrackedFrame) -> None:
        if self._writer is None:
            raise ValueError(f"the {self.name} sink is not open")
        picture = self._canvas.frame_of(tracked.frame.picture)
        self._draw(picture, tracked)
        self._writer.write(picture, tracked.frame)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    @abstractmethod
    def _draw(self, picture: av.VideoFrame, tracked: TrackedFrame) -> None:
        """Change the yuv420p picture, which nobody else has, in place."""
