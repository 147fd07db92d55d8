"""Where an output goes: whether it can, and what went wrong when it could not."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import av

from sam3_stream.core.errors import OutputError, SinkError


def check_output_file(path: Path, *, force: bool, source: Path | None = None, device: bool = False) -> None:
    """Raise `OutputError` unless a file can be written at `path`; change nothing.

    Args:
        path: The file to be.
        force: Whether a file that is there may be replaced.
        source: The input, which is never replaced.
        device: Whether it may be a device or a pipe, which take bytes but cannot be rewritten.
    """
    with _refusing(path):
        _check_file(path, force, source, device)


def _check_file(path: Path, force: bool, source: Path | None, device: bool) -> None:
    _check_not_source(path, source)
    if path.is_dir():
        raise OutputError(f"the output {path} is a folder, expected the name of a file: write {path}/NAME")
    if path.exists():
        if not force:
            raise OutputError(f"the output {path} exists already: give another name, or --force to replace it")
        if not device and not path.is_file():
            raise OutputError(f"the output {path} is not a file, but a device or the like: give another name")
        if not os.access(path, os.W_OK):
            raise OutputError(f"the output {path} exists and may not be written: change its permissions or its name")
        if not path.is_file():
            return  # nothing is made beside a device or a pipe
    _check_folder_writable(path.absolute().parent, path)


def check_output_folder(path: Path, *, force: bool, source: Path | None = None) -> None:
    """Raise `OutputError` unless `path` is an empty folder that can be written, or can become one; change nothing.

    With `force` the folder need not be empty.
    """
    with _refusing(path):
        _check_folder(path, force, source)


def _check_folder(path: Path, force: bool, source: Path | None) -> None:
    _check_not_source(path, source)
    if not path.exists():
        _check_folder_writable(path.absolute().parent, path)
        return
    if not path.is_dir():
        raise OutputError(f"the output {path} is a file, expected a folder: give another name")
    if any(path.iterdir()) and not force:
        raise OutputError(f"the output folder {path} is not empty: give another, or --force to replace its pictures")
    _check_folder_writable(path, path)


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn what the operating system says to a path into an `OutputError`: no permission, a name that is too long."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise OutputError(f"the output {str(path)[:200]!r} cannot be used: {why}; give another name") from error


@contextlib.contextmanager
def reporting(path: Path, action: str) -> Iterator[None]:
    """Turn an operating system's or FFmpeg's error into a `SinkError` that says what could not be done, and why."""
    try:
        yield
    except (OSError, av.FFmpegError) as error:
        raise SinkError(f"cannot {action} {path}: {reason(error)}; what was written before is kept") from error


def remove_if_empty(path: Path) -> None:
    """Do not leave a file behind that nothing could be written to."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size == 0:
            path.unlink()


def ffmpeg_name(path: Path) -> str:
    """A file's name such that a colon or a leading dash in it means nothing to FFmpeg."""
    return f"file:{path}"


def reason(error: OSError | av.FFmpegError) -> str:
    """The operating system's or FFmpeg's own words for an error, without numbers and file names."""
    return error.strerror or str(error)


def _check_not_source(path: Path, source: Path | None) -> None:
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise OutputError(f"the output {path} is the input itself: give another name")


def _check_folder_writable(folder: Path, output: Path) -> None:
    if not folder.is_dir():
        raise OutputError(f"the output {output} cannot be made: the folder {folder} does not exist; make it first")
    try:
        # Asking for permissions is not enough: root may do anything, except on a read-only file system.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(
            f"the output {output} cannot be made: the folder {folder} cannot be written ({reason(error)})"
        ) from error
