from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import Frame
from sam3_stream.models.lite import LiteModel, load_lite

ReadFrame = Callable[[str, int], tuple[Frame, np.ndarray]]


@pytest.fixture(scope="package")
def model() -> LiteModel:
    return load_lite()


@pytest.fixture(scope="package")
def read_davis(davis_root: Path) -> ReadFrame:
    """A frame of a DAVIS sequence and its true mask."""

    def read(sequence: str, number: int) -> tuple[Frame, np.ndarray]:
        image = cv2.imread(str(davis_root / "JPEGImages" / sequence / f"{number:05d}.jpg"))
        mask = cv2.imread(str(davis_root / "Annotations" / sequence / f"{number:05d}.png"), cv2.IMREAD_GRAYSCALE) > 127
        picture = ArrayPicture(np.ascontiguousarray(image[:, :, ::-1]))
        return Frame(sequence, number, number, Fraction(1, 24), picture), mask

    return read


def iou(mask: np.ndarray, truth: np.ndarray) -> float:
    return np.count_nonzero(mask & truth) / np.count_nonzero(mask | truth)
