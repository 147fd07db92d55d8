"""From a box to a mask of the object in it."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import MaskArray, Picture
from sam3_stream.models.lite.backbone import Backbone, FloatArray
from sam3_stream.models.lite.features import FourierColour, FrameView
from sam3_stream.models.lite.prompts.closer_look import Box, CloserLook
from sam3_stream.models.lite.prompts.fit import PRIOR_SHARES, Certainties, Clicks, fit_rounds, grabcut, sigmoid

BOX_LAMBDA = 1.0
BOX_CLASSES = 5
BOX_SCORE_OFFSET = -0.15
BOX_GRABCUT_SHARE = 0.35
ELLIPSE_RADIUS, ELLIPSE_SLOPE = 0.7, 4.0


def mask_from_box(backbone: Backbone, colour: FourierColour, picture: Picture, box: Box, clicks: Clicks) -> MaskArray:
    """The object in a box, from a closer look at the box and what is around it.

    Args:
        backbone: For the closer look.
        colour: Colour features.
        picture: The whole picture.
        box: (x0, y0, x1, y1) in pixels of the picture.
        clicks: Clicks that go with the box, possibly none, in pixels of the picture.

    Returns:
        bool (height, width) at the picture's size.
    """
    look = CloserLook(backbone, colour, picture, box)
    view = look.view
    crop_width, crop_height = look.crop_size
    to_grid = view.grid_shape[1] / crop_width, view.grid_shape[0] / crop_height
    grid_box = tuple((box[i] - look.offset[i % 2]) * to_grid[i % 2] for i in range(4))
    inside, ellipse = _ellipse(grid_box, view.grid_shape)
    log_prior = ellipse + _class_activation(look.class_logits(), view, inside)
    prior = np.where(inside, sigmoid(log_prior), np.float32(0))
    known = Certainties.of(clicks.moved(look.offset, to_grid), view.grid_shape).without(~inside)
    probability = fit_rounds(view, prior, BOX_LAMBDA, known, PRIOR_SHARES, BOX_SCORE_OFFSET)

    known = known.enlarge(look.rgb.shape[:2])
    probability = np.asarray(cv2.resize(probability, look.size), np.float32)
    cut = grabcut(look.rgb, probability, known)
    # GrabCut finds outlines that the grid misses, but where colours repeat it goes astray: it has a vote, not the say
    voted = BOX_GRABCUT_SHARE * cut + (1 - BOX_GRABCUT_SHARE) * known.put_into(probability)
    return look.place(voted > 0.5)


def _class_activation(logits: FloatArray, view: FrameView, inside: npt.NDArray[np.bool_]) -> FloatArray:
    """Where the classes show that fit best what is inside: float32 (h, w) of mean 0 and deviation 1."""
    height, width = view.grid_shape
    size = logits.shape[2], logits.shape[1]
    weight = cv2.resize(inside.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    means = np.einsum("chw,hw->c", logits, weight)
    activation = logits[np.argsort(-means, kind="stable")[:BOX_CLASSES]].mean(axis=0)
    activation = (activation - activation.mean()) / (activation.std() + np.float32(1e-6))
    return np.asarray(cv2.resize(activation, (width, height)), np.float32)


def _ellipse(box: tuple[float, ...], shape: tuple[int, int]) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    """Which cells are inside the box, and the log-odds of an ellipse in it."""
    x0, y0, x1, y1 = box
    ys, xs = np.mgrid[0 : shape[0], 0 : shape[1]].astype(np.float32) + np.float32(0.5)
    inside = (xs > x0) & (xs < x1) & (ys > y0) & (ys < y1)
    if not inside.any():  # the box is smaller than a cell
        inside[min(int((y0 + y1) / 2), shape[0] - 1), min(int((x0 + x1) / 2), shape[1] - 1)] = True
    radius = np.hypot((2 * xs - x0 - x1) / (x1 - x0), (2 * ys - y0 - y1) / (y1 - y0))
    return inside, np.asarray(ELLIPSE_SLOPE * (ELLIPSE_RADIUS - radius), np.float32)
