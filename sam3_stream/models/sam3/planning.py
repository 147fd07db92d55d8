"""What a frame's detections and tracks mean: births, rejections, ends, re-conditioning and suppression.

Between the tensors of the model and the small arrays of `association` and `lifecycle`: one matrix of mask overlaps a
frame is made on the device and fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.models.sam3.association import BoolArray, FloatArray, match
from sam3_stream.models.sam3.lifecycle import IntArray, Lifecycle
from sam3_stream.models.sam3.mask_nms import mask_iou


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """What the detector found on a frame, of all concepts, after non-maximum suppression.

    Attributes:
        masks_nhw: Mask logits, shape (n, h, w).
        scores_n: Shape (n,), 0 to 1.
        concepts_n: Number of the concept each was found for, shape (n,).
        new_score_n: Score from which each may become a track, shape (n,).
    """

    masks_nhw: Tensor
    scores_n: FloatArray
    concepts_n: IntArray
    new_score_n: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """The tracks of all concepts on a frame.

    Attributes:
        masks_mhw: Mask logits, shape (m, h, w); on a frame with detections of the detections' size.
        object_logits_m: Logit of each object being there, shape (m,), on the masks' device.
        slots_m: Slot of each track, shape (m,).
        concepts_m: Number of the concept each belongs to, shape (m,).
    """

    masks_mhw: Tensor
    object_logits_m: Tensor
    slots_m: IntArray
    concepts_m: IntArray

    def __len__(self) -> int:
        return len(self.slots_m)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about the tracks of a frame.

    Attributes:
        births: Detections, by index, that become tracks, in the order in which they get their ids.
        rejected: Slots whose track failed its probation and is taken back.
        ended: Slots whose track is over.
        recondition: For some slots the detection, by index, that confirms the track.
    """

    births: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    recondition: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Overlaps:
    """How the masks of a frame cover each other, fetched from the device in one go.

    Attributes:
        iou_nm: IoU of every detection with every track, shape (n, m).
        iou_mm: IoU of every pair of tracks, shape (m, m).
        empty_m: Whether a track's mask is empty, shape (m,).
        object_logits_m: Logit of each track's object being there, shape (m,).
    """

    iou_nm: FloatArray
    iou_mm: FloatArray
    empty_m: BoolArray
    object_logits_m: FloatArray

    @classmethod
    def of(cls, tracks: Tracks, detections: Detections | None = None) -> Overlaps:
        """Measure the overlaps of a frame's tracks, and of the detections with them."""
        count = 0 if detections is None else len(detections.scores_n)
        if not len(tracks):
            return cls(np.zeros((count, 0)), np.zeros((0, 0)), np.zeros(0, np.bool_), np.zeros(0))
        with torch.autocast(tracks.masks_mhw.device.type, enabled=False):
            on_mhw = tracks.masks_mhw > 0
            both = on_mhw if detections is None else torch.cat([detections.masks_nhw > 0, on_mhw])
            filled_m = on_mhw.flatten(1).any(dim=1)
            rows = torch.cat([mask_iou(both, on_mhw), filled_m.float()[None], tracks.object_logits_m.float()[None]])
        fetched: npt.NDArray[np.float32] = rows.cpu().numpy()
        return cls(fetched[:count], fetched[count:-2], fetched[-2] == 0, fetched[-1])


class Planner:
    """Decides for all concepts of one session; holds their tracks' lifecycle and nothing else.

    Args:
        config: Thresholds.
        capacity: Number of slots.
    """

    def __init__(self, config: AssociationConfig, capacity: int) -> None:
        self.config = config
        self.lifecycle = Lifecycle(config, capacity)

    def look(
        self,
        detections: Detections,
        tracks: Tracks,
        overlaps: Overlaps,
        *,
        time_s: float,
        room: int,
        room_of_concept: Mapping[int, int],
    ) -> Plan:
        """Plan a frame that the detector looked at.

        The caller carries the plan out: it forgets the slots that are gone, starts those of the births, and calls
        `Lifecycle.next_tick`.

        Args:
            detections: What the detector found.
            tracks: The tracks as propagated to this frame.
            overlaps: Of both.
            time_s: Stream time in seconds.
            room: How many slots are free.
            room_of_concept: For concepts with a limit of their own, how many more objects they may have.
        """
        same_concept_nm = detections.concepts_n[:, None] == tracks.concepts_m[None, :]
        matches = match(
            overlaps.iou_nm, detections.scores_n, detections.new_score_n, same_concept_nm, overlaps.empty_m, self.config
        )
        verdict = self.lifecycle.observe(tracks.slots_m, matches, overlaps.iou_mm, time_s)
        gone = {*verdict.rejected, *verdict.ended}
        recondition = {}
        if self.lifecycle.recondition_is_due:
            recondition = {
                int(tracks.slots_m[track]): detection
                for track, detection in matches.confident.items()
                if overlaps.object_logits_m[track] > self.config.confident_track_logit
                and int(tracks.slots_m[track]) not in gone
            }
        births = _within_limits(np.flatnonzero(matches.new_n), detections, room + len(gone), room_of_concept)
        return Plan(births, verdict.rejected, verdict.ended, recondition)

    def suppress(self, tracks: Tracks, overlaps: Overlaps) -> BoolArray:
        """Which tracks of a frame lose their mask to another that overlaps it; to be called once a frame.

        Returns:
            bool, shape (m,).
        """
        same_concept_mm = tracks.concepts_m[:, None] == tracks.concepts_m[None, :]
        return self.lifecycle.suppress(tracks.slots_m, overlaps.iou_mm, same_concept_mm, overlaps.empty_m)


def _within_limits(
    new: IntArray, detections: Detections, room: int, room_of_concept: Mapping[int, int]
) -> tuple[int, ...]:
    """The new detections that there is room for: all in their order, or the best by score where there are too many."""
    kept: list[int] = []
    for concept in dict.fromkeys(detections.concepts_n[new].tolist()):
        candidates = [int(index) for index in new if detections.concepts_n[index] == concept]
        kept += _best(candidates, detections.scores_n, room_of_concept.get(concept, len(candidates)))
    return tuple(_best(kept, detections.scores_n, room))


def _best(indices: list[int], scores_n: FloatArray, limit: int) -> list[int]:
    if len(indices) <= limit:
        return indices
    return sorted(indices, key=lambda index: -scores_n[index])[: max(0, limit)]
