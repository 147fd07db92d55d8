"""The life of the tracks that a concept found: probation, keep-alive, occlusion, duplicates, expiry.

All of it is one row of fixed-size arrays a slot, so it cannot grow with the stream and a snapshot is those arrays.
The rules of the reference (`Sam3VideoModel._process_hotstart`, which it skips when streaming) count detection ticks;
expiry and merging, which it lacks, count stream time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.models.sam3.association import BoolArray, FloatArray, Matches, more_recently_occluded

IntArray = npt.NDArray[np.int64]
_NEVER = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look of the detector means for the tracks.

    Attributes:
        rejected: Slots of tracks that failed their probation: nothing of what was shown of them holds.
        ended: Slots of tracks that expired or merged into an earlier one.
    """

    rejected: tuple[int, ...]
    ended: tuple[int, ...]


class Lifecycle:
    """Counts, for every slot, what decides whether its track lives, is shown and remembers.

    Args:
        config: Thresholds.
        capacity: Number of slots.
    """

    def __init__(self, config: AssociationConfig, capacity: int) -> None:
        self._config = config
        self._tick = 0
        self._step = 0
        self._pinned = np.zeros(capacity, np.bool_)
        self._born_tick = np.zeros(capacity, np.int64)
        self._unmatched_ticks = np.zeros(capacity, np.int64)
        self._keep_alive = np.zeros(capacity, np.int64)
        self._supported_tick = np.zeros(capacity, np.int64)
        self._supported_s = np.zeros(capacity, np.float64)
        self._occluded_step = np.full(capacity, _NEVER, np.int64)
        self._duplicate_ticks = np.zeros((capacity, capacity), np.int64)  # [earlier, later] track of a shared detection
        self._merging_tick = np.full((capacity, capacity), _NEVER, np.int64)
        self._merging_s = np.zeros((capacity, capacity), np.float64)

    @property
    def recondition_is_due(self) -> bool:
        """Whether confident detections re-condition their tracks on the current tick."""
        return self._config.recondition_ticks > 0 and self._tick % self._config.recondition_ticks == 0

    def start(self, slot: int, time_s: float) -> None:
        """A track is born in a free slot on the current tick."""
        self.forget(slot)
        self._born_tick[slot] = self._supported_tick[slot] = self._tick
        self._supported_s[slot] = time_s
        self._keep_alive[slot] = self._config.keep_alive_start

    def forget(self, slot: int) -> None:
        """The track of a slot is gone."""
        self._pinned[slot] = False
        self._unmatched_ticks[slot] = 0
        self._occluded_step[slot] = _NEVER
        for pairs, empty in ((self._duplicate_ticks, 0), (self._merging_tick, _NEVER)):
            pairs[slot] = empty
            pairs[:, slot] = empty

    def pin(self, slot: int) -> None:
        """A user has confirmed the track: it is past probation and ends only when the user says so."""
        self._pinned[slot] = True

    def on_probation(self, slot: int) -> bool:
        """Whether hot start may still reject the track of a slot."""
        return not self._pinned[slot] and bool(self._tick - self._born_tick[slot] < self._config.hot_start_ticks)

    def is_shown(self, slot: int) -> bool:
        """Whether the track is to be listed at all."""
        return self._config.show == "at_once" or not self.on_probation(slot)

    def is_hidden(self, slot: int) -> bool:
        """Whether the track is to be reported absent because it has gone unmatched for long."""
        return self._config.hide_unmatched and not self._pinned[slot] and bool(self._keep_alive[slot] <= 0)

    def observe(self, slots: IntArray, matches: Matches, iou_mm: FloatArray, time_s: float) -> Verdict:
        """Count a look of the detector.

        Args:
            slots: Slots of the m tracks, shape (m,), in the order of `matches`.
            matches: How its detections and the tracks belong together.
            iou_mm: IoU of the tracks' masks, shape (m, m).
            time_s: Stream time in seconds.
        """
        config = self._config
        matched, unmatched = slots[matches.matched_m], slots[matches.unmatched_m]
        self._keep_alive[matched] = np.minimum(config.keep_alive_max, self._keep_alive[matched] + 1)
        dropping = matches.unmatched_m | (matches.empty_m & config.keep_alive_drops_when_empty)
        self._keep_alive[slots[dropping]] = np.maximum(config.keep_alive_min, self._keep_alive[slots[dropping]] - 1)
        self._unmatched_ticks[unmatched] += 1
        self._supported_tick[slots[matches.supported_m]] = self._tick
        self._supported_s[slots[matches.supported_m]] = time_s
        self._count_duplicates(slots, matches, iou_mm, time_s)
        rejected = tuple(int(slot) for slot in slots if self._fails_probation(int(slot), slots))
        ended = tuple(
            int(slot)
            for slot in slots
            if int(slot) not in rejected
            and (self._expires(int(slot), time_s) or self._merges(int(slot), slots, time_s))
        )
        return Verdict(rejected, ended)

    def next_tick(self) -> None:
        """The look is over: what comes belongs to the next one."""
        self._tick += 1

    def suppress(
        self, slots: IntArray, iou_mm: FloatArray, same_concept_mm: BoolArray, empty_m: BoolArray
    ) -> BoolArray:
        """Count a step, with or without a look of the detector: which of m tracks lose their mask to another.

        Args:
            slots: Slots of the m tracks, shape (m,).
            iou_mm: IoU of the tracks' masks, shape (m, m).
            same_concept_mm: Whether a pair is of one concept, shape (m, m).
            empty_m: Whether a track's mask is empty, shape (m,).

        Returns:
            bool, shape (m,).
        """
        to_suppress = more_recently_occluded(
            iou_mm, same_concept_mm, self._occluded_step[slots], self._config.suppress_iou
        )
        self._occluded_step[slots[empty_m | to_suppress]] = self._step
        self._step += 1
        return to_suppress

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """All counts as arrays of fixed size; `restore` takes them back."""
        arrays = {name: value.copy() for name, value in self._arrays().items()}
        return {**arrays, "clock": np.array([self._tick, self._step], np.int64)}

    def restore(self, state: dict[str, npt.NDArray[np.generic]]) -> None:
        """Become the lifecycle that gave this `state`; slots beyond those of the other are free."""
        for slot in range(len(self._pinned)):
            self.forget(slot)
        for name, value in self._arrays().items():
            both = tuple(slice(0, min(sizes)) for sizes in zip(value.shape, state[name].shape, strict=True))
            value[both] = state[name][both]
        self._tick, self._step = (int(value) for value in state["clock"])

    def _arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        return {name.lstrip("_"): value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def _count_duplicates(self, slots: IntArray, matches: Matches, iou_mm: FloatArray, time_s: float) -> None:
        """Note every pair of tracks that share a detection: how often, and since when they have covered each other."""
        merging = np.zeros_like(self._duplicate_ticks, np.bool_)
        for shared_m in matches.shared_nm:
            sharing = np.flatnonzero(shared_m)
            if len(sharing) < 2:
                continue
            first = min(sharing, key=lambda index: (not self._pinned[slots[index]], self._born_tick[slots[index]]))
            for later in sharing[sharing != first]:
                pair = slots[first], slots[later]
                self._duplicate_ticks[pair] += 1
                merging[pair] = iou_mm[first, later] >= self._config.suppress_iou > 0
        self._merging_tick[~merging] = _NEVER
        begins = merging & (self._merging_tick == _NEVER)
        self._merging_tick[begins] = self._tick
        self._merging_s[begins] = time_s

    def _fails_probation(self, slot: int, slots: IntArray) -> bool:
        config = self._config
        if not self.on_probation(slot):
            return False
        unmatched = 0 < config.hot_start_unmatched_ticks <= self._unmatched_ticks[slot]
        duplicate = 0 < config.hot_start_duplicate_ticks <= self._duplicate_ticks[slots, slot].max()
        return bool(unmatched or duplicate)

    def _expires(self, slot: int, time_s: float) -> bool:
        return (
            not self._pinned[slot]
            and time_s - self._supported_s[slot] >= self._config.expire_after_s
            and self._tick - self._supported_tick[slot] >= self._config.settle_ticks
        )

    def _merges(self, slot: int, slots: IntArray, time_s: float) -> bool:
        since_tick, since_s = self._merging_tick[slots, slot], self._merging_s[slots, slot]
        return not self._pinned[slot] and bool(
            np.any(
                (since_tick != _NEVER)
                & (time_s - since_s >= self._config.merge_after_s)
                & (self._tick - since_tick >= self._config.settle_ticks)
            )
        )
