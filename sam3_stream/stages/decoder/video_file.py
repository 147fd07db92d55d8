"""A video file, frame by frame."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av

from sam3_stream.core.errors import DecodeError, InputError
from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.core.urls import is_url
from sam3_stream.stages.decoder.completeness import check_file
from sam3_stream.stages.decoder.opening import display_name
from sam3_stream.stages.decoder.orientation import Orientation
from sam3_stream.stages.decoder.picture import VideoPicture
from sam3_stream.stages.decoder.stream_reader import StreamReader, open_at
from sam3_stream.stages.decoder.timestamps import TimestampRepair
from sam3_stream.stages.decoder.window import Window

# Where a seek by time is exact. Elsewhere everything before the start is decoded, too.
_SEEKABLE_FORMATS = ("mov", "matroska")


@dataclass(frozen=True, slots=True)
class Anchor:
    """A frame that is known from an earlier pass over the same window: its number there, and its time stamp."""

    sequence: int
    pts: int


class VideoDecoder:
    """Iterates the frames of a video: each exactly once, in display order, with its own time stamp.

    It iterates once. A damaged file gives every frame that decodes, and then the error. Use it, and close it, from one
    thread; the pictures may go to any.

    Args:
        source: Anything that FFmpeg reads.
        stream_id: What the frames say they belong to.
        start_s: Leave out the frames before this time, in seconds of `Frame.time_s`.
        end_s: Leave out the frames at or after this time.
        max_frames: End after this many frames, those before `first_sequence` included.
        first_sequence: Leave out the frames before this number, to go on where an earlier run of the same window
            ended. Frames are numbered from 0 at the beginning of the window, whatever is left out here.
        anchor: A frame at or before `first_sequence`. With it the frames before need not be decoded.

    Attributes:
        info: What the source says of itself.

    Raises:
        InputError: The source cannot be opened, or nothing of it can be decoded; or, from the iteration, no frame
            lies between `start_s` and `end_s`.
        DecodeError: From the iteration, after the last frame that could be delivered: packets or frames were lost or
            damaged. It says how many.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        stream_id: str = "0",
        start_s: float | None = None,
        end_s: float | None = None,
        max_frames: int | None = None,
        first_sequence: int = 0,
        anchor: Anchor | None = None,
    ) -> None:
        self._window = Window(start_s, end_s, max_frames, first_sequence)
        self._source = source
        self._name = display_name(source)
        self._stream_id = stream_id
        self._anchor = anchor
        self._delivered = 0
        self._last_time_s = 0.0
        self._reader = StreamReader(source)
        first = next(iter(self._reader), None)
        if first is None:
            self._reader.close()
            raise InputError(f"{self._name} holds no picture that FFmpeg can decode")
        self._coded_size = (first.width, first.height)
        self._orientation = Orientation.of(first)
        self._time_base = self._reader.time_base
        self._repair = TimestampRepair(self._time_base, self._reader.frame_duration_s)
        self._start_pts = first.pts or 0
        self.info = _describe(self._reader, first, self._orientation)
        self._frames = self._run(first)

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        return next(self._frames)

    def close(self) -> None:
        """Let go of the file. Safe to call twice."""
        self._frames.close()
        self._reader.close()

    def __enter__(self) -> VideoDecoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def timestamps_repaired(self) -> bool:
        """Whether a time stamp so far was missing or out of order, so that frames cannot be found again by it."""
        return self._repair.repaired

    def _run(self, first: av.VideoFrame) -> Generator[Frame, None, None]:
        decoded, first_number = self._start(first)
        for number, (frame, pts) in self._window.select(self._timed(decoded), first_number):
            yield self._to_frame(number, frame, pts)
        self._check_complete()

    def _start(self, first: av.VideoFrame) -> tuple[Iterator[av.VideoFrame], int]:
        """Decoded pictures from a key frame before the ones wanted, and the number of the first in the window."""
        beginning = itertools.chain([first], self._reader)
        pts = self._known_pts()
        if pts is None or first.pts is None or pts <= first.pts:
            return beginning, 0
        reader = open_at(self._source, pts)
        if reader is None:
            return beginning, 0
        decoded = iter(reader)
        if self._anchor is not None:
            decoded = itertools.dropwhile(lambda frame: frame.pts is None or frame.pts < pts, decoded)
            anchor = next(decoded, None)
            if anchor is None or anchor.pts != pts:
                reader.close()
                return beginning, 0
            decoded = itertools.chain([anchor], decoded)
        self._reader.close()
        self._reader = reader
        return decoded, 0 if self._anchor is None else self._anchor.sequence

    def _known_pts(self) -> int | None:
        """Time stamp that may be sought for; None where the file has to be decoded from its beginning."""
        if self._anchor is not None:
            return self._anchor.pts
        formats = self._reader.container.format.name.split(",")
        seekable = Path(self._source).is_file() and any(name in formats for name in _SEEKABLE_FORMATS)
        if self._window.start_s is None or not seekable:
            return None
        return self._start_pts + math.ceil(Fraction(self._window.start_s) / self._time_base)

    def _timed(self, decoded: Iterator[av.VideoFrame]) -> Iterator[tuple[float, tuple[av.VideoFrame, int]]]:
        for frame in decoded:
            pts = self._repair(frame.pts)
            self._last_time_s = (pts - self._start_pts) * self._time_base.numerator / self._time_base.denominator
            yield self._last_time_s, (frame, pts)

    def _to_frame(self, number: int, frame: av.VideoFrame, pts: int) -> Frame:
        if (frame.width, frame.height) != self._coded_size:
            raise DecodeError(
                f"the picture size of {self._name} changes from {self._coded_size[0]}x{self._coded_size[1]} to "
                f"{frame.width}x{frame.height} at frame {number} ({self._last_time_s:.3f} s); a source must keep its "
                f"size: use --end {self._last_time_s:.3f}, or convert it to one size first"
            )
        self._delivered += 1
        self._reader.losses.damaged_frames += frame.is_corrupt
        return Frame(
            stream_id=self._stream_id,
            sequence=number,
            pts=pts,
            time_base=self._time_base,
            picture=VideoPicture(frame, self._orientation),
            start_pts=self._start_pts,
            rotation=self._orientation.rotation,
            key_frame=frame.key_frame,
            corrupt=frame.is_corrupt,
        )

    def _check_complete(self) -> None:
        window, reader, losses = self._window, self._reader, self._reader.losses
        if reader.exhausted and not is_url(str(self._source)) and Path(self._source).is_file():
            losses.missing_bytes, losses.broken_at = check_file(Path(self._source))
        if losses:
            whole = reader.exhausted and window == Window()
            raise DecodeError(losses.describe(self._name, self._delivered, self.info.frame_count if whole else None))
        if self._delivered == 0 and window.first_sequence == 0:
            raise InputError(
                f"no frame of {self._name} lies in the part asked for, from {window.start_s or 0:g} s to "
                f"{'the end' if window.end_s is None else f'{window.end_s:g} s'}; it runs to {self._last_time_s:.3f} s"
            )


def _describe(reader: StreamReader, first: av.VideoFrame, orientation: Orientation) -> StreamInfo:
    stream, container = reader.stream, reader.container
    width, height = orientation.size((first.width, first.height))
    aspect = stream.sample_aspect_ratio
    if aspect and orientation.swaps_sides:
        aspect = 1 / aspect
    duration_s = None
    if stream.duration:
        duration_s = float(stream.duration * reader.time_base)
    elif container.duration:
        duration_s = container.duration / av.time_base
    return StreamInfo(
        width=width,
        height=height,
        time_base=reader.time_base,
        average_rate=stream.average_rate or None,
        frame_count=_frame_count(reader, duration_s),
        duration_s=duration_s,
        rotation=orientation.rotation,
        sample_aspect_ratio=None if not aspect or aspect == 1 else aspect,
        has_audio=bool(container.streams.audio),
    )


def _frame_count(reader: StreamReader, duration_s: float | None) -> int | None:
    stream = reader.stream
    if stream.frames:
        return stream.frames
    if duration_s and stream.average_rate:
        return max(1, round(duration_s * stream.average_rate))
    return None
