"""Indexed PNGs as DAVIS tools read them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sam3_stream.core.errors import OutputError, SinkError
from sam3_stream.core.records import TrackedFrame
from sam3_stream.stages.sinks.davis import DavisSink
from tests.stages.sinks.tracked import HEADER, object_of, rectangle, stream_info, tracked_frame


def write(path: Path, *frames: TrackedFrame, force: bool = False) -> Path:
    sink = DavisSink(path, force=force)
    sink.check()
    sink.open(stream_info(), HEADER)
    for tracked in frames:
        sink.write(tracked)
    sink.close()
    sink.close()
    return path


def test_names_ids_and_palette_are_those_of_davis(tmp_path: Path) -> None:
    first, second = rectangle(10, 10, 40, 40), rectangle(60, 60, 100, 100)
    frames = [
        tracked_frame(0, objects=(object_of(first, 1), object_of(second, 7))),
        tracked_frame(1, objects=(object_of(rectangle(0, 0, 0, 0), 1, present=False), object_of(second, 7))),
        tracked_frame(2, objects=()),
    ]
    folder = write(tmp_path / "out", *frames)
    assert sorted(path.name for path in folder.iterdir()) == ["00000.png", "00001.png", "00002.png"]
    images = [Image.open(path) for path in sorted(folder.iterdir())]
    assert all(image.mode == "P" and image.size == (160, 120) for image in images)
    assert np.array_equal(np.asarray(images[0]), first * 1 + second * 7)
    assert np.array_equal(np.asarray(images[1]), second * 7)
    assert not np.asarray(images[2]).any()
    # The colours that the annotations of DAVIS 2017 have.
    palette = images[0].getpalette()
    assert palette is not None
    assert palette[:12] == [0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0]
    assert palette[7 * 3 : 9 * 3] == [128, 128, 128, 64, 0, 0]


def test_the_smaller_of_two_overlapping_objects_is_on_top(tmp_path: Path) -> None:
    large, small = rectangle(0, 0, 100, 100), rectangle(20, 20, 40, 40)
    folder = write(
        tmp_path / "out",
        tracked_frame(0, objects=(object_of(small, 1), object_of(large, 2))),
        tracked_frame(1, objects=(object_of(large, 1), object_of(small, 2))),
        tracked_frame(2, objects=(object_of(large, 1), object_of(large, 2))),
    )
    ids = [np.asarray(Image.open(folder / f"0000{number}.png"))[30, 30] for number in range(3)]
    assert ids == [1, 2, 2]


def test_an_id_beyond_the_palette_is_refused_by_name(tmp_path: Path) -> None:
    mask = rectangle(0, 0, 10, 10)
    write(tmp_path / "fits", tracked_frame(0, objects=(object_of(mask, 255),)))
    with pytest.raises(SinkError, match=r"frame 3 has an object with id 256, .* up to 255; use --masks"):
        write(tmp_path / "out", tracked_frame(3, objects=(object_of(mask, 256),)))


def test_a_folder_that_holds_something_needs_force_and_loses_its_numbered_pictures_only(tmp_path: Path) -> None:
    folder = write(tmp_path / "out", *map(tracked_frame, range(4)))
    (folder / "notes.txt").write_text("mine")
    (folder / "poster.png").write_text("mine")
    with pytest.raises(OutputError, match="is not empty"):
        write(folder, tracked_frame(0))
    write(folder, tracked_frame(0), force=True)
    assert sorted(path.name for path in folder.iterdir()) == ["00000.png", "notes.txt", "poster.png"]


FILL_THE_DISK = """
import resource, sys
from sam3_stream.core.errors import SinkError
from sam3_stream.stages.sinks.davis import DavisSink
from tests.stages.sinks.tracked import HEADER, stream_info, tracked_frame

sink = DavisSink(sys.argv[1])
sink.open(stream_info(), HEADER)
sink.write(tracked_frame(0))
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    sink.write(tracked_frame(1))
except SinkError as error:
    print(error)
sink.close()
"""


def test_a_full_disk_is_named_and_leaves_whole_pictures(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = [sys.executable, "-c", FILL_THE_DISK, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"cannot write frame 1 to {folder}: File too large" in result.stdout
    assert [path.name for path in folder.iterdir()] == ["00000.png"]
