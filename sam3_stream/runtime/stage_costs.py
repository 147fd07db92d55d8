"""What frames cost each stage, learnt from observations, and what a setting would cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sam3_stream.runtime.cost_model import Cost, CostModel, Work
from sam3_stream.runtime.rate_records import Observation
from sam3_stream.runtime.rate_settings import Resolution, Setting

_FIRST_OBSERVATIONS = 3
_WAIT_FRAMES_UP, _WAIT_FRAMES_DOWN = 6.0, 24.0
_MAX_WAIT_S = 1.0
_UNSEEN_CARRY_S = 0.005  # what `benchmarks/propagation.py` says of one object, until it has been seen here
_STALE_S = 0.5  # costs that were learnt longer ago know nothing of a step of the load
_CAREFUL, _SURPRISE = 1.5, 3.0  # standard deviations


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a setting would mean.

    Attributes:
        business: Share of the time that the busiest stage would be busy; above 1 is too much.
        own: That without the waiting for others.
        spread: How uncertain that is (standard deviation of its logarithm).
        latency_s: Seconds that the slowest regular frame would take, waiting behind others included.
    """

    business: float
    own: float
    spread: float
    latency_s: float

    @property
    def least_business(self) -> float:
        """One standard deviation down."""
        return self.business * math.exp(-self.spread)

    @property
    def most_business(self) -> float:
        """One standard deviation up."""
        return self.business * math.exp(min(self.spread, 5.0))


class StageCosts:
    """Cost models of all stages, for frames that the model runs on and for those that carry masks.

    A tracked frame that follows skipped ones gets the masks carried to it, too, before the model runs: so each group of
    a skip pattern costs one carry more than it skips frames.

    Stages work side by side, so the busiest one counts. A frame may also wait although its first stage has nothing of
    this stream to do, because of another stream's turn, another process or the interpreter's lock: that is learnt too
    and counts like work.

    Args:
        resolutions: (width, height) in pixels, best first.
    """

    def __init__(self, resolutions: Sequence[Resolution]) -> None:
        self._resolutions = tuple(resolutions)
        self._tracking: dict[str, CostModel] = {}
        self._carrying: dict[str, CostModel] = {}
        self._moving = CostModel()
        self._load = 1.0
        self._outside_s = 0.0
        self._free_s: float | None = None
        self._seen_resolution: Resolution | None = None
        self._last: tuple[Work, Observation] | None = None
        self._known: dict[tuple[str, str, Work], Cost] = {}
        self._detects = False
        self.objects = 0
        self.surprise = 1.0
        """By how much the latest tracked frame was slower than expected, while nobody knows whether that lasts."""

    @property
    def ready(self) -> bool:
        """Whether enough has been seen to plan with."""
        observations = [model.observations for model in self._tracking.values()]
        return min(observations, default=0) >= _FIRST_OBSERVATIONS

    def observe(self, seen: Observation) -> float:
        """Learn from a frame that was handled; 1.0, or by which factor the load has stepped where that is now clear."""
        self._known.clear()
        self.objects = seen.objects
        self._detects = seen.detected is not None if seen.state == "tracked" else self._detects
        self._observe_wait(seen)
        if seen.state == "tracked":
            return self._observe_tracked(seen)
        for stage, seconds in seen.service_s.items():
            model = self._carrying.setdefault(stage, CostModel())
            model.observe(seen.finished_s, Work(objects=seen.objects), seconds)
        return 1.0

    def believe_surprise(self) -> float:
        """Take the latest slow frame for a step of the load, without waiting for a second one; the step's factor."""
        if self._last is None:
            return 1.0
        work, seen = self._last
        step, self.surprise = self.surprise, 1.0
        self._tell_step(step, seen.finished_s)
        for stage, seconds in seen.service_s.items():
            self._tracking[stage].expect_step()
            self._tracking[stage].observe(seen.finished_s, work, seconds)
        self._known.clear()
        return step

    def careful_track_s(self, setting: Setting, detect: bool, *, moves: bool) -> float:
        """Seconds that a tracked frame takes through all stages, on the safe side; with masks to carry to it or not."""
        work = Work(self._resolutions.index(setting.resolution), self.objects, detect and self._detects)
        moved_s = self._moved_s() if moves else 0.0
        return moved_s + sum(
            self._careful_s(self._cost("track", stage, work), model) for stage, model in self._tracking.items()
        )

    def careful_carry_s(self) -> float:
        """Seconds that a frame with carried masks takes through all stages, on the safe side."""
        work = Work(objects=self.objects)
        return sum(self._careful_s(self._cost("carry", stage, work), model) for stage, model in self._carrying.items())

    def forecast(self, setting: Setting, fps: float, taken: float = 0.0) -> Forecast:
        """What a setting would mean at so many frames a second, with a share of the time taken by other streams."""
        index = self._resolutions.index(setting.resolution)
        plain, detecting = (Work(index, self.objects, detected and self._detects) for detected in (False, True))
        often, share = 1.0 / setting.detection_interval, setting.tracked / setting.of
        business = own = spread = latency_s = backlog_s = 0.0
        for position, stage in enumerate(self._tracking):
            cost, most = self._cost("track", stage, plain), self._cost("track", stage, detecting)
            carry_s = self._carry_s(stage, position)
            moved_s = self._moved_s() / setting.of if position == 0 and setting.of > 1 else 0.0
            tracked_s = share * ((1 - often) * cost.mean_s + often * most.mean_s)
            own_s = tracked_s + (1 - share) * carry_s + moved_s
            total_s = own_s + (max(self._outside_s, taken / fps) if position == 0 else 0.0)
            if total_s * fps >= business:
                uncertain_s = tracked_s * ((1 - often) * cost.spread + often * most.spread)
                business, own, spread = total_s * fps, own_s * fps, uncertain_s / total_s
            latency_s += most.mean_s
            in_a_row = setting.tracked if setting.of > 1 else 1
            backlog_s = max(backlog_s, (in_a_row - 1) * (cost.mean_s - 1.0 / fps))
        return Forecast(business, own, spread, latency_s + backlog_s)

    def _carry_s(self, stage: str, position: int) -> float:
        """Mean seconds of a stage for a frame with carried masks."""
        if stage in self._carrying:
            return self._cost("carry", stage, Work(objects=self.objects)).mean_s
        return _UNSEEN_CARRY_S * self._load if position == 0 else 0.0

    def _moved_s(self) -> float:
        """Mean seconds to carry masks to a tracked frame that follows skipped ones."""
        if self._moving.observations:
            return self._moving.cost(Work(objects=self.objects)).mean_s
        return self._carry_s(next(iter(self._tracking), ""), 0)

    def _careful_s(self, cost: Cost, model: CostModel) -> float:
        return cost.mean_s * math.exp(_CAREFUL * math.hypot(model.noise, min(cost.spread, 1.0))) * self.surprise

    def _cost(self, kind: str, stage: str, work: Work) -> Cost:
        key = (kind, stage, work)
        if key not in self._known:
            models = self._tracking if kind == "track" else self._carrying
            self._known[key] = models[stage].cost(work)
        return self._known[key]

    def _observe_tracked(self, seen: Observation) -> float:
        if seen.prompted or seen.resolution not in self._resolutions:
            return 1.0
        if seen.moved_s:
            self._moving.observe(seen.finished_s, Work(objects=seen.objects), seen.moved_s)
        work = Work(self._resolutions.index(seen.resolution), seen.objects, bool(seen.detected))
        first_at_resolution = seen.resolution != self._seen_resolution
        self._seen_resolution = seen.resolution
        if first_at_resolution and self._tracking:
            return 1.0  # it sets things up and is slower than the ones to come
        if self.ready:
            expected_s = sum(self._cost("track", stage, work).mean_s for stage in self._tracking)
            ratio = sum(seen.service_s.values()) / expected_s
            noise = max(model.noise for model in self._tracking.values())
            self.surprise = ratio if ratio > math.exp(_SURPRISE * noise) else 1.0
        self._last = (work, seen)
        steps = [self._learn(stage, seconds, work, seen.finished_s) for stage, seconds in seen.service_s.items()]
        self._known.clear()
        step = max(steps, key=lambda factor: abs(math.log(factor)), default=1.0)
        if step != 1.0:
            self.surprise = 1.0
            self._tell_step(step, seen.finished_s)
        return step

    def _tell_step(self, step: float, now_s: float) -> None:
        """What has slowed the model down slows down what has not been seen lately, too."""
        self._load *= step
        for model in (*self._carrying.values(), self._moving):
            if now_s - model.updated_s > _STALE_S:
                model.scale(step)

    def _learn(self, stage: str, seconds: float, work: Work, now_s: float) -> float:
        model = self._tracking.get(stage)
        if model is None:
            model = self._tracking[stage] = CostModel([width * height for width, height in self._resolutions])
        return model.observe(now_s, work, seconds)

    def _observe_wait(self, seen: Observation) -> None:
        ready_s = seen.arrived_s if self._free_s is None else max(seen.arrived_s, self._free_s)
        waited_s = min(max(0.0, seen.started_s - ready_s), _MAX_WAIT_S)
        frames = _WAIT_FRAMES_UP if waited_s > self._outside_s else _WAIT_FRAMES_DOWN
        self._outside_s += (waited_s - self._outside_s) / frames
        self._free_s = seen.started_s + seen.moved_s + next(iter(seen.service_s.values()), 0.0)
