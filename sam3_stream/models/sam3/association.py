"""Which detection is which track: matching by mask IoU within a concept, and the thresholds of all that follows.

Pure functions on small arrays. The rules are those of `Sam3VideoModel._associate_det_trk` in `transformers`, with one
difference: a detection must reach the new-detection threshold to become a track even when there is no track yet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from sam3_stream.core.errors import ConfigError

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssociationConfig:
    """Thresholds of detection, association and the life of a track.

    Defaults are those of the reference (`Sam3VideoConfig`), whose frames are our detection ticks: a rule that counts
    looks of the detector means the same at every detection interval. Rules the reference lacks count stream time.

    Attributes:
        score_threshold: Score above which a detection counts at all.
        nms_iou: Mask IoU above which the worse of two detections of one concept is dropped; 0 keeps both.
        match_iou: Mask IoU from which a detection belongs to a track, and so is not new.
        track_match_iou: Mask IoU from which a track counts as matched; stricter.
        new_score: Score from which an unmatched detection becomes a track.
        confident_score: Score from which a detection may re-condition its track.
        confident_iou: Mask IoU from which a detection may re-condition its track.
        confident_track_logit: Object score (a logit) above which a track may be re-conditioned.
        recondition_ticks: Every so many ticks confident detections re-condition their tracks: the frame is remembered
            as one with a prompt, and the detection's mask is shown; 0 for never.
        hot_start_ticks: For so many ticks a track is on probation.
        hot_start_unmatched_ticks: Unmatched ticks on probation that reject it.
        hot_start_duplicate_ticks: Ticks on probation matched to the detection of an earlier track that reject it.
        show: Whether a track is shown at once (and perhaps retracted later) or when it has passed its probation.
        keep_alive_start: Keep-alive count of a new track: it goes up by a matched tick, down by an unmatched one.
        keep_alive_max: Upper bound of the keep-alive count.
        keep_alive_min: Lower bound of the keep-alive count.
        keep_alive_drops_when_empty: Whether the count also goes down on ticks where the track's mask is empty.
        hide_unmatched: Whether tracks with a count of 0 or less are hidden (absent) until matched again.
        suppress_iou: Mask IoU from which the more recently occluded of two tracks is suppressed; 0 for never.
        expire_after_s: Stream seconds without a match after which a track ends and frees its room; inf for never.
        merge_after_s: Stream seconds for which two tracks share a detection and overlap by `suppress_iou` or more,
            after which the younger ends; inf for never.
        settle_ticks: Ticks that must also have passed before a track expires or merges, so that neither rests on one
            look of a slow detector.
        remember_raw_on_birth: Whether, on frames where an object is born, the other objects remember their raw
            binarised masks instead of the non-overlapping ones; only to reproduce `transformers`, which runs its whole
            tracker a second time on such frames.
    """

    score_threshold: float = 0.5
    nms_iou: float = 0.1
    match_iou: float = 0.1
    track_match_iou: float = 0.5
    new_score: float = 0.7
    confident_score: float = 0.8
    confident_iou: float = 0.8
    confident_track_logit: float = 0.8
    recondition_ticks: int = 16
    hot_start_ticks: int = 15
    hot_start_unmatched_ticks: int = 8
    hot_start_duplicate_ticks: int = 8
    show: Literal["at_once", "after_hot_start"] = "at_once"
    keep_alive_start: int = 30
    keep_alive_max: int = 30
    keep_alive_min: int = -1
    keep_alive_drops_when_empty: bool = False
    hide_unmatched: bool = False
    suppress_iou: float = 0.7
    expire_after_s: float = 10.0
    merge_after_s: float = 2.0
    settle_ticks: int = 8
    remember_raw_on_birth: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            unit_interval = field.name.endswith(("_iou", "_score")) or field.name == "score_threshold"
            if unit_interval and not 0.0 <= value <= 1.0:
                raise ConfigError(f"{field.name} must lie between 0 and 1, got {value}")
            if field.name.endswith("_ticks") and value < 0:
                raise ConfigError(f"{field.name} must be 0 or more detection ticks, got {value}")
            if field.name.endswith("_s") and (math.isnan(value) or value <= 0):
                raise ConfigError(f"{field.name} must be a positive number of seconds (inf for never), got {value}")
        if not self.keep_alive_min <= self.keep_alive_start <= self.keep_alive_max:
            raise ConfigError(
                "keep_alive_start must lie between keep_alive_min and keep_alive_max, got "
                f"{self.keep_alive_start} with {self.keep_alive_min} and {self.keep_alive_max}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """How n detections and m tracks belong together.

    Attributes:
        new_n: bool (n,), detections that become tracks.
        shared_nm: bool (n, m), the tracks that each detection belongs to; several tracks may share a detection.
        matched_m: bool (m,), tracks that share some detection.
        unmatched_m: bool (m,), tracks with a mask that no detection covers well; one may be shared and unmatched.
        supported_m: bool (m,), tracks that are the best match of a detection, or are covered well by one.
        empty_m: bool (m,), tracks whose mask is empty.
        confident: For some tracks (by index) the detection that may re-condition them.
    """

    new_n: BoolArray
    shared_nm: BoolArray
    matched_m: BoolArray
    unmatched_m: BoolArray
    supported_m: BoolArray
    empty_m: BoolArray
    confident: dict[int, int]


def match(
    iou_nm: FloatArray,
    scores_n: FloatArray,
    new_score_n: FloatArray,
    same_concept_nm: BoolArray,
    empty_m: BoolArray,
    config: AssociationConfig,
) -> Matches:
    """Match the detections of a frame with the tracks on it.

    Args:
        iou_nm: IoU of every detection's mask with every track's, shape (n, m).
        scores_n: Scores of the detections, shape (n,).
        new_score_n: Score from which each detection may become a track, shape (n,).
        same_concept_nm: Whether detection and track are of one concept, shape (n, m); others never match.
        empty_m: Whether a track's mask is empty, shape (m,).
        config: Thresholds.
    """
    iou_nm = np.where(same_concept_nm, iou_nm, 0.0)
    shared_nm = same_concept_nm & (iou_nm >= config.match_iou)
    has_track_n: BoolArray = np.logical_or.reduce(shared_nm, axis=1)
    covered_m: BoolArray = np.logical_or.reduce(iou_nm >= config.track_match_iou, axis=0)
    new_n = (scores_n >= new_score_n) & ~has_track_n
    supported_m = covered_m.copy()
    confident: dict[int, int] = {}
    if iou_nm.shape[1]:
        best_n = iou_nm.argmax(axis=1)
        best_iou_n = iou_nm.max(axis=1)
        supported_m[best_n[has_track_n]] = True
        is_confident_n = (scores_n >= config.confident_score) & ~new_n & (best_iou_n >= config.confident_iou)
        confident = {int(best_n[index]): int(index) for index in np.flatnonzero(is_confident_n)}
    return Matches(
        new_n=new_n,
        shared_nm=shared_nm,
        matched_m=np.logical_or.reduce(shared_nm, axis=0),
        unmatched_m=~empty_m & ~covered_m,
        supported_m=supported_m,
        empty_m=empty_m,
        confident=confident,
    )


def more_recently_occluded(
    iou_mm: FloatArray, same_concept_mm: BoolArray, occluded_m: npt.NDArray[np.int64], suppress_iou: float
) -> BoolArray:
    """Of tracks of one concept that overlap, those to suppress: the ones that were occluded more recently.

    As in the reference a pair is left alone unless both tracks have been occluded or suppressed before.

    Args:
        iou_mm: IoU of every pair of track masks, shape (m, m).
        same_concept_mm: Whether a pair is of one concept, shape (m, m).
        occluded_m: Number of the step at which each track was last occluded, -1 for never, shape (m,).
        suppress_iou: IoU from which a pair counts as overlapping; 0 for never.

    Returns:
        bool, shape (m,).
    """
    if suppress_iou <= 0:
        return np.zeros(len(occluded_m), np.bool_)
    overlapping_mm = (iou_mm >= suppress_iou) & same_concept_mm & ~np.eye(len(occluded_m), dtype=np.bool_)
    later_mm = occluded_m[:, None] > occluded_m[None, :]
    to_suppress_m: BoolArray = np.logical_or.reduce(overlapping_mm & later_mm & (occluded_m > -1)[None, :], axis=1)
    return to_suppress_m
