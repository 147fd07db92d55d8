"""An endless output in files of a minute or so, of which only the newest are kept."""

from __future__ import annotations

import logging
import re
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import OutputError, SinkError
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.core.stream_status import SourceStatus
from sam3_stream.stages.sinks.output_place import check_output_folder
from sam3_stream.stages.sinks.protocol import Sink

_log = logging.getLogger(__name__)
_NAME = re.compile(r"\d{8}T\d{6}Z-(\d{6,})")
_ROOM_INTERVAL_S = 1.0
_RETRY_S = 5.0


class SegmentsSink:
    """Writes one file after the other with a sink for files, and deletes the oldest.

    Files are named by the time of their first frame and a number, ``20261201T081500Z-000042.mp4``. A new one begins
    after `segment_seconds`, when the picture's size changes, and after a break in stream time; it is finished when the
    stream is lost. A full disk or a folder that cannot be written loses frames, which are counted, and no more: the
    sink tries again. Files of other names are never touched.

    Args:
        folder: Where to; made if it is not there. Of this sink alone.
        suffix: Of the files, such as ``.mp4``.
        open_file: Makes a sink that writes one file.
        name: For errors, thread names and metrics.
        segment_seconds: Length of a file in stream time.
        keep: How many files at most, the growing one included; None for no limit.
        max_bytes: How much they may hold together; None for no limit.
        min_free_bytes: Delete old files, and then write nothing, while the disk has less free space than this.
        clock: The machine's own when None.
    """

    def __init__(
        self,
        folder: Path,
        suffix: str,
        open_file: Callable[[Path], Sink],
        *,
        name: str = "segments",
        segment_seconds: float = 60.0,
        keep: int | None = None,
        max_bytes: int | None = None,
        min_free_bytes: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.lost_frames = 0
        self._folder = folder
        self._suffix = suffix
        self._open_file = open_file
        self._segment_seconds = segment_seconds
        self._keep = keep
        self._max_bytes = max_bytes
        self._min_free_bytes = min_free_bytes
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._header: RunHeader | None = None
        self._sink: Sink | None = None
        self._size = (0, 0)
        self._start_s = 0.0
        self._room_checked_s = float("-inf")
        self._not_before_s = float("-inf")
        self._number = 0

    def check(self, source: Path | None = None) -> None:
        folder = self._folder.absolute()
        while not folder.exists():
            folder = folder.parent
        check_output_folder(folder, force=True, source=source)

    def open(self, info: StreamInfo, header: RunHeader) -> None:  # noqa: ARG002 - each file says it for itself
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"the folder {self._folder} cannot be made: {error.strerror}") from error
        self.check()
        self._header = header
        self._number = max((self._number_of(path) for path in self._files()), default=0)

    def write(self, tracked: TrackedFrame) -> None:
        with self._lock:
            try:
                if self._is_due(tracked):
                    self._finish()
                if self._has_room():
                    self._write(tracked)
                    return
                self._finish()
            except (SinkError, OutputError, OSError) as error:
                _log.warning("%s: %s; trying again in %g s", self.name, error, _RETRY_S)
                self._not_before_s = self._clock.monotonic_s() + _RETRY_S
                self._give_up()
            self.lost_frames += 1

    def on_status(self, status: SourceStatus) -> None:
        """Finish the file when the stream is lost, so that what led to it can be looked at. From any thread."""
        if status.state in ("reconnecting", "ended", "failed"):
            self.close()

    def close(self) -> None:
        with self._lock:
            self._finish()

    def _is_due(self, tracked: TrackedFrame) -> bool:
        """Whether the next frame belongs into another file."""
        frame = tracked.frame
        return (
            (frame.width, frame.height) != self._size
            or frame.time_s - self._start_s >= self._segment_seconds
            or frame.discontinuity
        )

    def _write(self, tracked: TrackedFrame) -> None:
        if self._sink is None:
            self._begin(tracked)
        assert self._sink is not None
        self._sink.write(tracked)

    def _begin(self, tracked: TrackedFrame) -> None:
        assert self._header is not None
        frame = tracked.frame
        self._number += 1
        time_s = self._clock.wall_s() if frame.capture_time_s is None else frame.capture_time_s
        stamp = datetime.fromtimestamp(time_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        sink = self._open_file(self._folder / f"{stamp}-{self._number:06d}{self._suffix}")
        sink.open(StreamInfo(frame.width, frame.height, frame.time_base, rotation=frame.rotation), self._header)
        self._sink, self._size, self._start_s = sink, (frame.width, frame.height), frame.time_s

    def _finish(self) -> None:
        if self._sink is not None:
            sink, self._sink = self._sink, None
            sink.close()

    def _give_up(self) -> None:
        """Let go of a file that cannot be written; what it holds is kept."""
        try:
            self._finish()
        except (SinkError, OSError) as error:
            _log.warning("%s: %s", self.name, error)

    def _has_room(self) -> bool:
        """Delete what is too old or too much, and say whether there is room to write on."""
        now_s = self._clock.monotonic_s()
        if now_s < self._not_before_s:
            return False
        if self._sink is not None and now_s - self._room_checked_s < _ROOM_INTERVAL_S:
            return True
        self._room_checked_s = now_s
        files = self._files()
        old = files if self._sink is None else files[:-1]
        sizes = {path: path.stat().st_size for path in files}
        kept, total = len(files) + (self._sink is None), sum(sizes.values())
        for path in old:
            is_too_many = self._keep is not None and kept > self._keep
            is_too_much = self._max_bytes is not None and total > self._max_bytes
            if not is_too_many and not is_too_much and self._is_disk_fine():
                break
            path.unlink(missing_ok=True)
            kept, total = kept - 1, total - sizes[path]
        return self._is_disk_fine()

    def _is_disk_fine(self) -> bool:
        return not self._min_free_bytes or shutil.disk_usage(self._folder).free >= self._min_free_bytes

    def _files(self) -> list[Path]:
        """This sink's files, the oldest first."""
        found = [path for path in self._folder.glob(f"*{self._suffix}") if self._number_of(path)]
        return sorted(found, key=self._number_of)

    def _number_of(self, path: Path) -> int:
        match = _NAME.fullmatch(path.name.removesuffix(self._suffix))
        return int(match[1]) if match else 0
