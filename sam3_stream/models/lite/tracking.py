"""From the classifiers' scores to the objects' probabilities on the stride-4 grid."""

from __future__ import annotations

import cv2
import numpy as np

from sam3_stream.models.lite.backbone import FloatArray
from sam3_stream.models.lite.prompts.fit import log_odds, sigmoid

SCORE_SLOPE = 8.0
PRIOR_FLOOR = 0.02
PRIOR_BLUR = 2.0
REACH = 10
FAR_SCORE = -1.0
SEARCH_SCORE = 0.25


def tracked_log_odds(score: FloatArray, previous: FloatArray) -> FloatArray:
    """What the classifier says, with the last mask as the prior; little is believed far away from it.

    Args:
        score: float32 (h, w), the classifier's output: about +1 on the object and -1 off it.
        previous: float32 (h, w), the object's last probability.
    """
    reach = cv2.dilate((previous > 0.5).astype(np.uint8), np.ones((2 * REACH + 1,) * 2, np.uint8)) > 0
    score = np.where(reach, score, np.minimum(score, np.float32(FAR_SCORE)))
    prior = np.asarray(cv2.GaussianBlur(previous, (0, 0), PRIOR_BLUR), np.float32)
    return SCORE_SLOPE * score + log_odds(prior, PRIOR_FLOOR)


def search_probability(score: FloatArray) -> FloatArray:
    """What the classifier says of an object that could be anywhere: float32 (h, w)."""
    return sigmoid(np.float32(SCORE_SLOPE) * (score - np.float32(SEARCH_SCORE)))


def compete(log_odds_nhw: FloatArray) -> FloatArray:
    """Probabilities of objects that cannot be in the same place: p = odds / (1 + all odds).

    Args:
        log_odds_nhw: float32 (n, h, w), every object against the background.
    """
    highest = np.maximum(log_odds_nhw.max(axis=0), 0)
    odds = np.exp(log_odds_nhw - highest)
    return np.asarray(odds / (np.exp(-highest) + odds.sum(axis=0)), np.float32)
