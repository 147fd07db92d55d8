"""What the tests of the SAM 3 engine share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.core.records import Frame, ImageArray, MaskArray

torch = pytest.importorskip("torch", reason="needs sam3-stream[sam3]")
pytest.importorskip("transformers", reason="needs sam3-stream[sam3]")

SaveCheckpoint = Callable[..., Path]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread: small tensors gain nothing from more, and the machine is shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> SaveCheckpoint:
    """Gives the folder of a calibrated small checkpoint, saved once for each set of arguments."""
    from tests.support.sam3_checkpoints import calibrated_model

    saved: dict[tuple[int, int], Path] = {}

    def save(seed: int = 9, resolution: int = 112) -> Path:
        if (seed, resolution) not in saved:
            folder = tmp_path_factory.mktemp("sam3") / f"small-{seed}-{resolution}"
            calibrated_model(seed, resolution).save_pretrained(folder)
            saved[seed, resolution] = folder
        return saved[seed, resolution]

    return save


def frame_of(picture: ImageArray, number: int, stream_id: str = "test") -> Frame:
    """A frame of a 30 fps stream."""
    return Frame(stream_id, number, number, Fraction(1, 30), ArrayPicture(picture))


def clicks(
    object_id: int, *points: tuple[float, float], negative: tuple[tuple[float, float], ...] = ()
) -> ObjectPrompt:
    """Positive and negative clicks on an object."""
    return ObjectPrompt(
        object_id,
        f"prompt {object_id}",
        f"object {object_id}",
        np.array([*points, *negative], np.float32).reshape(-1, 2),
        np.array([True] * len(points) + [False] * len(negative), np.bool_),
    )


def box(object_id: int, *corners: float) -> ObjectPrompt:
    """A box around an object."""
    x0, y0, x1, y1 = corners
    return ObjectPrompt(object_id, f"prompt {object_id}", f"object {object_id}", box_xyxy=(x0, y0, x1, y1))


def mask(object_id: int, pixels: MaskArray) -> ObjectPrompt:
    """An object's mask."""
    return ObjectPrompt(object_id, f"prompt {object_id}", f"object {object_id}", mask=pixels)


def disc(center: tuple[float, float], radius: float, width: int = 160, height: int = 96) -> MaskArray:
    """The mask of a disc."""
    y, x = np.mgrid[:height, :width]
    return (x - center[0]) ** 2 + (y - center[1]) ** 2 < radius**2
