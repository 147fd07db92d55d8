"""From a phrase to objects: where the network's classes show that the phrase names. Experimental.

A coarse class activation map says where to look closer; there, the finer map is the idea that becomes a mask, and the
classifier has to agree with the phrase about what is under it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import MaskArray, Picture
from sam3_stream.models.lite.backbone import Backbone, FloatArray
from sam3_stream.models.lite.features import FourierColour, FrameView
from sam3_stream.models.lite.prompts.closer_look import Box, CloserLook, class_logits
from sam3_stream.models.lite.prompts.fit import Certainties, fit_rounds, grabcut, sigmoid

SCORE_THRESHOLD = 0.65
GLANCE_THRESHOLD = 0.4
REGION_SHARE = 0.5
SMALLEST_REGION = 20
MOST_REGIONS = 8
PARTS = 9
CONCEPT_MARGIN = 0.5
CONCEPT_LAMBDA = 1.0
BEST_CLASSES = 5
ACTIVATION_GAIN, ACTIVATION_OFFSET = 2.0, 2.0


@dataclass(frozen=True, slots=True)
class Concept:
    """A phrase that a session looks for.

    Attributes:
        prompt_id: Id of the prompt.
        text: The phrase.
        label: What to call its objects.
        classes: The ImageNet classes it names.
        score_threshold: Confidence that an object needs, 0 to 1.
        max_objects: At most so many at a time.
    """

    prompt_id: str
    text: str
    label: str
    classes: tuple[int, ...]
    score_threshold: float = SCORE_THRESHOLD
    max_objects: int = MOST_REGIONS


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """An object that a concept names: bool (height, width) at the picture's size, and the confidence, 0 to 1."""

    mask: MaskArray
    score: float


def find_concept(
    concept: Concept,
    backbone: Backbone,
    colour: FourierColour,
    view: FrameView,
    picture: Picture,
    taken: npt.NDArray[np.bool_],
    parts: Iterable[int],
) -> list[Finding]:
    """Look for what a phrase names: in the whole picture and, where that shows nothing, closer in parts of it.

    Args:
        concept: The phrase.
        backbone: For closer looks.
        colour: Colour features.
        view: The whole picture's features.
        picture: The whole picture.
        taken: bool (h, w) on the stride-4 grid; regions that touch it have been found before.
        parts: Numbers of the parts, modulo `PARTS`, to look into until one shows something.

    Returns:
        The findings, the most confident first.
    """

    def look(boxes: Iterable[Box]) -> list[Finding]:
        looks = (CloserLook(backbone, colour, picture, box, CONCEPT_MARGIN) for box in boxes)
        return [finding for each in looks if (finding := _look_closer(each, concept)) is not None]

    boxes = _regions(_phrase_probability(class_logits(backbone, view), concept), view.grid_shape, picture, taken)
    findings = look(boxes)
    for part in () if boxes else parts:
        window = _window(part, picture)
        closer = CloserLook(backbone, colour, picture, window, 0.0)
        findings = look(_regions_of_part(_phrase_probability(closer.class_logits(), concept), window, picture, taken))
        if findings:
            break
    return sorted(findings, key=lambda finding: -finding.score)[: concept.max_objects]


def _phrase_probability(logits: FloatArray, concept: Concept) -> FloatArray:
    """Probability of the phrase's classes at every place, less what chance gives so many classes: (h, w), 0 to 1."""
    odds = np.exp(logits - logits.max(axis=0))
    probability = odds[list(concept.classes)].sum(axis=0) / odds.sum(axis=0)
    chance = len(concept.classes) / len(logits)
    return np.asarray(np.clip((probability - chance) / (1 - chance), 0, 1), np.float32)


def _regions(
    probability: FloatArray, grid_shape: tuple[int, int], picture: Picture, taken: npt.NDArray[np.bool_]
) -> list[Box]:
    """Boxes, in pixels of the picture, around the places where the phrase shows; the largest first."""
    if probability.max() < GLANCE_THRESHOLD:
        return []
    height, width = grid_shape
    smooth = cv2.resize(probability, (width, height), interpolation=cv2.INTER_CUBIC)
    strong = (smooth > REGION_SHARE * probability.max()).astype(np.uint8)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(strong)
    boxes: list[Box] = []
    for region in sorted(range(1, count), key=lambda index: -stats[index, cv2.CC_STAT_AREA])[:MOST_REGIONS]:
        x, y, w, h, area = (int(value) for value in stats[region])
        if area >= SMALLEST_REGION and not taken[labels == region].any():
            scale_x, scale_y = picture.width / width, picture.height / height
            boxes.append((x * scale_x, y * scale_y, (x + w) * scale_x, (y + h) * scale_y))
    return boxes


def _window(part: int, picture: Picture) -> Box:
    """One of nine windows of half the picture's sides, which overlap by half."""
    x, y = part % 3 * picture.width / 4, part // 3 % 3 * picture.height / 4
    return x, y, x + picture.width / 2, y + picture.height / 2


def _regions_of_part(probability: FloatArray, window: Box, picture: Picture, taken: npt.NDArray[np.bool_]) -> list[Box]:
    """Boxes, in pixels of the picture, around the places of a window where the phrase shows."""
    x0, y0, x1, y1 = window
    nothing = np.zeros((taken.shape[0] // 2, taken.shape[1] // 2), np.bool_)
    scale_x, scale_y = (x1 - x0) / picture.width, (y1 - y0) / picture.height
    found = [
        (x0 + left * scale_x, y0 + top * scale_y, x0 + right * scale_x, y0 + bottom * scale_y)
        for left, top, right, bottom in _regions(probability, nothing.shape, picture, nothing)
    ]
    return [box for box in found if not taken[_cells(box, picture, taken.shape)].any()]


def _cells(box: Box, picture: Picture, grid_shape: tuple[int, ...]) -> tuple[slice, slice]:
    scale_x, scale_y = grid_shape[1] / picture.width, grid_shape[0] / picture.height
    x0, y0, x1, y1 = box
    return slice(int(y0 * scale_y), int(y1 * scale_y) + 1), slice(int(x0 * scale_x), int(x1 * scale_x) + 1)


def _look_closer(look: CloserLook, concept: Concept) -> Finding | None:
    logits = look.class_logits()
    size = look.view.grid_shape[::-1]
    shown = cv2.resize(_phrase_probability(logits, concept), size)
    named = logits[list(concept.classes)]
    best = named[np.argsort(-named.mean(axis=(1, 2)), kind="stable")[:BEST_CLASSES]].mean(axis=0)
    activation = cv2.resize((best - best.mean()) / (best.std() + np.float32(1e-6)), size)
    prior = np.sqrt(sigmoid(ACTIVATION_GAIN * activation - ACTIVATION_OFFSET) * np.clip(shown, 0, 1))
    known = Certainties.none(look.view.grid_shape)
    probability = fit_rounds(look.view, np.asarray(prior, np.float32), CONCEPT_LAMBDA, known)
    smooth = np.asarray(cv2.resize(probability, look.size), np.float32)
    mask = grabcut(look.rgb, smooth, known.enlarge(look.rgb.shape[:2]))
    if not mask.any():
        return None
    under = cv2.resize(mask.astype(np.float32), logits.shape[:0:-1], interpolation=cv2.INTER_AREA)
    pooled = np.einsum("chw,hw->c", logits, under) / under.sum()
    score = float(_phrase_probability(pooled[:, None, None], concept)[0, 0])
    return Finding(look.place(mask), score) if score >= concept.score_threshold else None
