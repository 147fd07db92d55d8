"""Holds a frame rate: decides for every frame at which resolution the model sees it, if at all.

A pure function of what it is told: it reads no clock, and the same observations give the same decisions. Two loops:

* Every frame: a frame that the model could not finish within the latency limit gets carried masks instead, or is
  dropped when too many have been skipped already. This holds rate and latency from one frame to the next.
* Every observation: the learnt costs predict for each rung of the ladder how busy it would keep the stages. Overload
  moves straight to the first rung that fits; going back up needs room for some time, and for longer each time that
  going up turned out to be a mistake.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from sam3_stream.runtime.rate_records import Action, Decision, Observation
from sam3_stream.runtime.rate_settings import RateSettings, Setting, build_ladder
from sam3_stream.runtime.shared_load import SharedLoad
from sam3_stream.runtime.skip_pattern import SkipPattern
from sam3_stream.runtime.stage_costs import Forecast, StageCosts

_OVERLOAD = 0.96  # surely busier than this is too much
_FITS, _FITS_UP = 0.92, 0.84  # less busy than this a rung must be to be chosen: surely, and when going up
_LATENCY_SHARE = 0.9  # of the limit, that a rung may use
_QUEUEING = 0.75  # of a frame interval: a frame for the model that waited longer found the one before it unfinished
_BEHIND = 0.4  # of the latency limit: frames older than this get carried masks, to catch up
_NO_BETTER = 1.05  # less than this between two rungs is no difference
_ADMIT_OVER = 1.03  # an impossible target: admit a little more than can be done, so that the model is never idle
_RISE_AFTER_S, _LONGEST_RISE_S, _MISTAKE_S = 1.5, 60.0, 5.0
_SETTLE_S = 1.5  # after a change, before its effect on waiting is known
_MAX_CHANGES, _CHANGES_SPAN_S = 2, 10.0
_NOTABLE_STEP = 1.3


class RateController:
    """One stream's controller. Not thread-safe: call it from one thread or under one lock.

    Args:
        settings: The target and its limits.
        stream_id: The stream's name in `shared`.
        shared: What the streams that share a model know of each other; None for a stream on its own.
    """

    def __init__(self, settings: RateSettings, stream_id: str = "", shared: SharedLoad | None = None) -> None:
        self.settings = settings
        self._stream_id = stream_id
        self._shared = shared or SharedLoad()
        self.ladder = build_ladder(settings)
        self._costs = StageCosts(settings.allowed_resolutions)
        self._pattern = SkipPattern()
        self._rung = 0
        self._source_fps: float | None = None
        self._news = False
        self._queueing = False
        self._until_detection = 0
        self._load_step = 1.0
        self._changes_s: deque[float] = deque(maxlen=_MAX_CHANGES)
        self._room_since_s: float | None = None
        self._rise_after_s = _RISE_AFTER_S
        self._rose_s: float | None = None
        self._fell_s: float | None = None
        self._fell_from = 0.0
        self._admit_fps = settings.target_fps
        self._impossible = False

    @property
    def setting(self) -> Setting:
        """The rung in force."""
        return self.ladder[self._rung]

    def observe(self, seen: Observation) -> None:
        """Learn from a frame that has been handled (not from dropped ones)."""
        self._news = True
        self._source_fps = seen.source_fps
        self._notice_step(self._costs.observe(seen))

    def decide(self, now_s: float, arrived_s: float, *, waiting: int = 0, prompted: bool = False) -> Decision:
        """Decide on the frame that the first stage is about to begin with.

        Args:
            now_s: The time.
            arrived_s: When the frame came to wait.
            waiting: How many frames wait behind it.
            prompted: Whether the frame carries prompts, or no frame before it has masks: the model must run.
        """
        if self._pattern.due:
            self._queueing = now_s - arrived_s > _QUEUEING / self._demand_fps()
        reason = self._replan(now_s)
        if self._pattern.due and self._out_of_time():
            self._notice_step(self._costs.believe_surprise())
            self._news = True
            reason = self._replan(now_s) or reason
        detect = self._until_detection <= 0
        action = "track" if prompted else self._action(now_s - arrived_s, waiting, detect)
        if action != "drop":
            self._pattern.count(tracked=action == "track")
        if action == "track":
            self._until_detection = self.setting.detection_interval - 1 if detect else self._until_detection - 1
        return Decision(action, self.setting, detect and action == "track", self._admit_fps, self._impossible, reason)

    def _action(self, age_s: float, waiting: int, detect: bool) -> Action:
        """Keep to the pattern as far as age and latency limit let us."""
        limit_s = self.settings.max_latency_s
        if self._impossible and waiting > self.setting.of + 1:
            return "drop"  # more wait than the model needs to stay busy: they would only grow old
        moves = self._pattern.skipped > 0
        track_s = self._costs.careful_track_s(self.setting, detect, moves=moves)
        carry_s = self._costs.careful_carry_s()
        may_carry = self._pattern.skipped < self.settings.max_skip
        behind = may_carry and age_s > _BEHIND * limit_s
        if self._pattern.due and not behind and age_s + track_s <= limit_s:
            return "track"
        if may_carry and age_s + carry_s <= limit_s:
            return "carry"
        least_s = carry_s if may_carry else track_s
        if waiting or least_s <= limit_s:
            return "drop"
        return "carry" if may_carry else "track"  # no frame could be in time, so this one may as well go

    def _out_of_time(self) -> bool:
        """Whether the latest frame was so slow that, if that lasts, none will be in time at this rung."""
        if self._costs.surprise < _NOTABLE_STEP or self._rung == len(self.ladder) - 1:
            return False
        moves = self._pattern.skipped > 0
        track_s = self._costs.careful_track_s(self.setting, self._until_detection <= 0, moves=moves)
        return track_s > self.settings.max_latency_s

    def _notice_step(self, step: float) -> None:
        """A step of the load makes earlier changes and mistakes irrelevant."""
        if 1.0 / _NOTABLE_STEP < step < _NOTABLE_STEP:
            return
        self._load_step = step
        self._changes_s.clear()
        self._rose_s = None
        if step < 1.0:
            self._rise_after_s = _RISE_AFTER_S

    def _demand_fps(self) -> float:
        return min(self.settings.target_fps, self._source_fps or self.settings.target_fps)

    def _replan(self, now_s: float) -> str | None:
        """Move to another rung if it is time to; say why."""
        if not (self._news and self._costs.ready):
            return None
        self._news = False
        fps = self._demand_fps()
        taken = self._shared.taken_by_others(self._stream_id)
        forecasts = [self._costs.forecast(setting, fps, taken) for setting in self.ladder]
        here, before = forecasts[self._rung], self._rung
        settled = not self._changes_s or now_s - self._changes_s[-1] >= _SETTLE_S
        overload = here.least_business > _OVERLOAD and self._queueing
        if settled and (overload or not self._in_time(here)):
            self._fall(now_s, forecasts)
        else:
            self._rise(now_s, forecasts)
        self._shared.post(self._stream_id, forecasts[self._rung].own)
        reason = None
        if self._rung != before:
            self._changes_s.append(now_s)
            self._room_since_s = None
            self._pattern.change(self.setting.tracked, self.setting.of)
            self._until_detection = min(self._until_detection, self.setting.detection_interval - 1)
            reason = self._explain(self.ladder[before], here)
        return self._judge(forecasts, fps, settled) or reason

    def _in_time(self, forecast: Forecast) -> bool:
        return forecast.latency_s <= _LATENCY_SHARE * self.settings.max_latency_s

    def _fall(self, now_s: float, forecasts: list[Forecast]) -> None:
        """Move to the first rung that fits, or the fastest one if none does."""
        rung = _first(f.most_business <= _FITS and self._in_time(f) for f in forecasts)
        if rung is None:
            allowed = [i for i, f in enumerate(forecasts) if self._in_time(f)] or range(len(forecasts))
            least = min(forecasts[i].business for i in allowed)
            if self._rung in allowed and forecasts[self._rung].business <= _NO_BETTER * least:
                return
            rung = next(i for i in allowed if forecasts[i].business <= least)
        if self._rose_s is not None and now_s - self._rose_s < _MISTAKE_S:
            self._rise_after_s = min(2 * self._rise_after_s, _LONGEST_RISE_S)
        self._rose_s = None
        self._fell_s, self._fell_from = now_s, forecasts[0].own
        self._rung = rung

    def _rise(self, now_s: float, forecasts: list[Forecast]) -> None:
        """Move to the best rung that fits once there has been room for it for a while."""
        rung = _first(f.business <= _FITS_UP and self._in_time(f) for f in forecasts[: self._rung])
        if rung is None:
            self._room_since_s = None
            return
        if self._room_since_s is None:
            self._room_since_s = now_s
        lighter = forecasts[0].own < self._fell_from / _NOTABLE_STEP
        soon = self._fell_s is not None and now_s - self._fell_s < _CHANGES_SPAN_S and not lighter
        crowded = len(self._changes_s) == _MAX_CHANGES and now_s - self._changes_s[0] < _CHANGES_SPAN_S
        if now_s - self._room_since_s >= self._rise_after_s and not (soon or crowded):
            self._rung = rung
            self._rose_s = now_s

    def _judge(self, forecasts: list[Forecast], fps: float, settled: bool) -> str | None:
        """Set how many frames to admit, and say when the target gets out of reach or back within it."""
        target = self.settings.target_fps
        least = min(forecast.business for forecast in forecasts)
        possible = least <= (1.0 if self._impossible else _ADMIT_OVER)
        self._admit_fps = target if possible else min(target, _ADMIT_OVER * fps / forecasts[self._rung].business)
        if possible != self._impossible or not settled:
            return None
        self._impossible = not possible
        if possible:
            return f"{target:g} fps is within reach again ({self.setting})"
        return f"{target:g} fps is out of reach: {fps / least:.1f} fps at the limits ({self.setting})"

    def _explain(self, before: Setting, forecast: Forecast) -> str:
        step, self._load_step = self._load_step, 1.0
        load = f", load x{step:.1f}" if step != 1.0 else ""
        numbers = f"{self._costs.objects} objects, {100 * forecast.business:.0f}% busy{load}"
        if self.ladder.index(before) > self._rung:
            why = "room again"
        elif forecast.business > _OVERLOAD:
            why = "overload"
        else:
            why = f"later than {1000 * self.settings.max_latency_s:g} ms"
        return f"{why} ({numbers}): {before} -> {self.setting}"


def _first(flags: Iterable[bool]) -> int | None:
    return next((index for index, flag in enumerate(flags) if flag), None)
