"""A folder of images as a video."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import IMAGELENGTH, IMAGEWIDTH, TiffImageFile

from sam3_stream.core.errors import DecodeError, InputError, UsageError
from sam3_stream.core.records import Frame, StreamInfo
from sam3_stream.stages.decoder.orientation import Orientation
from sam3_stream.stages.decoder.picture import VideoPicture
from sam3_stream.stages.decoder.stream_reader import StreamReader
from sam3_stream.stages.decoder.window import Window

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
DEFAULT_FPS = 24
_EXIF_ORIENTATION = 0x0112


class ImageFolderDecoder:
    """Iterates the images of a folder in name order, numbers in names counted as numbers (``2.png`` before ``10.png``).

    Files that are no images by their suffix are left out, and so are hidden ones. Images are turned as their EXIF data
    say, converted to 8 bits a channel, and shown on white where they are transparent.

    Args:
        folder: Where the images are.
        stream_id: What the frames say they belong to.
        fps: Frames per second: the image of index i is shown at i / fps seconds.
        start_s: Leave out the frames before this time.
        end_s: Leave out the frames at or after this time.
        max_frames: End after this many frames, those before `first_sequence` included.
        first_sequence: Leave out the frames before this number of the window.

    Attributes:
        info: What is known of the images.

    Raises:
        InputError: There is no image, one cannot be read, or they differ in size.
        DecodeError: From the iteration, at its end: images could not be decoded. It says how many.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        stream_id: str = "0",
        fps: int | Fraction = DEFAULT_FPS,
        start_s: float | None = None,
        end_s: float | None = None,
        max_frames: int | None = None,
        first_sequence: int = 0,
    ) -> None:
        if fps <= 0:
            raise UsageError(f"the frame rate must be more than 0, got {fps}")
        self._folder = Path(folder)
        self._stream_id = stream_id
        self._window = Window(start_s, end_s, max_frames, first_sequence)
        self._time_base = 1 / Fraction(fps)
        self._paths = _list_images(self._folder)
        width, height = _check_sizes(self._paths)
        self.info = StreamInfo(
            width=width,
            height=height,
            time_base=self._time_base,
            average_rate=Fraction(fps),
            frame_count=len(self._paths),
            duration_s=float(len(self._paths) * self._time_base),
        )
        self._broken: list[str] = []
        self._frames = self._run(self.selected())

    def __iter__(self) -> Iterator[Frame]:
        return self._frames

    def close(self) -> None:
        """Nothing stays open between frames; here for the sake of `FrameSource`."""

    def __enter__(self) -> ImageFolderDecoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def selected(self) -> list[tuple[int, int]]:
        """Number and index of every image in the window.

        Raises:
            InputError: There is none.
        """
        timed = ((float(index * self._time_base), index) for index in range(len(self._paths)))
        chosen = list(self._window.select(timed))
        if not chosen and self._window.first_sequence == 0:
            raise InputError(
                f"no image of {self._folder} lies in the part asked for; at {1 / self._time_base} frames per second "
                f"the {len(self._paths)} images run to {self.info.duration_s:g} s"
            )
        return chosen

    def frames_of(self, numbered: Sequence[tuple[int, int]]) -> Iterator[Frame]:
        """The frames of these numbers and indices, in this order."""
        return self._run(numbered)

    def _run(self, numbered: Sequence[tuple[int, int]]) -> Iterator[Frame]:
        for number, index in numbered:
            frame = self._frame(number, index)
            if frame is not None:
                yield frame
        if self._broken:
            delivered = len(numbered) - len(self._broken)
            raise DecodeError(
                f"{len(self._broken)} of {len(numbered)} images in {self._folder} could not be decoded, the first is "
                f"{self._broken[0]}; {delivered} frames delivered"
            )

    def _frame(self, number: int, index: int) -> Frame | None:
        path = self._paths[index]
        try:
            _, orientation = _read_header(path)
            decoded = _decode(path)
        except InputError:
            self._broken.append(path.name)
            return None
        picture = VideoPicture(decoded, orientation)
        if (picture.width, picture.height) != (self.info.width, self.info.height):
            raise DecodeError(_size_message(path, (picture.width, picture.height), (self.info.width, self.info.height)))
        return Frame(
            stream_id=self._stream_id,
            sequence=number,
            pts=index,
            time_base=self._time_base,
            picture=picture,
            rotation=orientation.rotation,
            key_frame=True,
            corrupt=decoded.is_corrupt,
        )


def _decode(path: Path) -> av.VideoFrame:
    reader = StreamReader(path, frame_threads=False)
    try:
        decoded = next(iter(reader), None)
    finally:
        reader.close()
    if decoded is None:
        raise InputError(f"{path} cannot be decoded")
    return decoded


def _list_images(folder: Path) -> list[Path]:
    try:
        entries = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    except OSError as error:
        raise InputError(f"cannot read the folder {folder}: {error.strerror}") from error
    images = [path for path in entries if path.suffix.lower() in SUFFIXES]
    if not images:
        raise InputError(f"{folder} holds no images; expected files that end in {', '.join(SUFFIXES)}")
    return sorted(images, key=lambda path: _name_order(path.name))


def _name_order(name: str) -> list[tuple[int, int, str]]:
    """Sort key in which runs of digits compare as numbers, and before letters."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]


def _check_sizes(paths: Sequence[Path]) -> tuple[int, int]:
    """Displayed size of all images, from their headers.

    Looking at all of them first costs a tenth of a millisecond each, and saves a user an hour of tracking up to the one
    that does not fit.
    """
    expected, _ = _read_header(paths[0])
    for path in paths:
        size, _ = _read_header(path)
        if size != expected:
            raise InputError(_size_message(path, size, expected))
    return expected


def _size_message(path: Path, size: tuple[int, int], expected: tuple[int, int]) -> str:
    return (
        f"{path} is {size[0]}x{size[1]}, but the images before it are {expected[0]}x{expected[1]}; "
        "all images of a folder must have the same size"
    )


def _read_header(path: Path) -> tuple[tuple[int, int], Orientation]:
    """Displayed (width, height), and how to display the image."""
    try:
        with Image.open(path) as image:
            # To look for EXIF data behind the pixels, Pillow would decode a whole PNG.
            has_exif = image.format != "PNG" or "exif" in image.info
            orientation = Orientation.from_exif(image.getexif().get(_EXIF_ORIENTATION, 1) if has_exif else 1)
            # Newer Pillows give the size of a TIFF as displayed, older ones as coded.
            coded_size = image.size
            if isinstance(image, TiffImageFile):
                coded_size = image.tag_v2[IMAGEWIDTH], image.tag_v2[IMAGELENGTH]
            return orientation.size(coded_size), orientation
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as an image; remove it from the folder or replace it") from error
