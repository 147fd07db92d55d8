from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sam3_stream.core.errors import DecodeError, InputError
from sam3_stream.core.records import Frame
from sam3_stream.stages.decoder import ImageFolderDecoder, open_source
from tests.support.clips import draw_frame, read_number, write_images


def numbers(frames: list[Frame]) -> list[int]:
    return [read_number(frame.picture.to_ndarray()) for frame in frames]


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".JPEG", ".bmp", ".tif", ".webp", ".ppm"])
def test_images_are_frames_in_name_order(suffix: str, tmp_path: Path) -> None:
    write_images(tmp_path, frames=12, suffix=suffix)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden.png").write_text("not an image either")
    (tmp_path / "folder.png").mkdir()
    with open_source(tmp_path) as images:
        info, frames = images.info, list(images)
    assert numbers(frames) == list(range(12))
    assert [frame.sequence for frame in frames] == list(range(12))
    assert (info.width, info.height, info.frame_count, info.average_rate) == (160, 120, 12, 24)
    assert info.duration_s == pytest.approx(0.5)
    assert [frame.time_s for frame in frames] == [index / 24 for index in range(12)]


def test_numbers_in_names_count_as_numbers(tmp_path: Path) -> None:
    write_images(tmp_path, frames=12, digits=1)
    assert numbers(list(open_source(tmp_path))) == list(range(12))


def test_the_frame_rate_gives_the_times(tmp_path: Path) -> None:
    write_images(tmp_path, frames=6)
    images = open_source(tmp_path, image_fps=Fraction(30000, 1001), start_s=0.1)
    frames = list(images)
    assert [frame.pts for frame in frames] == [3, 4, 5]
    assert [frame.sequence for frame in frames] == [0, 1, 2]
    assert frames[0].time_s == pytest.approx(3 * 1001 / 30000)


def test_the_window(tmp_path: Path) -> None:
    write_images(tmp_path, frames=24)
    assert numbers(list(open_source(tmp_path, start_s=0.25, end_s=0.5))) == list(range(6, 12))
    later = list(open_source(tmp_path, start_s=0.25, max_frames=8, first_sequence=5))
    assert numbers(later) == [11, 12, 13]
    assert [frame.sequence for frame in later] == [5, 6, 7]
    with pytest.raises(InputError, match="24 images run to 1 s"):
        open_source(tmp_path, start_s=5)


@pytest.mark.parametrize(("orientation", "transform"), [
    (2, Image.Transpose.FLIP_LEFT_RIGHT),
    (3, Image.Transpose.ROTATE_180),
    (4, Image.Transpose.FLIP_TOP_BOTTOM),
    (5, Image.Transpose.TRANSPOSE),
    (6, Image.Transpose.ROTATE_90),
    (7, Image.Transpose.TRANSVERSE),
    (8, Image.Transpose.ROTATE_270),
])  # fmt: skip
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_images_are_turned_as_exif_says(
    orientation: int, transform: Image.Transpose, suffix: str, tmp_path: Path
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = draw_frame(9, (160, 120))
    coded = Image.fromarray(upright).transpose(transform)  # what a camera held that way records
    coded.save(tmp_path / f"0{suffix}", exif=exif, quality=95)
    with open_source(tmp_path) as images:
        frame = next(iter(images))
    assert (images.info.width, images.info.height) == (160, 120)
    assert np.abs(frame.picture.to_ndarray().astype(int) - upright).mean() < 8
    assert read_number(frame.picture.to_ndarray()) == 9


def test_photos_taken_upright_and_sideways_go_together(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(draw_frame(0, (120, 160))).save(tmp_path / "0.jpg")
    Image.fromarray(draw_frame(1, (120, 160))).transpose(Image.Transpose.ROTATE_90).save(tmp_path / "1.jpg", exif=exif)
    frames = list(open_source(tmp_path))
    assert numbers(frames) == [0, 1]
    assert [frame.rotation for frame in frames] == [0, 90]


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no images; expected files that end in"):
        open_source(tmp_path)


def test_images_of_different_sizes(tmp_path: Path) -> None:
    write_images(tmp_path, frames=3)
    write_images(tmp_path, frames=1, first=3, size=(320, 240))
    with pytest.raises(InputError, match=r"00003\.png is 320x240, but the images before it are 160x120"):
        open_source(tmp_path)


def test_a_file_that_is_no_image(tmp_path: Path) -> None:
    write_images(tmp_path, frames=3)
    (tmp_path / "00001.png").write_text("no image")
    with pytest.raises(InputError, match=r"00001\.png cannot be read as an image"):
        open_source(tmp_path)


def test_a_broken_image_is_left_out_and_reported(tmp_path: Path) -> None:
    write_images(tmp_path, frames=5)
    broken = tmp_path / "00002.png"
    broken.write_bytes(broken.read_bytes()[:60])
    frames: list[Frame] = []
    with (
        ImageFolderDecoder(tmp_path) as images,
        pytest.raises(DecodeError, match=r"1 of 5 images .* the first is 00002\.png; 4 frames delivered"),
    ):
        frames.extend(images)
    assert numbers(frames) == [0, 1, 3, 4]
    assert [frame.pts for frame in frames] == [0, 1, 3, 4]


@pytest.mark.data
def test_davis_sequences(davis_root: Path) -> None:
    folder = next(path for path in sorted((davis_root / "JPEGImages").iterdir()) if path.is_dir())
    paths = sorted(folder.glob("*.jpg"))
    with open_source(folder) as images:
        frames = list(images)
    assert len(frames) == len(paths)
    reference = np.asarray(Image.open(paths[3]).convert("RGB")).astype(int)
    assert np.abs(frames[3].picture.to_ndarray().astype(int) - reference).mean() < 3
