"""An output that cannot be made is refused before any work, whoever runs the program."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sam3_stream.core.errors import OutputError
from sam3_stream.stages.sinks.output_place import check_output_file, check_output_folder

Check = Callable[..., None]
BOTH = pytest.mark.parametrize("check", [check_output_file, check_output_folder])


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """A folder that nobody may write to: for root, who may write anywhere, a read-only file system."""
    folder.mkdir()
    if os.geteuid() != 0:
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)
        return
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("root may write anywhere, and here even root may not mount a read-only file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@BOTH
def test_a_new_output_in_a_folder_that_can_be_written_is_fine_and_nothing_is_made(check: Check, tmp_path: Path) -> None:
    check(tmp_path / "out", force=False)
    assert list(tmp_path.iterdir()) == []


@BOTH
def test_the_folder_must_exist(check: Check, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"the folder .*/none does not exist; make it first"):
        check(tmp_path / "none" / "out", force=True)


@BOTH
def test_the_folder_must_not_be_read_only(check: Check, tmp_path: Path) -> None:
    with read_only(tmp_path / "locked") as folder, pytest.raises(OutputError, match="cannot be written"):
        check(folder / "out", force=True)


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    path.write_bytes(b"precious")
    with pytest.raises(OutputError, match=r"out\.mp4 exists already: give another name, or --force"):
        check_output_file(path, force=False)
    check_output_file(path, force=True)
    assert path.read_bytes() == b"precious"


def test_a_folder_is_not_a_file_and_a_file_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a folder, expected the name of a file"):
        check_output_file(tmp_path, force=True)
    with pytest.raises(OutputError, match="is a file, expected a folder"):
        check_output_folder(tmp_path / "file", force=True)


def test_a_device_is_not_replaced_by_a_file() -> None:
    with pytest.raises(OutputError, match="is not a file, but a device"):
        check_output_file(Path("/dev/null"), force=True)


def test_a_folder_with_something_in_it_needs_force(tmp_path: Path) -> None:
    check_output_folder(tmp_path, force=False)
    (tmp_path / "00000.png").touch()
    with pytest.raises(OutputError, match="is not empty"):
        check_output_folder(tmp_path, force=False)
    check_output_folder(tmp_path, force=True)


@BOTH
def test_the_input_is_never_replaced_whatever_it_is_called(check: Check, tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.mkdir() if check is check_output_folder else source.touch()
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(OutputError, match="is the input itself"):
        check(tmp_path / "link", force=True, source=source)
