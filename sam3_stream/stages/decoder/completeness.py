"""Whether a file is as long as it says itself.

FFmpeg reads a truncated file as if it ended there, so this looks at the outermost structure of the container formats
that state their lengths. A header that merely lies about the number of frames raises no alarm here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_BOX_TYPES = {b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"pnot"}
_EBML = b"\x1a\x45\xdf\xa3"
_TS_SYNC = 0x47


def missing_bytes(path: Path) -> int:
    """How many bytes are missing at the end of a file, at least; 0 where it is whole or its format does not say."""
    size = path.stat().st_size
    with path.open("rb") as file:
        find_end = _format_of(file.read(200))
        return 0 if find_end is None else max(0, find_end(file, size) - size)


def _format_of(head: bytes) -> Callable[[BinaryIO, int], int] | None:
    if head[4:8] in _BOX_TYPES:
        return _end_of_boxes
    if head[:4] == b"RIFF":
        return _end_of_riff
    if head[:4] == _EBML:
        return _end_of_ebml
    if head[:4] == b"GIF8":
        return _end_of_gif
    for packet_size, offset in ((188, 0), (192, 4)):
        if len(head) == 200 and head[offset] == head[offset + packet_size] == _TS_SYNC:
            return lambda _, size: size + -size % packet_size
    return None


def _end_of_boxes(file: BinaryIO, size: int) -> int:
    """MP4 and QuickTime (ISO 14496-12, 4.2): boxes of a 32-bit size, or 1 and a 64-bit one, or 0 for the rest."""
    position = 0
    while position < size:
        file.seek(position)
        head = file.read(16)
        length = int.from_bytes(head[:4], "big")
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        if length < 8:  # the rest of the file, or padding that is no box
            return size
        position += length
    return position


def _end_of_riff(file: BinaryIO, size: int) -> int:
    """AVI: a RIFF chunk, and further ones beyond 1 GB (OpenDML); even lengths; 0 while it is being written."""
    position = 0
    while position + 8 <= size:
        file.seek(position)
        head = file.read(8)
        length = int.from_bytes(head[4:8], "little")
        if head[:4] != b"RIFF" or length == 0:
            return size
        position += 8 + length + length % 2
    # The padding byte behind the last chunk may be left out.
    return position if position - size > 1 else size


def _end_of_ebml(file: BinaryIO, size: int) -> int:
    """Matroska and WebM (RFC 8794): the header, then a Segment that says its size, or all ones for unknown."""
    file.seek(0)
    head = file.read(1 << 16)
    position = 0
    for _ in ("header", "segment"):
        position += _vint_length(head, position)  # the element's id
        if position >= len(head):
            return size
        width = _vint_length(head, position)
        value = int.from_bytes(head[position : position + width], "big") & ((1 << 7 * width) - 1)
        if value == (1 << 7 * width) - 1:
            return size
        position += width + value
    return position


def _vint_length(data: bytes, position: int) -> int:
    return 9 - data[position].bit_length() if position < len(data) else 1


def _end_of_gif(file: BinaryIO, size: int) -> int:
    """GIF (89a specification): blocks up to a trailer."""
    file.seek(10)
    flags = file.read(3)[:1]
    file.seek(13 + _color_table(flags))
    while True:
        kind = file.read(1)
        if kind == b"\x3b":
            return size  # there may be more behind the trailer; it is not ours to judge
        if kind == b"\x21":
            file.seek(1, 1)
        elif kind == b"\x2c":
            file.seek(_color_table(file.read(9)[8:]) + 1, 1)
        else:
            return size + 1 if kind == b"" else size
        while length := file.read(1):
            if length == b"\x00":
                break
            file.seek(length[0], 1)


def _color_table(flags: bytes) -> int:
    return 3 << (flags[0] & 7) + 1 if flags and flags[0] & 0x80 else 0
