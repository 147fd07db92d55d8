"""The wire format: records and signals as multipart messages, and back. Pure: no socket is opened here.

A message is ``[topic][header][buffers…]``. The header is msgpack; the buffers are pixels, features and packed masks as
they are in memory. Nothing is ever pickled. docs/wire-format.md describes it for other languages.

What cannot be read is refused with `MalformedMessageError`, whatever the bytes; a version that is not ours with
`UnknownVersionError`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec
import numpy as np
import numpy.typing as npt

VERSION = 1

Buffer = bytes | bytearray | memoryview
Parts = list[Buffer]
Arrays = dict[str, npt.NDArray[np.generic]]

_MAX_SIDE = 1 << 16
_MAX_PIXELS = 1 << 27
MAX_OBJECTS = 1024
_MAX_DIMENSIONS = 8
_MAX_BUFFERS = 4096
_DTYPES = frozenset(
    np.dtype(name).str
    for name in "bool i1 u1 <i2 <u2 <i4 <u4 <i8 <u8 <f2 <f4 <f8".split()  # noqa: SIM905
)


class MalformedMessageError(Exception):
    """A message that does not follow the wire format. It is dropped and counted; no stage ever sees it."""


class UnknownVersionError(MalformedMessageError):
    """A message of a version of the wire format that this program does not speak."""


class Header(msgspec.Struct, kw_only=True, frozen=True, tag_field="type"):
    """What every header says. Keys that a reader does not know are passed over, so that a version may grow.

    Attributes:
        version: Version of the wire format.
    """

    version: int = msgspec.field(name="v", default=VERSION)


class ArrayLayout(msgspec.Struct, kw_only=True, frozen=True):
    """A named array: C order, little-endian, one buffer.

    Attributes:
        name: What the array is.
        dtype: numpy's name of the number format, such as ``<f4``, ``|u1`` or ``|b1``.
        shape: Sizes of the dimensions, slowest first.
    """

    name: str
    dtype: str
    shape: list[int]


class PictureLayout(msgspec.Struct, kw_only=True, frozen=True):
    """How the picture's buffers, which are a message's first, are to be read.

    Attributes:
        encoding: ``raw`` planes, ``jpeg``, ``h264`` packets in Annex B, or ``none`` where the pixels were left out.
        width: Displayed width in pixels.
        height: Displayed height in pixels.
        pixel_format: FFmpeg's name of the raw format, such as ``rgb24`` or ``yuv420p``.
        coded_width: Width in pixels before rotation; 0 where it is the displayed one.
        coded_height: Height in pixels before rotation; 0 where it is the displayed one.
        strides: Bytes from one row to the next, for each plane of a raw picture.
        rotation: Clockwise degrees from the coded to the displayed picture: 0, 90, 180 or 270.
        mirrored: Whether the turned picture is mirrored left to right, too.
        colour: FFmpeg's numbers for matrix, range, primaries and transfer; empty where nothing is known.
        chroma_location: Where the chroma samples of a raw picture lie, as FFmpeg names it: ``center``, ``left``, ….
        interlaced: Whether the lines of a raw picture are those of two fields.
        key: Whether the picture can be decoded without those before it.
        buffers: How many buffers it has.
    """

    encoding: str
    width: int
    height: int
    pixel_format: str = ""
    coded_width: int = 0
    coded_height: int = 0
    strides: list[int] = []
    rotation: int = 0
    mirrored: bool = False
    colour: list[int] = []
    chroma_location: str = ""
    interlaced: bool = False
    key: bool = True
    buffers: int = 0

    def check(self) -> None:
        """Raise `MalformedMessageError` unless every number is one that a picture can have."""
        sides = (self.width, self.height, self.coded_width or self.width, self.coded_height or self.height)
        if not all(0 < side < _MAX_SIDE for side in sides) or self.width * self.height > _MAX_PIXELS:
            raise MalformedMessageError(f"a picture of {self.width}x{self.height} pixels")
        if self.rotation not in (0, 90, 180, 270) or not 0 <= self.buffers <= 8 or len(self.colour) not in (0, 4):
            raise MalformedMessageError("a picture's rotation, buffers or colour is out of range")
        if not all(0 <= number < 256 for number in self.colour):
            raise MalformedMessageError(f"colour {self.colour}; expected FFmpeg's numbers")


class FrameLayout(msgspec.Struct, kw_only=True, frozen=True):
    """A frame without its pixels.

    Attributes:
        sequence: Number of the frame in its stream, from 0.
        pts: Presentation time stamp in units of `time_base`.
        time_base: [numerator, denominator] of the seconds per unit of `pts`.
        start_pts: Time stamp at which stream time is 0, that of the source's first frame.
        picture: How to read the picture's buffers.
        epoch: Which run of the stream it is: sequence numbers grow within an epoch, and epochs grow.
        capture_time_s: Wall time of capture, in seconds since 1970 on the sender's clock; nil for files.
        rotation: Clockwise degrees that the decoder applied.
        key_frame: Whether the source could be decoded from here.
        discontinuity: Whether stream time jumped, or frames are missing, before this frame.
        corrupt: Whether the decoder flagged the picture as damaged.
        trace: W3C trace context, https://www.w3.org/TR/trace-context/#traceparent-header.
    """

    sequence: int
    pts: int
    time_base: list[int]
    picture: PictureLayout
    start_pts: int = 0
    epoch: int = 0
    capture_time_s: float | None = None
    rotation: int = 0
    key_frame: bool = False
    discontinuity: bool = False
    corrupt: bool = False
    trace: str = ""

    def check(self) -> None:
        """Raise `MalformedMessageError` unless every number is one that a frame can have."""
        self.picture.check()
        if len(self.time_base) != 2 or not all(0 < number < 1 << 31 for number in self.time_base):
            raise MalformedMessageError(f"a time base of {self.time_base}")
        if not 0 <= self.sequence < 1 << 62 or not -(1 << 62) < self.pts < 1 << 62:
            raise MalformedMessageError(f"sequence {self.sequence} or pts {self.pts} is out of range")
        if not -(1 << 62) < self.start_pts < 1 << 62:
            raise MalformedMessageError(f"a start of {self.start_pts} is out of range")
        if self.capture_time_s is not None and not math.isfinite(self.capture_time_s):
            raise MalformedMessageError(f"a capture time of {self.capture_time_s}")


class MaskLayout(msgspec.Struct, kw_only=True, frozen=True):
    """A mask of the frame's displayed size.

    Attributes:
        encoding: ``rle``: COCO's compressed run lengths in `counts`. ``bits``: a buffer of one bit a pixel, row after
            row, each row filled up to a whole byte, the leftmost pixel in the highest bit.
        counts: The run lengths.
        buffer: Index of the buffer in the message, from 0 at the first part after the header.
    """

    encoding: str
    counts: str = ""
    buffer: int = -1


class ObjectLayout(msgspec.Struct, kw_only=True, frozen=True):
    """One object on one frame; a nil mask is empty."""

    id: int
    prompt: str
    label: str
    score: float
    present: bool = True
    box: list[int] | None = None
    mask: MaskLayout | None = None


class FrameHeader(Header, kw_only=True, frozen=True, tag="frame"):
    """A decoded frame, or with `resolution` an encoded one; its arrays follow the picture's buffers."""

    frame: FrameLayout
    arrays: list[ArrayLayout] = []
    resolution: list[int] = []
    dtype: str = ""


class TrackedHeader(Header, kw_only=True, frozen=True, tag="tracked"):
    """A frame with its objects.

    Attributes:
        previous: Sequence number of the message before this one under the same topic, where results are published; -1
            for the first. Whoever has not seen that one has lost messages.
    """

    frame: FrameLayout
    previous: int = -1
    objects: list[ObjectLayout] = []
    state: str = "tracked"
    resolution: list[int] = []
    mask_age: int = 0
    retracted: list[list[int]] = []


HeaderT = TypeVar("HeaderT", bound=Header)


class _Version(msgspec.Struct):
    v: int


def pack(topic: str, header: Header, buffers: Sequence[Buffer] = ()) -> Parts:
    """A message's parts. Buffers are not copied."""
    return [topic.encode(), msgspec.msgpack.encode(header), *buffers]


def unpack(parts: Sequence[Buffer], decoder: msgspec.msgpack.Decoder[HeaderT]) -> tuple[str, HeaderT, list[memoryview]]:
    """Read a message's topic, header and buffers; buffers are views, not copies.

    Args:
        parts: The message as it came.
        decoder: Knows the headers that may come; make it with `decoder_for`.

    Raises:
        UnknownVersionError: It is of another version of the wire format.
        MalformedMessageError: It is anything else.
    """
    if not 2 <= len(parts) <= _MAX_BUFFERS + 2:
        raise MalformedMessageError(f"a message of {len(parts)} parts; expected topic, header and buffers")
    try:
        version = _VERSION_DECODER.decode(parts[1]).v
        if version != VERSION:
            raise UnknownVersionError(f"version {version} of the wire format; expected {VERSION}")
        topic = bytes(parts[0]).decode()
        header = decoder.decode(parts[1])
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedMessageError(str(error)) from error
    return topic, header, [memoryview(part).cast("B") for part in parts[2:]]


def decoder_for(headers: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder of one header type, or of a union of several."""
    return msgspec.msgpack.Decoder(headers)


_VERSION_DECODER = msgspec.msgpack.Decoder(_Version)


def pack_arrays(arrays: Arrays) -> tuple[list[ArrayLayout], Parts]:
    """Named arrays as layouts and buffers. Contiguous little-endian arrays are not copied."""
    layouts, buffers = [], Parts()
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        if plain.dtype.str not in _DTYPES:
            raise TypeError(f"array {name!r} has dtype {array.dtype}; expected a bool, integer or float type")
        layouts.append(ArrayLayout(name=name, dtype=plain.dtype.str, shape=list(array.shape)))
        buffers.append(plain.reshape(-1).view(np.uint8).data)
    return layouts, buffers


def unpack_arrays(layouts: Sequence[ArrayLayout], buffers: Sequence[memoryview]) -> Arrays:
    """The arrays of a message: read-only views of its buffers."""
    if len(layouts) != len(buffers):
        raise MalformedMessageError(f"{len(layouts)} arrays in {len(buffers)} buffers")
    arrays = Arrays()
    for layout, buffer in zip(layouts, buffers, strict=True):
        if layout.dtype not in _DTYPES or len(layout.shape) > _MAX_DIMENSIONS or min(layout.shape, default=0) < 0:
            raise MalformedMessageError(f"array {layout.name!r} has dtype {layout.dtype!r} and shape {layout.shape}")
        dtype = np.dtype(layout.dtype)
        if math.prod(layout.shape) * dtype.itemsize != buffer.nbytes or layout.name in arrays:
            raise MalformedMessageError(f"array {layout.name!r} of {buffer.nbytes} bytes; its shape is {layout.shape}")
        if dtype == np.bool_ and np.frombuffer(buffer, np.uint8).max(initial=0) > 1:
            raise MalformedMessageError(f"array {layout.name!r} is bool and holds other bytes than 0 and 1")
        arrays[layout.name] = np.frombuffer(buffer, dtype).reshape(layout.shape)
    return arrays


def frame_topic(stream_id: str) -> str:
    """Topic of a stream's whole frames; subscribing to it brings no other stream."""
    return f"frame/{quote(stream_id, safe='')}/"


def label_topic(stream_id: str, label: str) -> str:
    """Topic of one label's objects in a stream."""
    return f"label/{quote(stream_id, safe='')}/{quote(label, safe='')}/"


def stream_of(topic: str) -> str:
    """The stream id in a topic.

    Raises:
        MalformedMessageError: It is not a topic of frames or labels.
    """
    kind, *names = topic.split("/")
    if (kind, len(names)) not in (("frame", 2), ("label", 3)) or names[-1]:
        raise MalformedMessageError(f"the topic {topic[:80]!r}")
    return unquote(names[0])


def trace_of(stream_id: str, epoch: int, sequence: int) -> str:
    """The frame's trace context: a pure function, so that every process names the same frame by the same trace."""
    digest = hashlib.blake2b(f"{stream_id}/{epoch}/{sequence}".encode(), digest_size=24).hexdigest()
    return f"00-{digest[:32]}-{digest[32:]}-01"
