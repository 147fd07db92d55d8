"""Whether a file is as long as it says itself, and its outer structure whole.

FFmpeg reads a truncated file as if it ended there, and skips what it cannot parse without a word to the caller, so this
looks at the outermost structure of the container formats that have one. A header that merely lies about the number of
frames raises no alarm here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple


class Completeness(NamedTuple):
    """What the structure of a file says.

    Attributes:
        missing_bytes: How many bytes are missing at its end, at least.
        broken_at: Position of the first byte that makes no sense; None when all of it does.
    """

    missing_bytes: int = 0
    broken_at: int | None = None


_Check = Callable[[BinaryIO, int], Completeness]
_WHOLE = Completeness()

_BOX_TYPES = {b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"pnot"}
_TS_SYNC = 0x47
_EBML_HEADER, _SEGMENT, _CLUSTER = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67", b"\x1f\x43\xb6\x75"
_IN_SEGMENT = ("1a45dfa3", "114d9b74", "1549a966", "1654ae6b", "1c53bb6b", "1941a469", "1043a770", "1254c367")
_IN_CLUSTER = ("e7", "5854", "a7", "ab", "a3", "a0", "af")
_EBML_SKIPPED = {bytes.fromhex(each) for each in (*_IN_SEGMENT, *_IN_CLUSTER, "ec", "bf")}


def check_file(path: Path) -> Completeness:
    """Look for the damage that the outer structure of a file shows; formats that have none pass."""
    size = path.stat().st_size
    with path.open("rb") as file:
        check = _check_for(file.read(200))
        return _WHOLE if check is None else check(file, size)


def _check_for(head: bytes) -> _Check | None:
    if head[4:8] in _BOX_TYPES:
        return _check_boxes
    if head[:4] == b"RIFF":
        return _check_riff
    if head[:4] == _EBML_HEADER:
        return _check_ebml
    if head[:4] == b"GIF8":
        return _check_gif
    for packet_size, offset in ((188, 0), (192, 4)):
        if len(head) == 200 and head[offset] == head[offset + packet_size] == _TS_SYNC:
            return lambda _, size: Completeness(-size % packet_size)
    return None


def _check_boxes(file: BinaryIO, size: int) -> Completeness:
    """MP4 and QuickTime (ISO 14496-12, 4.2): boxes of a 32-bit size, or 1 and a 64-bit one, or 0 for the rest."""
    position = 0
    while position < size:
        file.seek(position)
        head = file.read(16)
        length = int.from_bytes(head[:4], "big")
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        if length < 8:  # the rest of the file, or padding that is no box
            return _WHOLE
        position += length
    return Completeness(position - size)


def _check_riff(file: BinaryIO, size: int) -> Completeness:
    """AVI: a RIFF chunk, and further ones beyond 1 GB (OpenDML); even lengths; 0 while it is being written."""
    position = 0
    while position + 8 <= size:
        file.seek(position)
        head = file.read(8)
        length = int.from_bytes(head[4:8], "little")
        if head[:4] != b"RIFF" or length == 0:
            return _WHOLE
        position += 8 + length + length % 2
    # The padding byte behind the last chunk may be left out.
    return Completeness(position - size) if position - size > 1 else _WHOLE


def _check_ebml(file: BinaryIO, size: int) -> Completeness:
    """Matroska and WebM (RFC 8794, RFC 9559): a segment of elements, of which the clusters hold blocks in turn.

    Both may leave their length open, so they are entered rather than skipped, and all others skipped.
    """
    position, end = 0, size
    while position < end:
        file.seek(position)
        head = file.read(16)
        id_width = _vint_width(head)
        identifier, rest = head[:id_width], head[id_width:]
        width = _vint_width(rest)
        length = int.from_bytes(rest[:width], "big") & ((1 << 7 * width) - 1)
        if id_width + width > len(head):
            return Completeness(1) if position + 16 > size else Completeness(broken_at=position)
        position += id_width + width
        if identifier == _SEGMENT:
            end = size if length == (1 << 7 * width) - 1 else position + length
            if end > size:
                return Completeness(end - size)
        elif identifier in _EBML_SKIPPED:
            position += length
        elif identifier != _CLUSTER:
            return Completeness(broken_at=position - id_width - width)
    return Completeness(max(0, position - size))


def _vint_width(data: bytes) -> int:
    return 9 - data[0].bit_length() if data else 9


def _check_gif(file: BinaryIO, size: int) -> Completeness:
    """GIF (89a specification): blocks up to a trailer; what is behind the trailer is not ours to judge."""
    file.seek(10)
    file.seek(13 + _color_table_size(file.read(1)))
    while kind := file.read(1):
        if kind == b"\x3b":
            return _WHOLE
        if kind == b"\x21":
            file.seek(1, 1)
        elif kind == b"\x2c":
            file.seek(_color_table_size(file.read(9)[8:]) + 1, 1)
        else:
            return Completeness(broken_at=file.tell() - 1)
        while (length := file.read(1)) not in (b"", b"\x00"):
            file.seek(length[0], 1)
    return Completeness(max(1, file.tell() - size))


def _color_table_size(flags: bytes) -> int:
    return 3 << (flags[0] & 7) + 1 if flags and flags[0] & 0x80 else 0
