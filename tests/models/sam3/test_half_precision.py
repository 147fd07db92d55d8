"""Half precision gives the masks of FP32, by a gate that garbage does not pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from sam3_stream.core.records import ImageArray
from sam3_stream.models.sam3 import TrackerOptions, load_sam3, precision
from sam3_stream.models.sam3.precision import set_precision
from tests.models.sam3.conftest import SaveCheckpoint, box, clicks, frame_of
from tests.support.sam3_checkpoints import calibrated_model, moving_picture, to_pixels

OPTIONS = TrackerOptions(max_objects=3, hole_area=0, sprinkle_area=0, non_overlapping=False)
IOU_GATE, COSINE_GATE = 0.97, 0.99


def track(folder: Path, pictures: Sequence[ImageArray], dtype: str, device: str = "cpu") -> tuple[list, list]:
    """Masks and mask logits of two clicked objects and a boxed one, frame by frame."""
    model = load_sam3(folder, device=device, dtype=dtype, options=OPTIONS)
    session = model.open_session(lambda: 1)
    height, width = pictures[0].shape[:2]
    prompts = [
        clicks(1, (width * 0.45, height * 0.4)),
        clicks(2, (width * 0.25, height * 0.6)),
        box(3, width * 0.35, height * 0.2, width * 0.7, height * 0.85),
    ]
    masks, logits = [], []
    for number, picture in enumerate(pictures):
        tracked = session.step(model.encode([frame_of(picture, number)])[0], prompts if number == 0 else ())
        masks.append(np.stack([one.mask for one in tracked.objects]))
        logits.append(session._bank.logits_shw.float().cpu().numpy().copy())
    return masks, logits


def agreement(wanted: tuple[list, list], found: tuple[list, list]) -> tuple[float, float]:
    """The worst mask IoU, and the worst cosine between mask logits."""
    ious, cosines = [], []
    for mask, other in zip(np.concatenate(wanted[0]), np.concatenate(found[0]), strict=True):
        union = (mask | other).sum()
        ious.append((mask & other).sum() / union if union else 1.0)
    for one, other in zip(np.concatenate(wanted[1]), np.concatenate(found[1]), strict=True):
        cosines.append((one * other).sum() / (np.linalg.norm(one) * np.linalg.norm(other)))
    return float(np.min(ious)), float(np.nan_to_num(cosines, nan=-1.0).min())


def assert_agrees(wanted: tuple[list, list], found: tuple[list, list]) -> None:
    iou, cosine = agreement(wanted, found)
    assert iou > IOU_GATE
    assert cosine > COSINE_GATE


@pytest.mark.data
@pytest.mark.parametrize("sequence", ["camel", "goat"])
def test_bf16_masks_on_real_pictures_are_those_of_fp32(checkpoint: SaveCheckpoint, davis_root: Path, sequence: str):
    files = sorted((davis_root / "JPEGImages" / sequence).glob("*.jpg"))[:40]
    pictures = [cv2.cvtColor(cv2.imread(str(file)), cv2.COLOR_BGR2RGB) for file in files]
    assert len(pictures) == 40
    wanted = track(checkpoint(14), pictures, "fp32")
    assert 0.05 < np.mean(wanted[0]) < 0.95
    assert_agrees(wanted, track(checkpoint(14), pictures, "bf16"))


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_masks_are_those_of_fp32(checkpoint: SaveCheckpoint, dtype: str):
    pictures = [moving_picture(number) for number in range(12)]
    assert_agrees(track(checkpoint(14), pictures, "fp32"), track(checkpoint(14), pictures, dtype))


def _too_coarse(module: nn.Module, args: tuple) -> tuple:
    return (args[0].to(torch.float8_e5m2).to(module.weight.dtype), *args[1:])


def _clipped(module: nn.Module, args: tuple) -> tuple:
    return (args[0].clamp(-1, 1).to(module.weight.dtype), *args[1:])


def _zeroed(module: nn.Module, args: tuple) -> tuple:
    return (torch.zeros_like(args[0]).to(module.weight.dtype), *args[1:])


@pytest.mark.parametrize("broken", [_too_coarse, _clipped, _zeroed])
def test_a_broken_half_precision_path_fails_the_gate(
    checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch, broken: Callable[[nn.Module, tuple], tuple]
):
    pictures = [moving_picture(number) for number in range(4)]
    wanted = track(checkpoint(14), pictures, "fp32")
    monkeypatch.setattr(precision, "_cast_input_to_weight", broken)
    found = track(checkpoint(14), pictures, "bf16")
    assert np.isfinite(np.concatenate(found[1])).all(), "the gate must find what a look for NaN does not"
    with pytest.raises(AssertionError):
        assert_agrees(wanted, found)


def test_fp16_does_not_overflow_where_everything_in_fp16_does():
    """One channel of the residual stream at 80,000, beyond what FP16 holds: such outliers are common in large ViTs."""
    trunk = copy.deepcopy(calibrated_model(14).detector_model.vision_encoder.backbone)
    with torch.no_grad():
        for layer, push in zip(trunk.layers, (40_000.0, -40_000.0), strict=True):
            layer.attention.o_proj.bias[0] += push
            layer.mlp.fc2.bias[0] += push
    pixels = to_pixels([moving_picture(0)], 112)
    trunk.requires_grad_(False)
    wanted = trunk(pixels).last_hidden_state[..., 1:]
    everything = copy.deepcopy(trunk).half()
    assert not torch.isfinite(everything(pixels.half()).last_hidden_state).all()

    set_precision(trunk, torch.float16)
    found = trunk(pixels).last_hidden_state[..., 1:]
    assert torch.isfinite(found).all()
    assert float(torch.cosine_similarity(wanted.flatten(), found.flatten(), dim=0)) > 0.999


def test_decisions_and_sums_stay_in_fp32(checkpoint: SaveCheckpoint):
    model = load_sam3(checkpoint(14), device="cpu", dtype="fp16", max_objects=1)
    with model.engine() as engine:
        network = engine.network
        assert network.trunk.layers[0].mlp.fc1.weight.dtype == torch.float16
        assert network.trunk.layers[0].layer_norm1.weight.dtype == torch.float32
        assert network.tracker.mask_decoder.pred_obj_score_head.proj_out.weight.dtype == torch.float32
        assert network.tracker.mask_decoder.iou_prediction_head.proj_out.weight.dtype == torch.float32


def test_no_autocast_is_left_on(checkpoint: SaveCheckpoint):
    track(checkpoint(14), [moving_picture(0)], "bf16")
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_default_dtype() == torch.float32
