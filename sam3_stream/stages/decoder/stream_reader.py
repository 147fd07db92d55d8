"""From a file to decoded pictures: demuxing, decoding, and the count of what went wrong."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
from av.codec.context import Flags, ThreadType
from av.error import EOFError as EndOfFile
from av.error import FFmpegError
from av.packet import Packet
from av.video.stream import VideoStream

from sam3_stream.stages.decoder.losses import Losses
from sam3_stream.stages.decoder.opening import choose_video_stream, display_name, open_container

_BACK_OFFS_S = (0, 2, 10, 60)
_FULL_INDEX_FORMATS = ("mov", "avi")
_DEFAULT_RATE = Fraction(25)
_MOST_THREADS = 16


class StreamReader:
    """Iterates the decoded pictures of a source's best video stream in display order.

    What cannot be decoded is counted in `losses` and left out; what the decoder had to conceal is delivered, flagged.

    Args:
        source: Path or URL.
        frame_threads: Whether to decode several pictures at once.

    Raises:
        InputError: The source cannot be opened or has no video.
    """

    def __init__(self, source: str | Path, *, frame_threads: bool = True) -> None:
        self._source = source
        self.container = open_container(source)
        self.stream = choose_video_stream(self.container, display_name(source))
        self.stream.thread_type = ThreadType.AUTO if frame_threads else ThreadType.SLICE
        self.stream.codec_context.thread_count = _threads()
        self.stream.codec_context.flags |= Flags.output_corrupt
        self.time_base = self.stream.time_base or Fraction(1, av.time_base)
        self.losses = Losses()
        self.exhausted = False
        self._frame_threads = frame_threads
        self._packets_read = 0
        self._frames_due = 0
        self._frames_read = 0
        self._last_pts: int | None = None
        self._ordered = True
        self._sought = False
        self._frames = self._read()

    def __iter__(self) -> Iterator[av.VideoFrame]:
        return self._frames

    def close(self) -> None:
        """Let go of the file."""
        self.container.close()

    @property
    def frame_duration_s(self) -> Fraction:
        """Nominal, in seconds; a 25th where the header names no rate."""
        return 1 / (self.stream.guessed_rate or self.stream.average_rate or _DEFAULT_RATE)

    @property
    def has_full_index(self) -> bool:
        """Whether the container lists every packet."""
        formats = self.container.format.name.split(",")
        return any(name in formats for name in _FULL_INDEX_FORMATS) and len(self.stream.index_entries) > 0

    def start_at(self, pts: int, back_off_s: int) -> bool:
        """Seek so that the first picture is an undamaged key frame at or before `pts`; False when it is not.

        Pictures that come out before such a key frame refer to others that were not read.
        """
        self._sought = True
        try:
            self.container.seek(pts - round(back_off_s / self.time_base), stream=self.stream)
        except FFmpegError:
            return False
        for frame in self._frames:
            if frame.key_frame and not frame.is_corrupt:
                self._frames = itertools.chain([frame], self._frames)
                return frame.pts is not None and frame.pts <= pts
        return False

    def _read(self) -> Iterator[av.VideoFrame]:
        for packet in self._packets():
            for frame in self._decode(packet):
                self._note(frame.pts)
                yield frame
        if self._may_have_lost_the_tail():
            yield from self._tail()
        if self.has_full_index and not self._sought:
            self.losses.missing_packets = max(0, len(self.stream.index_entries) - self._packets_read)
        self.exhausted = True

    def _packets(self) -> Iterator[Packet[VideoStream] | None]:
        """Every packet, then None to have the decoder give out what it still holds."""
        try:
            for packet in self.container.demux(self.stream):
                if packet.dts is None and packet.pts is None and packet.size == 0:
                    break  # PyAV's own last packet
                self._packets_read += 1
                self._frames_due += not packet.is_discard  # what an edit list cuts off is decoded, but not shown
                self.losses.damaged_packets += packet.is_corrupt
                if packet.size:  # an empty one stands for "as before" in AVI, and for the end to a decoder
                    yield packet
        except FFmpegError as error:
            self.losses.read_error = error.strerror
        yield None

    def _decode(self, packet: Packet[VideoStream] | None) -> list[av.VideoFrame]:
        try:
            return self.stream.decode(packet)
        except EndOfFile:
            return []
        except FFmpegError:
            self.losses.undecodable_packets += 1
            return []

    def _note(self, pts: int | None) -> None:
        self._frames_read += 1
        self._ordered &= pts is not None and (self._last_pts is None or pts > self._last_pts)
        self._last_pts = pts

    def _may_have_lost_the_tail(self) -> bool:
        accounted = self._frames_read + self.losses.undecodable_packets
        return self._frame_threads and self._ordered and (bool(self.losses) or self._frames_due > accounted)

    def _tail(self) -> Iterator[av.VideoFrame]:
        """Decode the end again without frame threads, for the pictures that have not come out.

        When a packet fails while the decoder is being emptied, PyAV does not give out what comes behind it, and with
        frame threads that is up to a picture a thread.
        """
        last_pts = self._last_pts
        if last_pts is None or not Path(self._source).is_file():  # what came through a pipe does not come again
            return
        again = open_at(self._source, last_pts, frame_threads=False)
        if again is None:
            return
        try:
            yield from (frame for frame in again if frame.pts is not None and frame.pts > last_pts)
        finally:
            again.close()


def open_at(source: str | Path, pts: int, *, frame_threads: bool = True) -> StreamReader | None:
    """A reader whose first picture is an undamaged key frame at or before `pts`; None where there is no way to it."""
    for back_off_s in _BACK_OFFS_S:
        reader = StreamReader(source, frame_threads=frame_threads)
        if reader.start_at(pts, back_off_s):
            return reader
        reader.close()
    return None


def _threads() -> int:
    """One for each core: FFmpeg's own choice, one more, decodes a fifth fewer frames a second on two cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)
