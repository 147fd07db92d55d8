import numpy as np
import pytest

from sam3_stream.core.pictures import ArrayPicture


def gradient(height: int = 40, width: int = 60) -> np.ndarray:
    rgb = np.zeros((height, width, 3), np.uint8)
    rgb[:, :, 0] = 200
    rgb[:, :, 2] = np.arange(width, dtype=np.uint8)
    return rgb


def test_gives_the_pixels_in_the_order_asked_for():
    rgb = gradient()
    picture = ArrayPicture(rgb)
    assert (picture.width, picture.height) == (60, 40)
    np.testing.assert_array_equal(picture.to_ndarray("rgb24"), rgb)
    np.testing.assert_array_equal(picture.to_ndarray("bgr24"), rgb[:, :, ::-1])


def test_scales_to_width_by_height():
    small = ArrayPicture(gradient()).to_ndarray("rgb24", size=(30, 10))
    assert small.shape == (10, 30, 3)
    assert small[5, 10, 0] == 200
    assert abs(int(small[5, 10, 2]) - 20) <= 1


def test_the_result_belongs_to_the_caller():
    rgb = gradient()
    ArrayPicture(rgb).to_ndarray("rgb24")[:] = 0
    assert rgb[0, 0, 0] == 200


def test_refuses_what_is_not_an_rgb_picture():
    with pytest.raises(ValueError, match="expected a uint8 array"):
        ArrayPicture(np.zeros((4, 4), np.uint8))
