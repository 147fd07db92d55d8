"""Is the object there? Told by what it looks like, since the classifier alone finds something in every picture."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from sam3_stream.models.lite.backbone import TAP_CHANNELS, FloatArray

DESCRIPTOR_LEVELS = (1, 2)
TEMPLATE_KEEP = 0.95
IDENTITY_LOST = 0.60
IDENTITY_DOUBTFUL = 0.68
IDENTITY_FOUND = 0.66
LEAST_AREA = 0.02
FOUND_AREA = (0.1, 6.0)
SCENE_CUT = 0.75
CANDIDATES = 5


def mask_descriptor(levels: list[FloatArray], probability: FloatArray) -> FloatArray:
    """Mean stride-8 and stride-16 features under a mask, each scaled to unit length, one after the other.

    Args:
        levels: Standardised levels of a `FrameView`.
        probability: float32 (h, w) on the stride-4 grid, 0 to 1.
    """
    parts = []
    for level in (levels[index] for index in DESCRIPTOR_LEVELS):
        height, width = level.shape[:2]
        weight = np.asarray(cv2.resize(probability, (width, height), interpolation=cv2.INTER_AREA), np.float32)
        mean = weight.reshape(-1) @ level.reshape(height * width, -1)
        parts.append(mean / (np.linalg.norm(mean) + np.float32(1e-6)))
    return np.concatenate(parts)


def identity(descriptor: FloatArray, template: FloatArray) -> float:
    """Mean cosine of two descriptors over the levels, -1 to 1."""
    middle = TAP_CHANNELS[DESCRIPTOR_LEVELS[0]]
    cosines = [
        float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-6))
        for a, b in ((descriptor[:middle], template[:middle]), (descriptor[middle:], template[middle:]))
    ]
    return sum(cosines) / 2


def is_scene_cut(last_level: FloatArray, previous: FloatArray | None) -> bool:
    """Whether the stride-16 features changed nearly everywhere since the previous frame."""
    if previous is None:
        return False
    height, width = last_level.shape[:2]
    if previous.shape != last_level.shape:
        previous = np.asarray(cv2.resize(previous, (width, height)), np.float32)
    cosines = np.einsum("hwc,hwc->hw", last_level, previous)
    return float(1 - cosines.mean()) > SCENE_CUT


@dataclass(slots=True, eq=False)
class Appearance:
    """What an object looks like and how large it usually is.

    Attributes:
        template: Slow running mean of its descriptor.
        first_template: Descriptor when the object was prompted last.
        usual_area: Slow running mean of its share of the picture, 0 to 1.
    """

    template: FloatArray
    first_template: FloatArray
    usual_area: float

    @classmethod
    def of(cls, levels: list[FloatArray], probability: FloatArray) -> Appearance:
        descriptor = mask_descriptor(levels, probability)
        return cls(descriptor, descriptor, _area(probability))

    def identity_of(self, descriptor: FloatArray) -> float:
        """How much it looks like the object now."""
        return identity(descriptor, self.template)

    def is_there(self, probability: FloatArray, likeness: float) -> bool:
        """Whether a tracked mask is still the object."""
        return likeness >= IDENTITY_LOST and _area(probability) >= LEAST_AREA * self.usual_area

    def update(self, descriptor: FloatArray, probability: FloatArray) -> None:
        keep = np.float32(TEMPLATE_KEEP)
        self.template = keep * self.template + (1 - keep) * descriptor
        self.usual_area = TEMPLATE_KEEP * self.usual_area + (1 - TEMPLATE_KEEP) * _area(probability)

    def find(self, levels: list[FloatArray], probability: FloatArray) -> FloatArray | None:
        """Look for the object among the components of a probability map.

        Returns:
            The map with all but the best component set to 0, or None when none of them is the object.
        """
        count, labels, stats, _ = cv2.connectedComponentsWithStats((probability > 0.5).astype(np.uint8))
        areas = stats[:, cv2.CC_STAT_AREA] / probability.size
        best, best_likeness = None, IDENTITY_FOUND
        for component in sorted(range(1, count), key=lambda index: -areas[index])[:CANDIDATES]:
            if not FOUND_AREA[0] <= areas[component] / self.usual_area <= FOUND_AREA[1]:
                continue
            candidate = np.where(labels == component, probability, np.float32(0))
            descriptor = mask_descriptor(levels, candidate)
            likeness = max(identity(descriptor, self.template), identity(descriptor, self.first_template))
            if likeness > best_likeness:
                best, best_likeness = candidate, likeness
        return best


def _area(probability: FloatArray) -> float:
    return float(np.count_nonzero(probability > 0.5)) / probability.size
