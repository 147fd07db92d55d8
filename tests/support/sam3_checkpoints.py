"""Small SAM 3 checkpoints with random weights that behave: masks move, objects come and go, and memory matters.

Weights as initialised make every comparison vacuous: all logits are equal and every object scores below zero. So they
are drawn wider here and the output heads are scaled (`measure`, whose results are `CALIBRATIONS`). What that gives is
asserted in tests/models/sam3/test_checkpoints.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import nn
from transformers import Sam3TrackerVideoModel, Sam3VideoConfig, Sam3VideoModel
from transformers.models.sam3.image_processing_sam3 import Sam3ImageProcessor
from transformers.models.sam3_tracker_video.modeling_sam3_tracker_video import Sam3TrackerVideoInferenceSession

PATCH = 14
MEMORY_GAINS = {
    "occlusion_spatial_embedding_parameter": 0.2,
    "no_object_pointer": 0.2,
    "cross_attn_image.o_proj": 0.15,
}


def small_config(*, resolution: int = 112, width: int = 128, trunk_layers: int = 2) -> Sam3VideoConfig:
    """A `Sam3VideoConfig` of two million tracker weights; `resolution` is the square picture's side in pixels."""
    grid = resolution // PATCH
    vision = {
        "backbone_config": {
            "model_type": "sam3_vit_model",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": trunk_layers,
            "num_attention_heads": 2,
            "image_size": resolution,
            "patch_size": PATCH,
            "window_size": 4,
            "global_attn_indexes": [trunk_layers - 1],
            "pretrain_image_size": 4 * PATCH,
        },
        "fpn_hidden_size": width,
        "backbone_feature_sizes": [[4 * grid] * 2, [2 * grid] * 2, [grid] * 2],
    }
    heads = {"hidden_size": width, "num_attention_heads": 2}
    detr = {**heads, "num_layers": 1, "intermediate_size": 128, "dropout": 0.0}
    detector = {
        "model_type": "sam3",
        "vision_config": vision,
        "text_config": {
            "model_type": "clip_text_model",
            "vocab_size": 1000,
            "hidden_size": 32,
            "intermediate_size": 64,
            "projection_dim": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "max_position_embeddings": 32,
            "bos_token_id": 998,
            "eos_token_id": 999,
        },
        "geometry_encoder_config": detr,
        "detr_encoder_config": detr,
        "detr_decoder_config": {**detr, "num_queries": 10},
        "mask_decoder_config": {**heads, "num_upsampling_stages": 3},
    }
    tracker = {
        "model_type": "sam3_tracker_video",
        "vision_config": {"model_type": "sam3_vision_model", **vision},
        "prompt_encoder_config": {"hidden_size": width, "image_size": resolution, "patch_size": PATCH},
        "mask_decoder_config": {**heads, "mlp_dim": 128, "iou_head_hidden_dim": 64},
        "image_size": resolution,
        "memory_attention_hidden_size": width,
        "memory_attention_num_layers": 2,
        "memory_attention_feed_forward_hidden_size": 128,
        "memory_encoder_hidden_size": width,
        "mask_downsampler_embed_dim": width,
        "memory_fuser_embed_dim": width,
        "memory_fuser_intermediate_dim": 128,
    }
    return Sam3VideoConfig(detector_config=detector, tracker_config=tracker, low_res_mask_size=4 * grid)


def draw_weights(model: nn.Module, seed: int) -> None:
    """Draw every weight anew, wide enough that signals neither die nor explode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.rsplit(".", 2)[-2] and name.endswith("weight"):
                parameter.fill_(1.0)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.05, generator=generator)
            elif name.endswith("scale"):  # the memory fuser's layer scale, which starts at one in a million
                parameter.fill_(0.5)
            elif parameter.ndim >= 2 and "embed" not in name and "encoding" not in name and "embedding" not in name:
                fan_in = parameter[0].numel()
                if "upscale_conv" in name or "scale_layers" in name:
                    fan_in = parameter.shape[0]
                parameter.normal_(0.0, 1.0 / math.sqrt(fan_in), generator=generator)
            else:
                parameter.normal_(0.0, 0.5, generator=generator)
            for part, gain in MEMORY_GAINS.items():
                if part in name:
                    parameter *= gain
        for name, buffer in model.named_buffers():
            if name.endswith("positional_embedding"):
                buffer.normal_(0.0, 1.0, generator=generator)


def reference_tracker(model: Sam3VideoModel, *, resolution: int | None = None) -> Sam3TrackerVideoModel:
    """`transformers`' own click tracker with this model's weights, its positional tables made for `resolution`."""
    config = model.config.tracker_config.__class__.from_dict(model.config.tracker_config.to_dict())
    if resolution is not None:
        config.image_size = resolution
    tracker = Sam3TrackerVideoModel(config).eval()
    prefixes = {
        "detector_model.vision_encoder.backbone.": "vision_encoder.backbone.",
        "tracker_neck.": "vision_encoder.neck.",
        "tracker_model.": "",
    }
    state = {}
    for key, value in model.state_dict().items():
        for old, new in prefixes.items():
            if key.startswith(old):
                state[new + key.removeprefix(old)] = value
    tracker.load_state_dict(state, strict=True)
    return tracker.to(next(model.parameters()).dtype)


def moving_picture(number: int, width: int = 160, height: int = 96) -> np.ndarray:
    """Frame `number` of an endless clip of three discs over moving waves: uint8 (height, width, 3), RGB."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    picture = np.empty((height, width, 3), np.float32)
    picture[..., 0] = 128 + 80 * np.sin(x / 15 + number * 0.1)
    picture[..., 1] = 128 + 80 * np.cos(y / 11 - number * 0.07)
    picture[..., 2] = 128 + 60 * np.sin((x + y) / 19)
    for disc, color in enumerate(((230, 40, 40), (40, 230, 40), (240, 240, 240))):
        center_x = (20 + 3 * number + 40 * disc) % width
        center_y = height * (0.2 + 0.27 * disc) + 5 * np.sin(number * 0.3 + disc)
        picture[(x - center_x) ** 2 + (y - center_y) ** 2 < 150] = color
    return picture.clip(0, 255).astype(np.uint8)


def to_pixels(pictures: Sequence[np.ndarray], resolution: int) -> torch.Tensor:
    """Pictures as the reference's own image processor makes them: float32 (n, 3, resolution, resolution)."""
    processor = Sam3ImageProcessor(size={"height": resolution, "width": resolution})
    images = [torch.from_numpy(picture).permute(2, 0, 1) for picture in pictures]
    return processor(images, return_tensors="pt").pixel_values


def run_reference(
    tracker: Sam3TrackerVideoModel, clicks: Sequence[tuple[float, float]], frames: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Track one object a click over the clip: mask logits (frames, n, h, w) and score logits (frames, n)."""
    dtype = next(tracker.parameters()).dtype
    session = Sam3TrackerVideoInferenceSession(dtype=dtype)
    scale = torch.tensor([tracker.image_size / 160, tracker.image_size / 96])
    logits, scores = [], []
    for index, (x, y) in enumerate(clicks):
        point = {
            "point_coords": (torch.tensor([x, y]) * scale).view(1, 1, 1, 2),
            "point_labels": torch.ones(1, 1, 1, dtype=torch.int64),
        }
        session.add_point_inputs(session.obj_id_to_idx(index + 1), 0, point)
    session.obj_with_new_inputs = list(session.obj_ids)
    for number in range(frames):
        out = tracker(session, frame=to_pixels([moving_picture(number)], tracker.image_size)[0].to(dtype))
        logits.append(out.pred_masks[:, 0])
        scores.append(out.object_score_logits.flatten())
    return torch.stack(logits), torch.stack(scores)


SAMPLE_CLICKS = ((20.0, 20.0), (60.0, 45.0), (100.0, 70.0))


@dataclass(frozen=True)
class Calibration:
    """Gain of the mask weights, gain of the score head, and the score head's bias."""

    mask_gain: float
    score_gain: float
    score_bias: float

    def apply(self, model: Sam3VideoModel) -> None:
        """Scale the model's heads."""
        decoder = model.tracker_model.mask_decoder
        head = decoder.pred_obj_score_head.proj_out
        with torch.no_grad():
            for mlp in decoder.output_hypernetworks_mlps:
                mlp.proj_out.weight *= self.mask_gain
                mlp.proj_out.bias *= self.mask_gain
            head.weight *= self.score_gain
            head.bias.fill_(self.score_bias)


# What `measure` found for the small configuration, so that tests need not search again.
CALIBRATIONS = {
    4: Calibration(3.8444, 37.0649, 6.6591),
    9: Calibration(2.4802, 17.5201, 10.0743),
    14: Calibration(3.3513, 23.3364, -24.3705),
}


def measure(seed: int, *, logits_std: float = 4.0, present: float = 0.7) -> Calibration:
    """Search the scales at which logits spread by `logits_std` and objects are `present` that share of the time."""
    with torch.no_grad():
        sure = Calibration(1.0, 1.0, 1000.0)  # first with every object present
        logits, scores = run_reference(reference_tracker(small_model(seed, sure)), SAMPLE_CLICKS, 24)
        mask_gain = logits_std / float(logits.std(dim=(2, 3)).mean())
        score_gain = 2.0 / float(scores[1:].std())
        raw = score_gain * (scores[1:] - 1000.0)
        low, high = -float(raw.max()) - 40, -float(raw.min()) + 40
        for _ in range(12):  # absence feeds on itself, so the share of presence is found by halving
            found = Calibration(mask_gain, score_gain, (low + high) / 2)
            _, scores = run_reference(reference_tracker(small_model(seed, found)), SAMPLE_CLICKS, 24)
            share = float((scores > 0).float().mean())
            if abs(share - present) < 0.1:
                break
            low, high = (found.score_bias, high) if share < present else (low, found.score_bias)
    return found


def small_model(seed: int, calibration: Calibration, resolution: int = 112) -> Sam3VideoModel:
    """A small float32 `Sam3VideoModel` with drawn weights."""
    model = Sam3VideoModel(small_config(resolution=resolution)).eval()
    draw_weights(model, seed)
    calibration.apply(model)
    return model


@lru_cache(maxsize=8)
def calibrated_model(seed: int = 9, resolution: int = 112) -> Sam3VideoModel:
    """One of the calibrated models; shared between callers, so copy it before changing it."""
    return small_model(seed, CALIBRATIONS[seed], resolution)


def smooth_picture(number: int, width: int = 160, height: int = 96) -> np.ndarray:
    """Frame `number` of an endless clip of slow colour gradients: uint8 (height, width, 3), RGB."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    picture = np.empty((height, width, 3), np.float32)
    picture[..., 0] = 128 + 100 * np.sin((x + 0.5 * number) / 50)
    picture[..., 1] = 128 + 100 * np.sin((y - 0.25 * number) / 35)
    picture[..., 2] = 128 + 80 * np.cos((x - y + 0.25 * number) / 60)
    return picture.clip(0, 255).astype(np.uint8)


@lru_cache(maxsize=1)
def smooth_model(seed: int = 2, resolution: int = 168) -> Sam3VideoModel:
    """A model whose masks follow colour on a coarse scale, so that they should not depend much on the resolution.

    Random weights give masks that are noise at the scale of a patch, which no two resolutions share. Here the patch
    embedding sees the mean colour, upsampling is even, and attention over positions counts for less. Objects are always
    there, and the second proposal always wins.
    """
    model = small_model(seed, Calibration(5.6829, 1.0, 1000.0), resolution)
    trunk, tracker = model.detector_model.vision_encoder.backbone, model.tracker_model
    decoder = tracker.mask_decoder
    with torch.no_grad():
        patch = trunk.embeddings.patch_embeddings.projection.weight
        patch.copy_((patch.sum(dim=(2, 3), keepdim=True) / PATCH**2).expand_as(patch))
        trunk.embeddings.position_embeddings.zero_()
        for layer in trunk.layers:
            layer.attention.o_proj.weight *= 0.1
            layer.mlp.fc2.weight *= 0.3
        for level in model.tracker_neck.fpn_layers:
            center = 3 * level.proj2.weight[:, :, 1:2, 1:2]
            level.proj2.weight.copy_(torch.nn.functional.pad(center, (1, 1, 1, 1)))
        upsampling = [layer for level in model.tracker_neck.fpn_layers for layer in level.scale_layers]
        for layer in [*upsampling, decoder.upscale_conv1, decoder.upscale_conv2]:
            if isinstance(layer, nn.ConvTranspose2d):
                layer.weight.copy_(2 * layer.weight.mean(dim=(2, 3), keepdim=True).expand_as(layer.weight))
        for block in decoder.transformer.layers:
            block.cross_attn_image_to_token.o_proj.weight *= 0.2
        for block in tracker.memory_attention.layers:
            block.self_attn.o_proj.weight *= 0.2
            block.linear2.weight *= 0.3
        head = decoder.iou_prediction_head.proj_out
        head.weight *= 0.1
        head.bias.copy_(torch.tensor([0.0, 0.0, 5.0, 0.0]))
    return model
