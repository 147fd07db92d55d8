"""Thresholds of how detections of a phrase become tracks, live and end; see `models.sam3.association`."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from sam3_stream.core.errors import ConfigError


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
