"""How long a step takes, learnt while it runs.

The model is multiplicative, so that whatever slows the machine down at one setting is known to slow all of them::

    log(seconds) = load + log_share[resolution] + log(1 + object_cost * objects + detection_cost * detected)

An extended Kalman filter holds the parameters and how far each can be trusted. Before a resolution has been seen its
share follows the number of pixels, loosely; neighbours learn from each other. The load may drift, and a CUSUM test
(E. S. Page, Continuous Inspection Schemes, 1954) on the normalised residual tells a step of the load from noise.
State is a few numbers per resolution and does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_SHARE_EXPONENT = 0.8  # seconds ~ pixels ** 0.8: part of a step does not depend on the resolution
_SHARE_EXPONENT_STD = 0.3
_SHARE_STD = 0.1
_OBJECT_COST, _DETECTION_COST = 0.1, 0.5  # relative to a step without objects
_ADDED_COST_STD = 1.0  # of their logarithms
_LOAD_DRIFT_STD, _OTHER_DRIFT_STD = 0.05, 0.005  # per square root of a second
_MIN_NOISE, _FIRST_NOISE = 0.03, 0.3
_NOISE_FRAMES, _FIRST_NOISE_FRAMES = 30, 5
_OUTLIER = 3.0
_SLACK, _ALARM, _MAX_RESIDUAL = 0.5, 8.0, 5.0  # of the CUSUM, in standard deviations
_STEP_STD = 1.0  # of the logarithm of the load after an alarm

_LOAD, _OBJECTS, _DETECTION, _SHARES = 0, 1, 2, 3
Vector = npt.NDArray[np.float64]


class Work(NamedTuple):
    """What decides how long a step takes: an index into the resolutions, the objects, and whether it detects."""

    resolution: int = 0
    objects: int = 0
    detected: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean seconds of a step, and how uncertain that mean is (standard deviation of its logarithm)."""

    mean_s: float
    spread: float

    @property
    def cautious_s(self) -> float:
        """The mean, one standard deviation up."""
        return self.mean_s * math.exp(min(self.spread, 5.0))


class CostModel:
    """Learns the seconds of one kind of step.

    Args:
        pixels: Pixels of each resolution, the best one first.
    """

    def __init__(self, pixels: Sequence[int] = (1,)) -> None:
        log_pixels = np.log(np.asarray(pixels, np.float64) / pixels[0])[1:]
        size = _SHARES + len(log_pixels)
        self._state: Vector = np.zeros(size)
        self._state[_LOAD] = math.log(0.05)
        self._state[_OBJECTS] = math.log(_OBJECT_COST)
        self._state[_DETECTION] = math.log(_DETECTION_COST)
        self._state[_SHARES:] = _SHARE_EXPONENT * log_pixels
        self._covariance: Vector = np.zeros((size, size))
        self._covariance[_LOAD, _LOAD] = 4.0
        self._covariance[_OBJECTS, _OBJECTS] = self._covariance[_DETECTION, _DETECTION] = _ADDED_COST_STD**2
        self._covariance[_SHARES:, _SHARES:] = (_SHARE_EXPONENT_STD**2) * np.outer(log_pixels, log_pixels)
        self._covariance[_SHARES:, _SHARES:] += (_SHARE_STD**2) * np.eye(len(log_pixels))
        self._most_variance = np.diag(self._covariance).copy()
        self._drift_variance = np.full(size, _OTHER_DRIFT_STD**2)
        self._drift_variance[_LOAD] = _LOAD_DRIFT_STD**2
        self._noise_variance = _FIRST_NOISE**2
        self._above = self._below = 0.0
        self._updated_s: float | None = None
        self.observations = 0

    @property
    def noise(self) -> float:
        """Standard deviation of the logarithm of single steps around their mean."""
        return math.sqrt(self._noise_variance)

    def cost(self, work: Work) -> Cost:
        """Predict."""
        log_s, gradient = self._predict(work)
        return Cost(math.exp(log_s + 0.5 * self._noise_variance), math.sqrt(self._variance(gradient)))

    def observe(self, now_s: float, work: Work, seconds: float) -> float:
        """Learn from one step.

        Returns:
            1.0, or by which factor the load has stepped where this step gives that away.
        """
        self._drift(now_s)
        log_s, gradient = self._predict(work)
        residual = math.log(max(seconds, 1e-6)) - log_s
        variance = self._variance(gradient) + self._noise_variance
        normalised = residual / math.sqrt(variance)
        self.observations += 1
        if self._alarm(normalised):
            before = self._state[_LOAD]
            self.expect_step()
            self._update(work, residual)
            return math.exp(self._state[_LOAD] - before)
        self._learn_noise(residual, variance)
        if abs(normalised) <= _OUTLIER:  # one odd step proves nothing; several raise the alarm
            self._update(work, residual)
        return 1.0

    @property
    def updated_s(self) -> float:
        """When it learnt last; long ago when it never did."""
        return -math.inf if self._updated_s is None else self._updated_s

    def scale(self, factor: float) -> None:
        """Take over a step of the load that another kind of step has given away."""
        self._state[_LOAD] += math.log(factor)

    def expect_step(self) -> None:
        """Trust what is known of the load no more: the next steps decide."""
        self._covariance[_LOAD, _LOAD] += _STEP_STD**2
        self._above = self._below = 0.0

    def _predict(self, work: Work) -> tuple[float, dict[int, float]]:
        """Predicted log seconds, and its gradient by those entries of the state that matter."""
        objects = work.objects * math.exp(self._state[_OBJECTS])
        detection = math.exp(self._state[_DETECTION]) if work.detected else 0.0
        log_s = float(self._state[_LOAD]) + math.log1p(objects + detection)
        gradient = {_LOAD: 1.0}
        if work.objects:
            gradient[_OBJECTS] = objects / (1.0 + objects + detection)
        if work.detected:
            gradient[_DETECTION] = detection / (1.0 + objects + detection)
        if work.resolution:
            share = _SHARES + work.resolution - 1
            log_s += float(self._state[share])
            gradient[share] = 1.0
        return log_s, gradient

    def _variance(self, gradient: dict[int, float]) -> float:
        pairs = ((i, g, j, h) for i, g in gradient.items() for j, h in gradient.items())
        return max(0.0, sum(g * h * self._covariance.item(i, j) for i, g, j, h in pairs))

    def _update(self, work: Work, residual: float) -> None:
        _, gradient = self._predict(work)
        projected = np.asarray(sum(g * self._covariance[i] for i, g in gradient.items()))
        gain = projected / (self._variance(gradient) + self._noise_variance)
        self._state += gain * residual
        self._state[_OBJECTS : _DETECTION + 1] = np.clip(self._state[_OBJECTS : _DETECTION + 1], -7.0, 4.0)
        self._covariance -= np.outer(gain, projected)

    def _drift(self, now_s: float) -> None:
        elapsed_s = 0.0 if self._updated_s is None else max(0.0, now_s - self._updated_s)
        self._updated_s = now_s
        room = np.maximum(0.0, self._most_variance - np.diag(self._covariance))
        self._covariance += np.diag(np.minimum(self._drift_variance * min(elapsed_s, 1.0), room))

    def _learn_noise(self, residual: float, variance: float) -> None:
        squared = min(residual**2, _OUTLIER**2 * variance) * self._noise_variance / variance
        self._noise_variance += (squared - self._noise_variance) / min(
            _NOISE_FRAMES, _FIRST_NOISE_FRAMES + self.observations
        )
        self._noise_variance = max(self._noise_variance, _MIN_NOISE**2)

    def _alarm(self, normalised: float) -> bool:
        bounded = max(-_MAX_RESIDUAL, min(_MAX_RESIDUAL, normalised))
        self._above = max(0.0, self._above + bounded - _SLACK)
        self._below = max(0.0, self._below - bounded - _SLACK)
        return max(self._above, self._below) > _ALARM
