"""A simulated source, channel and model under a rate controller: a day of load cases in seconds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sam3_stream.core.clock import SimulatedClock
from sam3_stream.runtime.channel import Channel
from sam3_stream.runtime.decimator import Decimator
from sam3_stream.runtime.rate_controller import RateController
from sam3_stream.runtime.rate_records import Decision, Observation
from sam3_stream.runtime.rate_settings import RateSettings, Setting, build_ladder
from sam3_stream.runtime.shared_load import SharedLoad

RESOLUTIONS = ((448, 256), (384, 224), (320, 192), (256, 160))

Schedule = Callable[[float], float]


def constant(value: float) -> Schedule:
    """The same at all times."""
    return lambda _: value


_ONE, _TWO = constant(1.0), constant(2.0)


def steps(*values: tuple[float, float]) -> Schedule:
    """Piecewise constant: (from this time on, value), in order."""
    return lambda time_s: [value for start_s, value in values if start_s <= time_s][-1]


@dataclass(frozen=True)
class Script:
    """The scripted machine and scene. Seconds are those at load 1.

    A tracked frame takes `base_s + pixel_s * (share of the largest picture's pixels) + object_s * objects`, and
    `detect_s` more when it detects; one that follows skipped frames takes `carry_s` more, as a skipped one does.
    All of it times the load and the noise.
    """

    load: Schedule = _ONE
    objects: Schedule = _TWO
    noise: float = 0.0
    heavy_tail: bool = False
    base_s: float = 0.006
    pixel_s: float = 0.014
    object_s: float = 0.001
    detect_s: float = 0.0
    carry_s: float = 0.004
    source_fps: float = 30.0
    gaps: Callable[[float], bool] = lambda _: False  # whether the source delivers nothing now
    burst_every_s: float = 0.0  # the network holds frames back for 400 ms this often, and delivers them at once
    starts_s: float = 0.0
    ends_s: float = math.inf

    def track_s(self, setting: Setting, time_s: float, detect: bool) -> float:
        """Scripted mean seconds of a tracked frame."""
        width, height = setting.resolution
        share = width * height / (RESOLUTIONS[0][0] * RESOLUTIONS[0][1])
        objects = self.objects(time_s)
        seconds = self.base_s + self.pixel_s * share + self.object_s * objects + (self.detect_s if detect else 0.0)
        return seconds * self.load(time_s)

    def frame_s(self, setting: Setting, time_s: float) -> float:
        """Scripted mean seconds of an emitted frame."""
        often = 1.0 / setting.detection_interval
        tracked_s = (1 - often) * self.track_s(setting, time_s, False) + often * self.track_s(setting, time_s, True)
        share = setting.tracked / setting.of
        moved = 1 / setting.of if setting.of > 1 else 0.0
        return share * tracked_s + (1 - share + moved) * self.carry_s * self.load(time_s)

    def feasible_fps(self, settings: RateSettings, time_s: float) -> float:
        """The highest rate that the limits allow."""
        return 1.0 / min(self.frame_s(setting, time_s) for setting in build_ladder(settings))


@dataclass(frozen=True)
class Emitted:
    """One frame that left the pipeline."""

    time_s: float
    latency_s: float
    decision: Decision
    started_s: float


@dataclass
class Stream:
    """One simulated stream and what became of its frames."""

    settings: RateSettings
    script: Script
    seed: int = 0
    shared: SharedLoad = field(default_factory=SharedLoad)
    emitted: list[Emitted] = field(default_factory=list)
    changes: list[tuple[float, str]] = field(default_factory=list)
    rungs: list[tuple[float, Setting]] = field(default_factory=list)
    late_drops: int = 0
    frames: int = 0

    def __post_init__(self) -> None:
        self.controller = RateController(self.settings, str(self.seed), self.shared)
        self.decimator = Decimator()
        self.channel: Channel[float] = Channel(self.settings.queue_frames, "drop_oldest")
        self.random = random.Random(self.seed)
        self.admit_fps = self.settings.target_fps
        self.next_s = self._arrival_s()

    def arrivals(self, until_s: float) -> None:
        """Let everything arrive that arrives until then."""
        while self.next_s <= min(until_s, self.script.ends_s):
            captured_s = self.frames / self.script.source_fps + self.script.starts_s
            if not self.script.gaps(captured_s) and self.decimator.admit(captured_s, self.admit_fps):
                self.channel.put(self.next_s)
            self.frames += 1
            self.next_s = self._arrival_s()
        if self.next_s > self.script.ends_s:
            self.shared.leave(str(self.seed))

    def _arrival_s(self) -> float:
        captured_s = self.frames / self.script.source_fps + self.script.starts_s
        every_s = self.script.burst_every_s
        if every_s and captured_s % every_s < 0.4:
            return captured_s - captured_s % every_s + 0.4
        return captured_s

    def serve(self, clock: SimulatedClock) -> bool:
        """Work on one frame that waits; False when none does."""
        taken = self.channel.take_waiting(1)
        if not taken:
            return False
        now_s, arrived_s = clock.monotonic_s(), taken[0]
        decision = self.controller.decide(now_s, arrived_s, waiting=len(self.channel), prompted=not self.emitted)
        self.admit_fps = decision.admit_fps
        if decision.reason:
            self.changes.append((now_s, decision.reason))
        if not self.rungs or self.rungs[-1][1] != decision.setting:
            self.rungs.append((now_s, decision.setting))
        if decision.action == "drop":
            self.late_drops += 1
            return True
        service_s, moved_s = self._service_s(decision, now_s), self._moved_s(decision, now_s)
        clock.sleep(service_s + moved_s)
        self.emitted.append(Emitted(clock.monotonic_s(), clock.monotonic_s() - arrived_s, decision, now_s))
        tracked = decision.action == "track"
        self.controller.observe(
            Observation(
                arrived_s=arrived_s,
                started_s=now_s,
                finished_s=clock.monotonic_s(),
                service_s={"model": service_s},
                moved_s=moved_s,
                state="tracked" if tracked else "propagated",
                resolution=decision.setting.resolution if tracked else None,
                detected=decision.detect if self.script.detect_s else None,
                objects=int(self.script.objects(now_s)),
                source_fps=self.decimator.source_fps,
            )
        )
        return True

    def _service_s(self, decision: Decision, now_s: float) -> float:
        if self.script.heavy_tail:
            noise = math.exp(self.random.gauss(0.0, self.script.noise) - 0.5 * self.script.noise**2)
        else:
            noise = 1.0 + self.script.noise * self.random.uniform(-1.0, 1.0)
        if decision.action == "track":
            return noise * self.script.track_s(decision.setting, now_s, decision.detect)
        return noise * self.script.carry_s * self.script.load(now_s)

    def _moved_s(self, decision: Decision, now_s: float) -> float:
        follows_skipped = len(self.emitted) > 0 and self.emitted[-1].decision.action == "carry"
        return self.script.carry_s * self.script.load(now_s) if follows_skipped and decision.action == "track" else 0.0

    def fps(self, start_s: float, end_s: float) -> float:
        """Delivered frames a second in a span."""
        return sum(start_s <= frame.time_s < end_s for frame in self.emitted) / (end_s - start_s)

    def feasible_fps(self, start_s: float, end_s: float) -> float:
        """The highest rate that the limits allow in a span; at the limits, with the noise that there really was."""
        frames = [frame for frame in self.emitted if start_s <= frame.time_s < end_s]
        if self.script.noise and {frame.decision.setting for frame in frames} == {self.controller.ladder[-1]}:
            return len(frames) / sum(frame.time_s - frame.started_s for frame in frames)
        times_s = (start_s + (part + 0.5) * (end_s - start_s) / 20 for part in range(20))
        return min(self.script.feasible_fps(self.settings, time_s) for time_s in times_s)

    def setting_at(self, time_s: float) -> Setting:
        """The rung in force at a time."""
        return [setting for start_s, setting in self.rungs if start_s <= time_s][-1]


def simulate(streams: list[Stream], duration_s: float) -> None:
    """Run streams on one server that takes turns, until then."""
    clock = SimulatedClock()
    while clock.now_s < duration_s:
        for stream in streams:
            stream.arrivals(clock.now_s)
        served = False
        for stream in streams:
            served |= stream.serve(clock)
            for other in streams:
                other.arrivals(clock.now_s)
        if not served:
            clock.now_s = min(
                max(stream.next_s, clock.now_s) for stream in streams if stream.next_s <= stream.script.ends_s
            )
