"""The metrics of the DAVIS benchmark against its definitions, written out the slow way."""

import numpy as np
import pytest

from benchmarks.davis_metrics import boundary, contour_accuracy, region_similarity


def rectangle(top: int, left: int, bottom: int, right: int, shape: tuple[int, int] = (60, 80)) -> np.ndarray:
    mask = np.zeros(shape, np.bool_)
    mask[top:bottom, left:right] = True
    return mask


def test_region_similarity_is_intersection_over_union():
    assert region_similarity(rectangle(10, 10, 20, 20), rectangle(10, 15, 20, 25)) == pytest.approx(50 / 150)
    assert region_similarity(rectangle(0, 0, 5, 5), rectangle(10, 10, 20, 20)) == 0
    assert region_similarity(np.zeros((4, 4), np.bool_), np.zeros((4, 4), np.bool_)) == 1


def test_boundary_is_that_of_the_reference_code():
    """`_seg2bmap`: a pixel differs from its east, south or south-east neighbour; nothing lies beyond the picture."""
    mask = np.random.default_rng(0).random((13, 17)) > 0.6
    east, south, south_east = np.zeros_like(mask), np.zeros_like(mask), np.zeros_like(mask)
    east[:, :-1], south[:-1, :], south_east[:-1, :-1] = mask[:, 1:], mask[1:, :], mask[1:, 1:]
    expected = mask ^ east | mask ^ south | mask ^ south_east
    expected[-1, :] = mask[-1, :] ^ east[-1, :]
    expected[:, -1] = mask[:, -1] ^ south[:, -1]
    expected[-1, -1] = False
    np.testing.assert_array_equal(boundary(mask)[:-1, :-1], expected[:-1, :-1])


def test_contour_accuracy_allows_the_tolerance_and_no_more():
    truth = rectangle(10, 10, 40, 50)
    assert contour_accuracy(truth, truth) == 1
    assert contour_accuracy(rectangle(11, 11, 41, 51), truth, bound_th=2) == 1
    moved_far = contour_accuracy(rectangle(16, 16, 46, 56), truth, bound_th=2)
    assert 0 < moved_far < 0.3


def test_contour_accuracy_of_empty_masks():
    empty, some = np.zeros((20, 20), np.bool_), rectangle(5, 5, 10, 10, (20, 20))
    assert contour_accuracy(empty, empty) == 1
    assert contour_accuracy(some, empty) == 0
    assert contour_accuracy(empty, some) == 0


def test_tolerance_at_480p_is_eight_pixels():
    truth = rectangle(100, 100, 300, 400, (480, 854))
    assert contour_accuracy(rectangle(108, 100, 308, 400, (480, 854)), truth) == 1
    assert contour_accuracy(rectangle(109, 100, 309, 400, (480, 854)), truth) < 1
