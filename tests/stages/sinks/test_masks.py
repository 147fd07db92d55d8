"""The masks sink: whole lines at any moment, the same bytes for the same run, and going on after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sam3_stream.core.errors import OutputError, SinkError
from sam3_stream.core.masks_format import read_masks
from sam3_stream.core.records import RunHeader
from sam3_stream.stages.sinks.masks import MasksSink
from tests.stages.sinks.tracked import HEADER, stream_info, tracked_frame


def write(path: Path, first: int, stop: int, **options: bool) -> bytes:
    sink = MasksSink(path, **options)
    sink.check()
    sink.open(stream_info(), HEADER)
    for number in range(first, stop):
        sink.write(tracked_frame(number))
    sink.close()
    sink.close()
    return path.read_bytes()


def test_the_same_run_gives_the_same_bytes_and_every_frame_a_row(tmp_path: Path) -> None:
    first = write(tmp_path / "one.jsonl", 0, 12)
    assert first == write(tmp_path / "two.jsonl", 0, 12)
    assert [row.sequence for row in read_masks(tmp_path / "one.jsonl")] == list(range(12))


def test_without_frames_there_is_a_header(tmp_path: Path) -> None:
    write(tmp_path / "masks.jsonl", 0, 0)
    reader = read_masks(tmp_path / "masks.jsonl")
    assert reader.header.run == HEADER
    assert list(reader) == []


def test_every_line_is_on_disk_when_write_returns(tmp_path: Path) -> None:
    sink = MasksSink(tmp_path / "masks.jsonl")
    sink.open(stream_info(), HEADER)
    for number in range(5):
        sink.write(tracked_frame(number))
        assert len(list(read_masks(sink.path))) == number + 1
    sink.close()


@pytest.mark.parametrize("cut_bytes", [0, 1, 40])
@pytest.mark.parametrize("first", [0, 7])
def test_resuming_gives_what_an_undisturbed_run_would_have_given(tmp_path: Path, cut_bytes: int, first: int) -> None:
    whole = write(tmp_path / "whole.jsonl", first, first + 10)
    path = tmp_path / "killed.jsonl"
    killed = write(path, first, first + 6)
    path.write_bytes(killed[: len(killed) - cut_bytes])
    # The run may pass on from the first frame again, or from any frame up to the one that is missing.
    assert write(path, first + 3, first + 10, resume=True) == whole


def test_resuming_without_a_file_or_with_half_a_header_begins_one(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.jsonl", 0, 3)
    assert write(tmp_path / "new.jsonl", 0, 3, resume=True) == whole
    (tmp_path / "half.jsonl").write_bytes(whole[:30])
    assert write(tmp_path / "half.jsonl", 0, 3, resume=True) == whole


def test_resuming_another_run_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    before = write(tmp_path / "masks.jsonl", 0, 3)
    sink = MasksSink(tmp_path / "masks.jsonl", resume=True)
    with pytest.raises(OutputError, match="not written for this input, model and prompts"):
        sink.open(stream_info(), RunHeader("clip.mp4", "sam3"))
    sink.close()
    assert sink.path.read_bytes() == before


def test_a_longer_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write(tmp_path / "masks.jsonl", 0, 20)
    with pytest.raises(OutputError, match="exists already"):
        write(tmp_path / "masks.jsonl", 0, 2)
    assert len(list(read_masks(tmp_path / "masks.jsonl"))) == 20
    write(tmp_path / "masks.jsonl", 0, 2, force=True)
    assert len(list(read_masks(tmp_path / "masks.jsonl"))) == 2


FILL_THE_DISK = """
import resource, sys
from pathlib import Path
from sam3_stream.core.errors import SinkError
from sam3_stream.stages.sinks.masks import MasksSink
from tests.stages.sinks.tracked import HEADER, stream_info, tracked_frame

resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
sink = MasksSink(Path(sys.argv[1]))
sink.open(stream_info(), HEADER)
try:
    for number in range(1000):
        sink.write(tracked_frame(number))
except SinkError as error:
    print(number, error)
sink.close()
sink.close()
"""


def test_a_full_disk_is_named_and_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "masks.jsonl"
    result = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(path)], capture_output=True, text=True, check=True
    )
    number, message = result.stdout.split(" ", 1)
    assert f"cannot write the masks of frame {number} to {path}: File too large" in message
    assert path.read_bytes().endswith(b"}\n")
    assert [row.sequence for row in read_masks(path)] == list(range(int(number)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which only Linux has")
def test_a_disk_that_is_full_from_the_start_is_named() -> None:
    sink = MasksSink("/dev/full", force=True)
    with pytest.raises((OutputError, SinkError), match="No space left on device"):
        sink.open(stream_info(), HEADER)


WRITE_UNTIL_KILLED = """
import itertools, sys
from pathlib import Path
from sam3_stream.stages.sinks.masks import MasksSink
from tests.stages.sinks.tracked import HEADER, stream_info, tracked_frame

frames = [tracked_frame(number) for number in range(50)]
sink = MasksSink(Path(sys.argv[1]))
sink.open(stream_info(), HEADER)
print("open", flush=True)
for tracked in itertools.cycle(frames):
    sink.write(tracked)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.05, 0.13, 0.21])
def test_killed_at_any_moment_the_file_has_whole_lines(tmp_path: Path, delay_s: float) -> None:
    path = tmp_path / "masks.jsonl"
    with subprocess.Popen([sys.executable, "-c", WRITE_UNTIL_KILLED, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay_s)
        os.kill(process.pid, signal.SIGKILL)
    reader = read_masks(path)
    rows = list(reader)
    assert not reader.ends_in_cut_line
    assert [row.sequence for row in rows] == [number % 50 for number in range(len(rows))]
