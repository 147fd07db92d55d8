"""A video output made in pieces, so that a killed process loses one piece and no frame is ever there twice.

Each segment is a whole video of its own with a note of its frames beside it; what has no note does not count and is
made again. At the end the segments' packets are joined without encoding anything again, at the times that the whole
video would have given them.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import av

from sam3_stream.core.errors import OutputError
from sam3_stream.core.records import Frame, RunHeader, StreamInfo, TrackedFrame
from sam3_stream.stages.sinks.audio import AudioWindow
from sam3_stream.stages.sinks.mp4_finish import finish_mp4
from sam3_stream.stages.sinks.output_place import check_output_file, ffmpeg_name, reason, reporting
from sam3_stream.stages.sinks.protocol import Sink
from sam3_stream.stages.sinks.timeline import Timeline

FRAMES_A_SEGMENT = 50


@dataclass(frozen=True)
class _Segment:
    """What the note of a segment says: of each frame its number, its `pts` and its `discontinuity`."""

    sequences: list[int]
    pts: list[int]
    discontinuities: list[bool]


class PiecewiseSink:
    """Makes a video output by segments.

    Args:
        name: Name of the output.
        path: The video, ``.mp4`` or ``.webm``.
        make_sink: Makes the sink for one segment, given its file.
        folder: Where the segments grow. What an earlier, killed process left there is taken up.
        force: Replace a file that is there.
        audio_from: A file whose sound goes along in an MP4.
        start_s: Where in that file a window of it starts.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        make_sink: Callable[[Path], Sink],
        folder: Path,
        *,
        force: bool = False,
        audio_from: Path | None = None,
        start_s: float | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self._make_sink = make_sink
        self._folder = folder
        self._force = force
        self._audio_from = audio_from
        self._start_s = start_s
        self._segments = list(_notes(folder))
        self._next_sequence = self._segments[-1].sequences[-1] + 1 if self._segments else 0
        self._sink: Sink | None = None
        self._growing: _Segment | None = None
        self._opened: tuple[StreamInfo, RunHeader] | None = None
        self._failed = False

    @property
    def next_sequence(self) -> int:
        """Number of the first frame that is in no segment yet."""
        return self._next_sequence

    def check(self, source: Path | None = None) -> None:
        check_output_file(self.path, force=self._force, source=source)

    def open(self, info: StreamInfo, header: RunHeader) -> None:
        self._opened = info, header
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make the segments of {self.path} in {self._folder}: {reason(error)}") from error

    def write(self, tracked: TrackedFrame) -> None:
        frame = tracked.frame
        if frame.sequence < self._next_sequence:
            return
        if self._opened is None:
            raise ValueError(f"the {self.name} sink is not open")
        try:
            if self._sink is None:
                path = self._segment_path(len(self._segments))
                path.unlink(missing_ok=True)  # what a killed process left unfinished
                self._sink = self._make_sink(path)
                self._sink.open(*self._opened)
                self._growing = _Segment([], [], [])
            self._sink.write(tracked)
        except BaseException:
            self._failed = True
            raise
        assert self._growing is not None
        self._growing.sequences.append(frame.sequence)
        self._growing.pts.append(frame.pts)
        self._growing.discontinuities.append(frame.discontinuity)
        if len(self._growing.pts) == FRAMES_A_SEGMENT:
            self._complete_segment()

    def close(self) -> None:
        if self._opened is None:
            return
        (info, _), self._opened = self._opened, None
        if self._sink is not None:
            self._complete_segment()
        if not self._segments:
            return
        with reporting(self.path, "finish"):
            timeline = self._join(info)
            if self.path.suffix == ".mp4":
                finish_mp4(self.path, self._audio_window(info, timeline))
            if not self._failed:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _segment_path(self, number: int) -> Path:
        return self._folder / f"{number:06d}{self.path.suffix}"

    def _complete_segment(self) -> None:
        assert self._sink is not None
        assert self._growing is not None
        sink, self._sink = self._sink, None
        sink.close()
        if not self._growing.pts:
            return
        note = self._segment_path(len(self._segments)).with_suffix(".json")
        with reporting(self.path, "note a segment of"):
            unfinished = note.with_suffix(".part")
            unfinished.write_text(json.dumps(asdict(self._growing)))
            unfinished.replace(note)
        self._segments.append(self._growing)
        self._next_sequence = self._growing.sequences[-1] + 1

    def _join(self, info: StreamInfo) -> Timeline:
        """Write all segments' packets into one file."""
        timeline = Timeline(info, is_window=self._start_s is not None)
        with (
            av.open(ffmpeg_name(self._segment_path(0))) as first,
            av.open(ffmpeg_name(self.path), "w", format=self.path.suffix[1:]) as output,
        ):
            stream = output.add_stream_from_template(first.streams.video[0])
            stream.time_base = info.time_base
            for number, segment in enumerate(self._segments):
                for packet, frame in zip(self._packets(number), _frames_of(segment, info), strict=True):
                    packet.time_base = info.time_base
                    packet.pts = packet.dts = timeline.place(frame)
                    packet.duration = timeline.step
                    packet.stream = stream
                    output.mux_one(packet)
        return timeline

    def _packets(self, number: int) -> Iterator[av.Packet[Any]]:
        with av.open(ffmpeg_name(self._segment_path(number))) as container:
            yield from (packet for packet in container.demux(video=0) if packet.dts is not None)

    def _audio_window(self, info: StreamInfo, timeline: Timeline) -> AudioWindow | None:
        if self._audio_from is None or not info.has_audio:
            return None
        return AudioWindow.of(self._audio_from, info, timeline, is_window=self._start_s is not None)


def _notes(folder: Path) -> Iterator[_Segment]:
    """The segments of an earlier process, up to the first that is missing."""
    for number in itertools.count():
        try:
            yield _Segment(**json.loads((folder / f"{number:06d}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return


def _frames_of(segment: _Segment, info: StreamInfo) -> Iterator[Frame]:
    """The segment's frames as far as a timeline looks at them."""
    picture: Any = None
    for sequence, pts, discontinuity in zip(segment.sequences, segment.pts, segment.discontinuities, strict=True):
        yield Frame("", sequence, pts, info.time_base, picture, discontinuity=discontinuity)
