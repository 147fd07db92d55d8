"""From a box or clicks to a mask of the object."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import MaskArray, Picture
from sam3_stream.models.lite.backbone import Backbone, FloatArray
from sam3_stream.models.lite.features import FourierColour, FrameView
from sam3_stream.models.lite.prompts.closer_look import Box, CloserLook, resize_mask
from sam3_stream.models.lite.prompts.fit import fit_rounds, grabcut, log_odds, sigmoid
from sam3_stream.models.lite.prompts.geodesic import edge_cost, geodesic_distance

BOX_LAMBDA = 1.0
BOX_CLASSES = 5
ELLIPSE_RADIUS, ELLIPSE_SLOPE = 0.75, 4.0

CLICK_LAMBDA = 0.3
CLICK_RADIUS = 2.5
SIMILARITY_GAIN, SIMILARITY_CENTRE = 7.0, 0.35
DISTANCE_GAIN, DISTANCE_CENTRE = 3.3, 0.35
NEGATIVE_GAIN = 3.0
LAB_SCALE = 25.0
EDGE_BASE = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Clicks:
    """Clicks on one object: float32 (n, 2) x and y in pixels of the picture they are in, and bool (n,) their signs."""

    points_n2: npt.NDArray[np.float32]
    positive_n: npt.NDArray[np.bool_]

    def moved(self, offset_xy: tuple[float, float], scale_xy: tuple[float, float]) -> Clicks:
        """The same clicks after a crop at an offset and a scaling."""
        points = (self.points_n2 - np.array(offset_xy, np.float32)) * np.array(scale_xy, np.float32)
        return Clicks(points.astype(np.float32), self.positive_n)

    def disks(self, shape: tuple[int, int], *, positive: bool, radius: float) -> npt.NDArray[np.bool_]:
        """Cells within `radius` of a click of this sign; the clicked cell always is."""
        height, width = shape
        ys, xs = np.mgrid[0:height, 0:width].astype(np.float32) + np.float32(0.5)
        marked = np.zeros(shape, np.bool_)
        for x, y in self.points_n2[self.positive_n == positive]:
            marked |= (xs - x) ** 2 + (ys - y) ** 2 <= radius**2
            marked[min(max(int(y), 0), height - 1), min(max(int(x), 0), width - 1)] = True
        return marked


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
    left, top = look.offset
    grid_height, grid_width = view.grid_shape
    to_grid = grid_width / crop_width, grid_height / crop_height
    grid_box = tuple((box[i] - (left, top)[i % 2]) * to_grid[i % 2] for i in range(4))
    inside, ellipse = _ellipse(grid_box, view.grid_shape)
    log_prior = ellipse + _class_activation(look.class_logits(), view, inside)
    prior = np.where(inside, sigmoid(log_prior), np.float32(0))
    grid_clicks = clicks.moved((left, top), to_grid)
    yes = grid_clicks.disks(view.grid_shape, positive=True, radius=CLICK_RADIUS)
    no = grid_clicks.disks(view.grid_shape, positive=False, radius=CLICK_RADIUS) | ~inside
    probability = fit_rounds(view, prior, BOX_LAMBDA, lambda p: _clamp(p, yes, no))

    size = look.size
    cut = grabcut(look.rgb, _smoothly(probability, size), _blockily(yes, size), _blockily(no, size))
    return look.place(cut)


def mask_from_clicks(view: FrameView, picture: Picture, clicks: Clicks, current: FloatArray | None = None) -> MaskArray:
    """The object under the clicks.

    Args:
        view: The picture's features.
        picture: The picture.
        clicks: In pixels of the picture; at least one is positive unless `current` is given.
        current: What the object is thought to be so far, float32 (h, w) on the stride-4 grid.

    Returns:
        bool (height, width) at the picture's size.
    """
    grid_height, grid_width = view.grid_shape
    grid_clicks = clicks.moved((0, 0), (grid_width / picture.width, grid_height / picture.height))
    yes = grid_clicks.disks(view.grid_shape, positive=True, radius=CLICK_RADIUS)
    no = grid_clicks.disks(view.grid_shape, positive=False, radius=CLICK_RADIUS)
    prior = _click_prior(view, yes, no, current)
    probability = fit_rounds(view, prior, CLICK_LAMBDA, lambda p: _clamp(p, yes, no))

    size = grid_width * 4, grid_height * 4
    rgb = picture.to_ndarray("rgb24", size=size)
    yes_pixels, no_pixels = _blockily(yes, size), _blockily(no, size)
    cut = grabcut(rgb, _smoothly(probability, size), yes_pixels, no_pixels)
    anchors = yes_pixels if current is None else yes_pixels | (_smoothly(current, size) > 0.5)
    return resize_mask(_components_under(cut, anchors), (picture.width, picture.height))


def _click_prior(
    view: FrameView, yes: npt.NDArray[np.bool_], no: npt.NDArray[np.bool_], current: FloatArray | None
) -> FloatArray:
    """What looks like the click and is not far from it, edges counting as distance."""
    height, width = view.grid_shape
    lab = np.asarray(cv2.cvtColor(view.features.grid_rgb, cv2.COLOR_RGB2LAB), np.float32) / np.float32(LAB_SCALE)
    cost = edge_cost(np.concatenate([lab, *(cv2.resize(level, (width, height)) for level in view.levels)], axis=2))
    cost += np.float32(EDGE_BASE)
    evidence = np.zeros(view.grid_shape, np.float32)
    if yes.any():
        near = geodesic_distance(cost, yes)
        relative = near / (np.median(near) + np.float32(1e-6))
        evidence += SIMILARITY_GAIN * (_similarity(view, yes) - SIMILARITY_CENTRE)
        evidence -= DISTANCE_GAIN * (relative - DISTANCE_CENTRE)
    if no.any():
        far = geodesic_distance(cost, no)
        evidence -= SIMILARITY_GAIN / 2 * (_similarity(view, no) - SIMILARITY_CENTRE)
        if yes.any():
            evidence += NEGATIVE_GAIN * (far - near) / (far + near + np.float32(1e-6))
    if current is None:
        return sigmoid(evidence)
    if not yes.any():  # nothing says where the object is but what it was so far
        return sigmoid(np.minimum(evidence, 0) + log_odds(current, 0.05))
    return (sigmoid(evidence) + current) / np.float32(2)


def _similarity(view: FrameView, where: npt.NDArray[np.bool_]) -> FloatArray:
    """Mean cosine of the stride-8 and stride-16 features to those at a place: float32 (h, w), -1 to 1."""
    height, width = view.grid_shape
    total = np.zeros(view.grid_shape, np.float32)
    for level in view.levels[1:]:
        size = level.shape[1], level.shape[0]
        weight = cv2.resize(where.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        mean = np.einsum("hw,hwc->c", weight, level)
        total += cv2.resize(level @ (mean / (np.linalg.norm(mean) + np.float32(1e-6))), (width, height))
    return total / np.float32(2)


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


def _clamp(probability: FloatArray, yes: npt.NDArray[np.bool_], no: npt.NDArray[np.bool_]) -> FloatArray:
    clamped = probability.copy()
    clamped[no] = 0
    clamped[yes] = 1
    return clamped


def _smoothly(probability: FloatArray, size: tuple[int, int]) -> FloatArray:
    """A probability map at a larger (width, height)."""
    return np.asarray(cv2.resize(probability, size), np.float32)


def _blockily(flags: npt.NDArray[np.bool_], size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Yes or no for every cell at a larger (width, height)."""
    return np.asarray(cv2.resize(flags.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)) > 0


def _components_under(mask: MaskArray, anchors: npt.NDArray[np.bool_]) -> MaskArray:
    """The connected parts of the mask that touch an anchor."""
    _, labels = cv2.connectedComponents(mask.astype(np.uint8))
    touched = np.unique(labels[anchors & mask])
    return np.isin(labels, touched[touched > 0])
