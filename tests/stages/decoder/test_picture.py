from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from PIL import Image

from sam3_stream.core.records import Frame
from sam3_stream.stages.decoder import VideoDecoder, open_source
from tests.support.clips import CORNER_COLORS, draw_frame, read_corners, read_number, write_clip, write_images


def first_frame(path: Path) -> Frame:
    with VideoDecoder(path) as video:
        return next(video)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("size", [(64, 48), (53, 31), (320, 240)])
def test_a_scaled_picture_is_upright_and_of_the_size_asked_for(
    rotation: int, size: tuple[int, int], tmp_path: Path
) -> None:
    picture = first_frame(write_clip(tmp_path / "clip.mp4", rotation=rotation)).picture
    image = picture.to_ndarray("rgb24", size)
    assert image.shape == (size[1], size[0], 3)
    for corner, color in CORNER_COLORS.items():
        np.testing.assert_allclose(read_corners(image, (160, 120))[corner], color, atol=30, err_msg=corner)
    reference = cv2.resize(draw_frame(0, (160, 120)), size, interpolation=cv2.INTER_AREA)
    assert np.abs(image.astype(int) - reference).mean() < 8


def test_channels_come_in_the_order_asked_for(tmp_path: Path) -> None:
    picture = first_frame(write_clip(tmp_path / "clip.mp4")).picture
    np.testing.assert_array_equal(picture.to_ndarray("bgr24"), picture.to_ndarray("rgb24")[:, :, ::-1])
    scaled = {order: picture.to_ndarray(order, (64, 48)).astype(int) for order in ("rgb24", "bgr24")}
    np.testing.assert_allclose(scaled["bgr24"], scaled["rgb24"][:, :, ::-1], atol=5)  # swscale rounds them differently


@pytest.mark.parametrize(
    ("name", "size", "codec", "pix_fmt"),
    [
        ("clip.mp4", (160, 120), "libx264", "yuv420p"),
        ("clip.webm", (85, 61), "libvpx-vp9", "yuv420p"),
        ("clip.mov", (160, 120), "png", "rgb24"),
    ],
)
@pytest.mark.parametrize("rotation", [0, 90])
def test_every_array_is_the_callers_own(
    name: str, size: tuple[int, int], codec: str, pix_fmt: str, rotation: int, tmp_path: Path
) -> None:
    path = write_clip(
        tmp_path / name, frames=1, size=size, codec=codec, pix_fmt=pix_fmt, rotation=0 if "webm" in name else rotation
    )
    picture = first_frame(path).picture
    image = picture.to_ndarray()
    assert image.flags.c_contiguous
    assert image.flags.writeable
    assert image.dtype == np.uint8
    before = image.copy()
    image[:] = 0
    np.testing.assert_array_equal(picture.to_ndarray(), before)


def test_threads_may_convert_the_same_pictures_at_once(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", frames=8, size=(320, 240), color_space="bt709")
    with VideoDecoder(path) as video:
        pictures = [frame.picture for frame in video]
    jobs = [
        (picture, pixel_format, size)
        for picture in pictures
        for pixel_format in ("rgb24", "bgr24")
        for size in (None, (100, 75), (320, 240), (33, 77))
    ] * 4
    expected = [picture.to_ndarray(pixel_format, size) for picture, pixel_format, size in jobs]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda job: job[0].to_ndarray(job[1], job[2]), jobs))
    for result, image in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, image)


def test_a_picture_outlives_its_decoder(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", frames=24)
    with VideoDecoder(path) as video:
        frames = list(video)
    assert [read_number(frame.picture.to_ndarray()) for frame in frames] == list(range(24))


def test_what_is_transparent_is_shown_on_white(tmp_path: Path) -> None:
    rgba = np.zeros((48, 64, 4), np.uint8)
    rgba[:, :32] = (200, 0, 0, 255)
    rgba[:24, 32:] = (0, 0, 200, 128)
    Image.fromarray(rgba).save(tmp_path / "0.png")
    with open_source(tmp_path) as folder:
        image = next(iter(folder)).picture.to_ndarray()
    assert image[5, 5].tolist() == [200, 0, 0]
    assert image[5, 50].tolist() == [127, 127, 227]
    assert image[40, 50].tolist() == [255, 255, 255]


def test_a_transparent_gif_is_shown_on_white(tmp_path: Path) -> None:
    pages = []
    for number in range(3):
        page = Image.new("RGBA", (64, 48), (0, 0, 0, 0))
        page.paste((250, 0, 0, 255), (10 * number, 10, 10 * number + 10, 20))
        pages.append(page)
    pages[0].save(tmp_path / "clip.gif", save_all=True, append_images=pages[1:], duration=100, disposal=2)
    with VideoDecoder(tmp_path / "clip.gif") as video:
        images = [frame.picture.to_ndarray() for frame in video]
    assert len(images) == 3
    for number, image in enumerate(images):
        assert image[15, 10 * number + 5].tolist() == [250, 0, 0]
        assert image[40, 60].tolist() == [255, 255, 255]
        assert image[15, 45].tolist() == [255, 255, 255]


def test_16_bit_and_gray_images_keep_their_brightness(tmp_path: Path) -> None:
    gradient = np.tile(np.linspace(0, 65535, 64).astype(np.uint16), (48, 1))
    cv2.imwrite(str(tmp_path / "0.png"), gradient)
    cv2.imwrite(str(tmp_path / "1.png"), (gradient >> 8).astype(np.uint8))
    cv2.imwrite(str(tmp_path / "2.png"), np.dstack([gradient] * 3))
    with open_source(tmp_path) as folder:
        for frame in folder:
            expected = (gradient >> 8).astype(int)[:, :, None].repeat(3, axis=2)
            np.testing.assert_allclose(frame.picture.to_ndarray().astype(int), expected, atol=1)


def test_a_jpeg_has_the_colors_that_other_readers_see(tmp_path: Path) -> None:
    folder = write_images(tmp_path, frames=1, suffix=".jpg")
    with open_source(folder) as images:
        image = next(iter(images)).picture.to_ndarray()
    reference = np.asarray(Image.open(tmp_path / "00000.jpg").convert("RGB")).astype(int)
    assert np.abs(image.astype(int) - reference).mean() < 4


def test_converting_leaves_the_decoders_frame_as_it_was(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", frames=1, color_space="bt709")
    frame = first_frame(path)
    reference = next(av.open(str(path)).decode(video=0))
    frame.picture.to_ndarray("rgb24", (64, 48))
    np.testing.assert_array_equal(frame.picture.to_ndarray(), reference.to_ndarray(format="rgb24"))
