"""Which detection is which track: matching by mask IoU within a concept, and the thresholds of all that follows.

Pure functions on small arrays. The rules are those of `Sam3VideoModel._associate_det_trk` in `transformers`, with one
difference: a detection must reach the new-detection threshold to become a track even when there is no track yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sam3_stream.core.association_config import AssociationConfig

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.floating]


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
