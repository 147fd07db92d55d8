"""What only a GPU can show. Skips where there is none, and fails where there is one that PyTorch cannot use."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from sam3_stream.models.sam3 import load_sam3
from tests.models.sam3.conftest import SaveCheckpoint
from tests.models.sam3.test_half_precision import assert_agrees, track
from tests.support.sam3_checkpoints import moving_picture

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def cuda() -> None:
    if not torch.cuda.is_available():
        if shutil.which("nvidia-smi"):
            pytest.fail("there is a GPU, and PyTorch cannot use it")
        pytest.skip("needs a GPU")


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_half_precision_on_the_gpu_gives_the_masks_of_fp32_on_the_cpu(checkpoint: SaveCheckpoint, dtype: str):
    pictures = [moving_picture(number) for number in range(40)]
    assert_agrees(track(checkpoint(14), pictures, "fp32"), track(checkpoint(14), pictures, dtype, device="cuda"))


def test_fp32_on_the_gpu_gives_the_masks_of_the_cpu(checkpoint: SaveCheckpoint):
    pictures = [moving_picture(number) for number in range(20)]
    wanted, found = track(checkpoint(14), pictures, "fp32"), track(checkpoint(14), pictures, "fp32", device="cuda")
    assert np.mean([(one == other).mean() for one, other in zip(wanted[0], found[0], strict=True)]) > 0.995


def test_device_memory_does_not_grow(checkpoint: SaveCheckpoint):
    pictures = [moving_picture(number) for number in range(20)]
    track(checkpoint(14), pictures, "bf16", device="cuda")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    track(checkpoint(14), pictures * 5, "bf16", device="cuda")
    assert torch.cuda.memory_allocated() <= before + 1_000_000


def test_auto_takes_the_gpu_and_half_precision():
    from sam3_stream.models.sam3.precision import resolve_device, resolve_dtype

    device = resolve_device("auto")
    assert device.type == "cuda"
    assert resolve_dtype("auto", device) in (torch.bfloat16, torch.float16)


def test_weights_load_onto_the_gpu(checkpoint: SaveCheckpoint):
    model = load_sam3(checkpoint(14), device="cuda", warmup=True, max_objects=1)
    with model.engine() as engine:
        assert engine.network.device.type == "cuda"
