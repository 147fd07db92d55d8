"""GPU memory runs out: fewer objects a batch, then a lower resolution, said in the log, never the end.

There is no GPU here whose memory could be filled, so modules raise what PyTorch raises when a batch is too large.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from sam3_stream.core.errors import RunError
from sam3_stream.models.sam3 import Sam3Model, load_sam3
from sam3_stream.models.sam3.image_encoder import ImageEncoder
from sam3_stream.models.sam3.mask_decoder import MaskDecoder
from sam3_stream.models.sam3.memory_encoder import MemoryEncoder
from tests.models.sam3.conftest import SaveCheckpoint, clicks, frame_of
from tests.support.sam3_checkpoints import moving_picture

PROMPTS = [clicks(number, (15.0 * number, 10.0 * number)) for number in range(1, 7)]


def run(model: Sam3Model, frames: int = 4) -> list[list[np.ndarray]]:
    session = model.open_session(lambda: 1)
    tracked = []
    for number in range(frames):
        encoded = model.encode([frame_of(moving_picture(number), number)])[0]
        tracked.append(session.step(encoded, PROMPTS if number == 0 else ()))
    assert all([one.object_id for one in frame.objects] == [1, 2, 3, 4, 5, 6] for frame in tracked)
    return [[one.mask for one in frame.objects] for frame in tracked]


def open_model(checkpoint: SaveCheckpoint) -> Sam3Model:
    return load_sam3(checkpoint(), device="cpu", max_objects=6)


@pytest.mark.parametrize(("part", "method"), [(MaskDecoder, "decode"), (MemoryEncoder, "encode")])
def test_fewer_objects_a_batch_give_the_same_masks(
    checkpoint: SaveCheckpoint,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: type,
    method: str,
):
    wanted = run(open_model(checkpoint))
    original = getattr(part, method)
    largest: list[int] = []

    def small_gpu(self, *inputs, **options):
        count = len(options["points_n1pc"] if part is MaskDecoder else inputs[1])
        if count > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        largest.append(count)
        return original(self, *inputs, **options)

    monkeypatch.setattr(part, method, small_gpu)
    with caplog.at_level(logging.WARNING, "sam3_stream.models.sam3"):
        found = run(open_model(checkpoint))
    assert max(largest) <= 2
    assert "GPU memory ran out with 6 objects in a batch; going on with 3" in caplog.text
    for frame, other in zip(wanted, found, strict=True):
        for mask, same in zip(frame, other, strict=True):
            assert (mask == same).mean() > 0.999


def test_pictures_go_in_smaller_batches(checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch):
    model = open_model(checkpoint)
    encode = ImageEncoder.encode
    sizes: list[int] = []

    def small_gpu(self, pixels, tables):
        if len(pixels) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(len(pixels))
        return encode(self, pixels, tables)

    monkeypatch.setattr(ImageEncoder, "encode", small_gpu)
    encoded = model.encode([frame_of(moving_picture(number), number) for number in range(5)])
    assert [one.frame.sequence for one in encoded] == [0, 1, 2, 3, 4]
    assert sizes == [2, 2, 1]
    assert model.resolution == 112


@pytest.mark.parametrize("place", ["encoder", "session"])
def test_when_not_even_one_fits_the_resolution_goes_down_and_the_tracks_go_on(
    checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
):
    part, method = (ImageEncoder, "encode") if place == "encoder" else (MaskDecoder, "decode")
    original = getattr(part, method)
    calls = 0

    def shrinking_gpu(self, *inputs, **options):
        nonlocal calls
        tables = inputs[1] if part is ImageEncoder else inputs[2]
        calls += 1
        if calls > 3 and tables.resolution > 56:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, *inputs, **options)

    monkeypatch.setattr(part, method, shrinking_gpu)
    model = open_model(checkpoint)
    with caplog.at_level(logging.WARNING, "sam3_stream.models.sam3"):
        run(model, 8)
    assert model.resolution == 56
    assert "GPU memory ran out at 112 px; going on at 56 px" in caplog.text


def test_at_the_lowest_resolution_it_says_what_to_do(checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch):
    def full_gpu(self, *inputs, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ImageEncoder, "encode", full_gpu)
    with pytest.raises(RunError, match=r"at the lowest resolution \(56 px\) too: track fewer objects"):
        run(open_model(checkpoint))
