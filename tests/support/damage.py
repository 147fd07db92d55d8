"""Ways in which video files go bad, for tests of what becomes of them."""

from __future__ import annotations

import random
from pathlib import Path


def truncate(path: Path, keep: float) -> Path:
    """Cut a file down to this share of its bytes."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    return path


def overwrite(path: Path, *, begin: float, end: float, hits: int = 6, length: int = 24) -> Path:
    """Overwrite a few short runs of bytes with noise, between two shares of a file's length."""
    noise = random.Random(1)
    data = bytearray(path.read_bytes())
    for _ in range(hits):
        place = noise.randrange(int(len(data) * begin), int(len(data) * end) - length)
        data[place : place + length] = noise.randbytes(length)
    path.write_bytes(bytes(data))
    return path


def blank(path: Path, *, begin: float, end: float) -> Path:
    """Overwrite everything between two shares of a file's length with zeros, as a failed disk block does."""
    data = bytearray(path.read_bytes())
    first, last = int(len(data) * begin), int(len(data) * end)
    data[first:last] = bytes(last - first)
    path.write_bytes(bytes(data))
    return path


def lie_in_header(path: Path, frames: int) -> Path:
    """Have the header of an AVI or MP4 file claim another number of frames."""
    data = bytearray(path.read_bytes())
    if path.suffix == ".avi":
        _put(data, data.index(b"avih") + 8 + 16, frames, "little")  # dwTotalFrames
        _put(data, data.index(b"strh") + 8 + 32, frames, "little")  # dwLength
    else:
        _put(data, data.index(b"stsz") + 12, frames, "big")  # sample_count, beyond the sizes that follow
        _put(data, data.index(b"stts") + 12, frames, "big")
    path.write_bytes(bytes(data))
    return path


def _put(data: bytearray, place: int, value: int, order: str) -> None:
    data[place : place + 4] = value.to_bytes(4, order)  # type: ignore[arg-type]
