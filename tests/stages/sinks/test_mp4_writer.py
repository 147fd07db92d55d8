"""An MP4 that plays whatever happens while it is written."""

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sam3_stream.core.errors import SinkError
from sam3_stream.stages.sinks.overlay import OverlaySink
from tests.stages.sinks.mp4 import read_video
from tests.stages.sinks.tracked import HEADER, stream_info, tracked_frame
from tests.support.clips import read_number

WRITE_UNTIL_KILLED = """
import itertools, sys
from sam3_stream.stages.sinks.overlay import OverlaySink
from tests.stages.sinks.tracked import HEADER, stream_info, tracked_frame

sink = OverlaySink(sys.argv[1])
sink.open(stream_info(), HEADER)
for number in itertools.count():
    sink.write(tracked_frame(number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("frames", [26, 41, 59, 77])
def test_killed_at_any_moment_it_plays_to_the_last_second_handed_over(tmp_path: Path, frames: int) -> None:
    path = tmp_path / "out.mp4"
    with subprocess.Popen([sys.executable, "-c", WRITE_UNTIL_KILLED, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < frames:
            pass
        time.sleep(0.003 * (frames % 7))
        os.kill(process.pid, signal.SIGKILL)
        handed_over = max([frames, *map(int, process.stdout.read().split())]) + 1
    numbers = [read_number(image) for image in read_video(path).images]
    assert numbers == list(range(len(numbers)))
    assert handed_over - len(numbers) < 25


def cuts(content: bytes, first: int) -> list[int]:
    """Where a kill can end a file: between pieces and in their pictures. A piece's head goes out in one write."""
    places, start = [], 0
    while start < len(content):
        size, name = struct.unpack(">I4s", content[start : start + 8])
        if start > first and name == b"moof":
            places.append(start)
        if start > first and name == b"mdat":
            places.extend(range(start, start + size, size // 6))
        start += size
    return places


def test_cut_off_at_any_moment_it_plays_to_the_piece_before(tmp_path: Path) -> None:
    sink = OverlaySink(tmp_path / "out.mp4")
    sink.open(stream_info(), HEADER)
    sizes = []  # how long the file was when a frame had been handed over
    for number in range(60):
        sink.write(tracked_frame(number))
        sizes.append(sink.path.stat().st_size)
    content = sink.path.read_bytes()
    sink.close()
    for cut in cuts(content, first=sizes[24]):
        cut_off = tmp_path / "cut.mp4"
        cut_off.write_bytes(content[:cut])
        handed_over = sum(size <= cut for size in sizes)
        numbers = [read_number(image) for image in read_video(cut_off, lenient=True).images]
        whole = handed_over - 25
        assert numbers[:whole] == list(range(whole))


FILL_THE_DISK = """
import resource, sys
from sam3_stream.core.errors import SinkError
from sam3_stream.stages.sinks.overlay import OverlaySink
from tests.stages.sinks.tracked import HEADER, stream_info, tracked_frame

limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sink = OverlaySink(sys.argv[1])
sink.open(stream_info(), HEADER)
number = 0
try:
    for number in range(100):
        sink.write(tracked_frame(number))
    sink.close()
except SinkError as error:
    print(number, error)
sink.close()
sink.close()
"""


@pytest.mark.parametrize("limit", [20_000, 45_000])
def test_a_full_disk_is_named_and_what_was_written_plays(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "out.mp4"
    command = [sys.executable, "-c", FILL_THE_DISK, str(path), str(limit)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    number, message = result.stdout.split(" ", 1)
    assert f"cannot write frame {number} to {path}: File too large; what was written before is kept" in message
    numbers = [read_number(image) for image in read_video(path).images]
    assert numbers == list(range(len(numbers)))
    assert int(number) - len(numbers) < 25
    assert [each.name for each in tmp_path.iterdir()] == ["out.mp4"]


def test_without_room_to_finish_the_pieces_stay(tmp_path: Path) -> None:
    sink = OverlaySink(tmp_path / "out.mp4")
    sink.open(stream_info(), HEADER)
    for number in range(60):
        sink.write(tracked_frame(number))
    (tmp_path / "out.mp4.part").mkdir()  # the finished file cannot be written where it would grow
    with pytest.raises(SinkError, match=r"cannot finish .*out\.mp4: Is a directory; what was written before is kept"):
        sink.close()
    sink.close()
    assert [read_number(image) for image in read_video(sink.path).images] == list(range(60))


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.mp4").symlink_to(tmp_path / "file.mp4")
    sink = OverlaySink(tmp_path / "link.mp4")
    sink.open(stream_info(), HEADER)
    sink.write(tracked_frame(0))
    sink.close()
    assert (tmp_path / "link.mp4").is_symlink()
    assert read_video(tmp_path / "file.mp4").header_frames == 1
