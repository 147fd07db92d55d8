"""The objects alone, on transparency: a VP9 video with alpha, or a folder of PNGs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import cv2
import numpy as np

from sam3_stream.core.errors import OutputError
from sam3_stream.core.records import MaskArray, RunHeader, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.output_place import check_output_file
from sam3_stream.stages.sinks.png_folder import PngFolder
from sam3_stream.stages.sinks.webm_writer import WebmWriter


class CutoutSink:
    """Writes what is on any object and leaves the rest transparent, in the video's size.

    Args:
        path: ``NAME.webm`` for a video, whose pixels outside of the objects are black as well as transparent but for a
            narrow rim; a name without a suffix for a folder of PNGs by frame number, exact to the pixel.
        force: Replace a file that is there, or the numbered PNGs in the folder.
        resume: Go on with a folder where an earlier, killed process ended.
    """

    name = "cutout"

    def __init__(self, path: str | Path, *, force: bool = False, resume: bool = False) -> None:
        self.path = Path(path)
        self._output: _Output = _of(self.path, force, resume)

    @property
    def next_sequence(self) -> int:
        """Number of the first frame that a folder to go on with does not hold."""
        return self._output.next_sequence

    def check(self, source: Path | None = None) -> None:
        self._output.check(source)

    def open(self, info: StreamInfo, header: RunHeader) -> None:  # noqa: ARG002
        self._output.open(info)

    def write(self, tracked: TrackedFrame) -> None:
        self._output.write(tracked, np.asarray(tracked.masks_nhw.any(axis=0)))

    def close(self) -> None:
        self._output.close()


class _Output(Protocol):
    @property
    def next_sequence(self) -> int: ...
    def check(self, source: Path | None) -> None: ...
    def open(self, info: StreamInfo) -> None: ...
    def write(self, tracked: TrackedFrame, mask: MaskArray) -> None: ...
    def close(self) -> None: ...


def _of(path: Path, force: bool, resume: bool) -> _Output:
    if path.suffix.lower() == ".webm":
        return _Video(path, force)
    if path.suffix and not path.is_dir():
        raise OutputError(
            f"the cutout {path} must be a .webm file, the format with transparency that browsers play, or a folder; "
            f"write {path.with_suffix('.webm')} or {path.with_suffix('')}"
        )
    return _Pictures(path, force, resume)


class _Video:
    next_sequence = 0

    def __init__(self, path: Path, force: bool) -> None:
        self._path = path
        self._force = force
        self._writer: WebmWriter | None = None

    def check(self, source: Path | None) -> None:
        check_output_file(self._path, force=self._force, source=source)

    def open(self, info: StreamInfo) -> None:
        self.check(None)
        self._writer = WebmWriter(self._path, info)

    def write(self, tracked: TrackedFrame, mask: MaskArray) -> None:
        if self._writer is None:
            raise ValueError("the cutout sink is not open")
        self._writer.write(tracked.frame, mask)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Pictures:
    def __init__(self, path: Path, force: bool, resume: bool) -> None:
        self._folder = PngFolder(path, force=force, resume=resume)

    @property
    def next_sequence(self) -> int:
        return self._folder.next_sequence

    def check(self, source: Path | None) -> None:
        self._folder.check(source)

    def open(self, info: StreamInfo) -> None:  # noqa: ARG002
        self._folder.open()

    def write(self, tracked: TrackedFrame, mask: MaskArray) -> None:
        bgr = tracked.frame.picture.to_ndarray("bgr24")
        bgra = np.dstack([bgr, np.where(mask, np.uint8(255), np.uint8(0))])
        bgra[~mask] = 0
        _, png = cv2.imencode(".png", bgra)
        self._folder.write(tracked.frame.sequence, png.tobytes())

    def close(self) -> None: ...
