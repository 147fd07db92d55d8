"""A frame's results as a viewer is sent them: values that JSON knows."""

from __future__ import annotations

from typing import Any, Literal

import cv2
import numpy as np

from sam3_stream.core.masks_format import SCORE_DECIMALS, encode_rle
from sam3_stream.core.palette import color_of
from sam3_stream.core.records import MaskArray, TrackedFrame, TrackedObject

MaskStyle = Literal["contours", "rle", "none"]

_CONTOUR_TOLERANCE = 1.0  # pixels


def results_message(tracked: TrackedFrame, masks: MaskStyle = "contours") -> dict[str, Any]:
    """What is known of a frame.

    Args:
        tracked: The frame and its objects.
        masks: How masks are given: as ``contours``, lists of x, y, x, y, … in pixels of the displayed frame; as COCO
            ``rle``; or not at all.
    """
    frame, rate = tracked.frame, tracked.rate
    return {
        "stream": frame.stream_id,
        "frame": frame.sequence,
        "pts": frame.pts,
        "time_s": round(frame.time_s, 6),
        "width": frame.width,
        "height": frame.height,
        "state": tracked.state,
        "mask_age": tracked.mask_age,
        "resolution": None if tracked.resolution is None else list(tracked.resolution),
        "rate": None if rate is None else str(rate),
        "objects": [describe_object(each, masks) for each in tracked.objects],
        "retracted": [each.object_id for each in tracked.retracted],
    }


def describe_object(tracked: TrackedObject, masks: MaskStyle = "none") -> dict[str, Any]:
    """What is known of an object on a frame."""
    box = tracked.box_xywh
    described: dict[str, Any] = {
        "id": tracked.object_id,
        "label": tracked.label,
        "color": color_of(tracked.object_id),
        "prompt": tracked.prompt_id,
        "score": round(tracked.score, SCORE_DECIMALS),
        "present": tracked.present,
        "box": None if box is None else list(box),
    }
    if masks == "contours":
        described["contours"] = contours_of(tracked.mask)
    elif masks == "rle":
        described["rle"] = encode_rle(tracked.mask)
    return described


def contours_of(mask: MaskArray) -> list[list[int]]:
    """Outlines of a bool mask (height, width), holes included: x, y, x, y, … in pixels each."""
    found, _ = cv2.findContours(mask.view(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    simple = (cv2.approxPolyDP(contour, _CONTOUR_TOLERANCE, closed=True) for contour in found)
    return [contour.reshape(-1).tolist() for contour in simple if len(contour) > 2]
