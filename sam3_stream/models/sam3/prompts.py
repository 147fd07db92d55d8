"""Prompts of a session: whether they can be used, and what they are on the square picture that the model sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from sam3_stream.core.errors import PromptError
from sam3_stream.core.prompts import BoxPrompt, MaskPrompt, ObjectPrompt, PointPrompt
from sam3_stream.models.sam3.mask_decoder import BOX_END, BOX_START


def check_object_prompt(prompt: ObjectPrompt, width: int, height: int, *, is_new: bool) -> None:
    """Raise `PromptError` unless the tracker can use the prompt on a picture of this size."""
    for (x, y), positive in zip(prompt.points_n2, prompt.positive_n, strict=True):
        PointPrompt(x=float(x), y=float(y), positive=bool(positive)).check_size(width, height)
    if prompt.box_xyxy is not None:
        x0, y0, x1, y1 = prompt.box_xyxy
        BoxPrompt(x0=x0, y0=y0, x1=x1, y1=y1).check_size(width, height)
    if prompt.mask is not None:
        MaskPrompt(mask=prompt.mask).check_size(width, height)
        if len(prompt.points_n2) or prompt.box_xyxy is not None:
            raise PromptError(
                f"object {prompt.object_id}: a mask says it all; give it alone, and clicks or a box on another frame"
            )
        return
    if prompt.box_xyxy is None and not len(prompt.points_n2):
        raise PromptError(f"object {prompt.object_id}: the prompt holds no click, box or mask")
    if is_new and prompt.box_xyxy is None and not prompt.positive_n.any():
        raise PromptError(
            f"object {prompt.object_id} is new and every click on it is negative: add a positive click or a box"
        )


def points_on_square(
    prompt: ObjectPrompt, width: int, height: int, resolution: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Box corners and clicks, in this order: float32 (p, 2) pixels of the square picture, and int64 (p,) labels."""
    points, labels = [prompt.points_n2.astype(np.float32)], [prompt.positive_n.astype(np.int64)]
    if prompt.box_xyxy is not None:
        points.insert(0, np.array(prompt.box_xyxy, np.float32).reshape(2, 2))
        labels.insert(0, np.array([BOX_START, BOX_END], np.int64))
    scale = np.array([resolution / width, resolution / height], np.float32)
    return np.concatenate(points) * scale, np.concatenate(labels)


def mask_on_square(prompt: ObjectPrompt, resolution: int, device: torch.device) -> torch.Tensor:
    """The prompt's mask as the reference's processor scales it: float32 (1, 1, resolution, resolution), 0 and 1.

    A mask too small to cover half of any pixel there keeps the pixel that it covers most of.
    """
    mask = torch.from_numpy(np.asarray(prompt.mask)).to(device)[None, None].float()
    if mask.shape[2:] == (resolution, resolution):
        return mask
    scaled = torch.nn.functional.interpolate(
        mask, size=(resolution, resolution), mode="bilinear", align_corners=False, antialias=True
    )
    return (scaled >= scaled.max().clamp(max=0.5)).float()


def merge_clicks(earlier: ObjectPrompt | None, prompt: ObjectPrompt) -> ObjectPrompt:
    """The prompt with what was clicked before on the same frame; a click given twice counts once."""
    if earlier is None:
        return prompt
    known = {(float(x), float(y), bool(p)) for (x, y), p in zip(prompt.points_n2, prompt.positive_n, strict=True)}
    kept = [
        (x, y, p)
        for (x, y), p in zip(earlier.points_n2.tolist(), earlier.positive_n.tolist(), strict=True)
        if (x, y, p) not in known
    ]
    points = np.array([(x, y) for x, y, _ in kept], np.float32).reshape(-1, 2)
    return replace(
        prompt,
        points_n2=np.concatenate([points, prompt.points_n2.astype(np.float32)]),
        positive_n=np.concatenate([np.array([p for _, _, p in kept], np.bool_), prompt.positive_n]),
        box_xyxy=earlier.box_xyxy if prompt.box_xyxy is None else prompt.box_xyxy,
    )
