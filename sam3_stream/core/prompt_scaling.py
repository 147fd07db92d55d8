"""Prompts on a picture of another size."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np

from sam3_stream.core.prompts import BoxPrompt, ExemplarPrompt, MaskPrompt, PointPrompt, Prompt


def scale_prompt(prompt: Prompt, size: tuple[int, int], new_size: tuple[int, int]) -> Prompt:
    """The prompt, drawn on a picture of one size, as it lies on a picture of another.

    Args:
        prompt: What was said.
        size: (width, height) in pixels of the picture that it was said on.
        new_size: (width, height) of the picture that it is to hold for.
    """
    if size == new_size:
        return prompt
    x, y = new_size[0] / size[0], new_size[1] / size[1]
    match prompt:
        case PointPrompt():
            return replace(prompt, x=prompt.x * x, y=prompt.y * y)
        case BoxPrompt():
            return replace(prompt, x0=prompt.x0 * x, y0=prompt.y0 * y, x1=prompt.x1 * x, y1=prompt.y1 * y)
        case MaskPrompt():
            scaled = cv2.resize(prompt.mask.view(np.uint8), new_size, interpolation=cv2.INTER_NEAREST)
            return replace(prompt, mask=np.asarray(scaled, dtype=np.bool_))
        case ExemplarPrompt():
            boxes = tuple((x0 * x, y0 * y, x1 * x, y1 * y) for x0, y0, x1, y1 in prompt.boxes_xyxy)
            return replace(prompt, boxes_xyxy=boxes)
        case _:
            return prompt
