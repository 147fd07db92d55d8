"""From a picture to one row of numbers a cell: what the classifier of every object sees.

A cell is one place of the stride-4 grid. Its row holds the three taps of the backbone, each standardised per channel
and scaled to unit length, random Fourier features of its colour (Rahimi & Recht, 2007), and a constant one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np

from sam3_stream.core.records import ImageArray
from sam3_stream.models.lite.backbone import TAP_CHANNELS, Backbone, FloatArray
from sam3_stream.models.lite.refine import GuidedFilter

GRID_STRIDE = 4
LEVEL_GAINS = (1.0, 1.0, 0.7)
FOURIER_COUNT = 24
LAB_SIGMAS = (20.0, 10.0, 10.0)
ROW_LENGTH = sum(TAP_CHANNELS) + FOURIER_COUNT + 1
LEVEL_SCALES = tuple(np.float32(gain * channels**0.5) for gain, channels in zip(LEVEL_GAINS, TAP_CHANNELS, strict=True))
LEVEL_PARTS = tuple(slice(sum(TAP_CHANNELS[:n]), sum(TAP_CHANNELS[: n + 1])) for n in range(len(TAP_CHANNELS)))
COLOUR_PART = slice(sum(TAP_CHANNELS), ROW_LENGTH - 1)


@dataclass(frozen=True, slots=True, eq=False)
class LiteFeatures:
    """What the lite model keeps of a picture.

    Attributes:
        levels_hwc: The taps, float32 (h, w, channels) at strides 4, 8 and 16 of the working picture.
        grid_rgb: float32 (h, w, 3), 0 to 1, the picture at the stride-4 grid.
        fine_rgb: uint8 (h, w, 3), the picture at the size that masks are refined at.
    """

    levels_hwc: tuple[FloatArray, ...]
    grid_rgb: FloatArray
    fine_rgb: ImageArray

    @property
    def grid_shape(self) -> tuple[int, int]:
        """(height, width) of the stride-4 grid."""
        height, width = self.grid_rgb.shape[:2]
        return height, width


def encode_picture(backbone: Backbone, working_rgb: ImageArray, fine_rgb: ImageArray) -> LiteFeatures:
    """Run the backbone over a picture whose sides are multiples of 32."""
    levels = tuple(np.ascontiguousarray(tap[0].transpose(1, 2, 0)) for tap in backbone.taps(working_rgb[None]))
    height, width = levels[0].shape[:2]
    grid = cv2.resize(working_rgb, (width, height), interpolation=cv2.INTER_AREA)
    return LiteFeatures(levels, np.divide(grid, 255, dtype=np.float32), fine_rgb)


@dataclass(frozen=True, slots=True, eq=False)
class Standardisation:
    """Mean and inverse standard deviation of every tap channel, over one picture."""

    mean_c: FloatArray
    inverse_std_c: FloatArray

    @classmethod
    def of(cls, features: LiteFeatures) -> Standardisation:
        means = [level.mean(axis=(0, 1)) for level in features.levels_hwc]
        stds = [level.std(axis=(0, 1)) for level in features.levels_hwc]
        return cls(np.concatenate(means), np.reciprocal(np.concatenate(stds) + np.float32(1e-6)))

    def apply(self, features: LiteFeatures) -> list[FloatArray]:
        """The levels, standardised, every place scaled to unit length; float32 (h, w, channels) each."""
        levels, start = [], 0
        for level in features.levels_hwc:
            stop = start + level.shape[2]
            unit = (level - self.mean_c[start:stop]) * self.inverse_std_c[start:stop]
            unit /= np.sqrt(np.einsum("hwc,hwc->hw", unit, unit))[:, :, None] + 1e-6
            levels.append(unit)
            start = stop
        return levels


class FourierColour:
    """Random Fourier features of CIE Lab colour.

    Args:
        seed: Seed of the random frequencies and phases.
    """

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        sigmas = np.array(LAB_SIGMAS)[:, None]
        self._frequencies = (random.normal(size=(3, FOURIER_COUNT)) / sigmas).astype(np.float32)
        self._phases = random.uniform(0, 2 * np.pi, FOURIER_COUNT).astype(np.float32)

    def __call__(self, rgb: FloatArray) -> FloatArray:
        """float32 (h, w, 3), 0 to 1 -> float32 (h, w, count), every place scaled to length sqrt(count)."""
        lab = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB), np.float32)
        waves = np.cos(lab @ self._frequencies + self._phases)
        waves *= np.sqrt(FOURIER_COUNT) / (np.sqrt(np.einsum("hwc,hwc->hw", waves, waves))[:, :, None] + 1e-6)
        return np.asarray(waves, np.float32)


class FrameView:
    """One picture as the classifiers of a stream see it.

    Args:
        features: The picture's features.
        standardisation: The stream's.
        colour: The model's colour features.

    Attributes:
        features: The picture's features.
        levels: Standardised levels of unit length, float32 (h, w, channels) at strides 4, 8 and 16.
        edges: The guided filter of the picture on the stride-4 grid.
    """

    def __init__(self, features: LiteFeatures, standardisation: Standardisation, colour: FourierColour) -> None:
        self.features = features
        self.levels = standardisation.apply(features)
        self.edges = GuidedFilter(features.grid_rgb)
        self._colour_hwc = colour(features.grid_rgb)

    @property
    def grid_shape(self) -> tuple[int, int]:
        """(height, width) of the stride-4 grid."""
        return self.features.grid_shape

    @cached_property
    def rows(self) -> FloatArray:
        """One row a cell: float32 (h * w, `ROW_LENGTH`), the coarser levels interpolated to the stride-4 grid."""
        height, width = self.grid_shape
        rows = np.empty((height, width, ROW_LENGTH), np.float32)
        for level, gain, part in zip(self.levels, LEVEL_SCALES, LEVEL_PARTS, strict=True):
            np.multiply(_resize(level, (width, height)), gain, out=rows[:, :, part])
        rows[:, :, COLOUR_PART] = self._colour_hwc
        rows[:, :, -1] = 1
        return rows.reshape(height * width, ROW_LENGTH)

    def scores(self, classifiers: FloatArray) -> FloatArray:
        """What linear classifiers say everywhere: the same as ``rows @ classifiers.T``, without making the rows.

        Interpolation is linear as well, so it can wait until a level has become one number a classifier.

        Args:
            classifiers: float32 (n, `ROW_LENGTH`).

        Returns:
            float32 (n, h, w) on the stride-4 grid.
        """
        height, width = self.grid_shape
        scores_hwn = self._colour_hwc @ classifiers[:, COLOUR_PART].T + classifiers[:, -1]
        for level, gain, part in zip(self.levels, LEVEL_SCALES, LEVEL_PARTS, strict=True):
            projected = level @ (classifiers[:, part].T * gain)
            scores_hwn += _resize(projected, (width, height)).reshape(scores_hwn.shape)
        return np.ascontiguousarray(scores_hwn.transpose(2, 0, 1))


def _resize(level: FloatArray, size: tuple[int, int]) -> FloatArray:
    """A level at another (width, height), interpolated linearly."""
    if level.shape[1::-1] == size:
        return level
    return np.asarray(cv2.resize(level, size), np.float32)
