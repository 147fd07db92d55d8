"""Masks as the DAVIS data sets and their tools have them: a folder of indexed PNGs."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from sam3_stream.core.errors import SinkError
from sam3_stream.core.records import ImageArray, RunHeader, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.png_folder import PngFolder

MAX_ID = 255


def _davis_palette() -> bytes:
    """The palette of the data sets' annotations, which is that of PASCAL VOC: id bits spread over high colour bits."""
    palette = np.zeros((256, 3), np.uint8)
    ids = np.arange(256, dtype=np.uint8)
    for bit in range(8):
        for channel in range(3):
            palette[:, channel] |= (ids >> channel & 1) << (7 - bit)
        ids >>= 3
    return palette.tobytes()


DAVIS_PALETTE = _davis_palette()


class DavisSink:
    """Writes ``00000.png``, ``00001.png``, … by frame number: 0 is background, an object's id is its palette index.

    A pixel holds one id. Where objects overlap it is that of the smaller one, which would else be hidden; of two that
    are the same size, the one that came later.

    Args:
        path: The folder.
        force: Whether it may hold something already; its numbered PNGs are then replaced.
        resume: Go on where an earlier, killed process ended.
    """

    name = "davis"

    def __init__(self, path: str | Path, *, force: bool = False, resume: bool = False) -> None:
        self.path = Path(path)
        self._folder = PngFolder(self.path, force=force, resume=resume)

    @property
    def next_sequence(self) -> int:
        """Number of the first frame that has no picture yet."""
        return self._folder.next_sequence

    def check(self, source: Path | None = None) -> None:
        self._folder.check(source)

    def open(self, info: StreamInfo, header: RunHeader) -> None:  # noqa: ARG002
        self._folder.open()

    def write(self, tracked: TrackedFrame) -> None:
        image = Image.fromarray(_to_ids(tracked))
        image.putpalette(DAVIS_PALETTE)
        png = io.BytesIO()
        image.save(png, "PNG")
        self._folder.write(tracked.frame.sequence, png.getvalue())

    def close(self) -> None:
        """Every picture is whole already."""


def _to_ids(tracked: TrackedFrame) -> ImageArray:
    """Object ids (height, width), 0 for the background."""
    ids = np.zeros((tracked.frame.height, tracked.frame.width), np.uint8)
    largest_first = sorted(tracked.present, key=lambda each: (-int(each.mask.sum()), each.object_id))
    for each in largest_first:
        if each.object_id > MAX_ID:
            raise SinkError(
                f"frame {tracked.frame.sequence} has an object with id {each.object_id}, but an indexed PNG holds ids "
                f"up to {MAX_ID}; use --masks, which holds any"
            )
        ids[each.mask] = each.object_id
    return ids
