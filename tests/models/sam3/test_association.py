"""Association against the reference's own functions on random masks, and the thresholds' messages."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.core.errors import ConfigError
from sam3_stream.models.sam3.association import match, more_recently_occluded
from sam3_stream.models.sam3.mask_nms import mask_iou

Reference = pytest.importorskip("transformers.models.sam3_video.modeling_sam3_video").Sam3VideoModel


def random_masks(rng, count, size=16):
    """Mask logits: boxes on a coarse grid, so that overlaps of every degree occur, and some empty ones."""
    masks = np.full((count, size, size), -3.0)
    for mask in masks:
        y0, x0 = rng.integers(0, 3, 2) * 4
        height, width = rng.integers(0, 3, 2) * 4 + rng.integers(0, 2, 2)
        mask[y0 : y0 + height, x0 : x0 + width] = 3.0
    return torch.from_numpy(masks)


def reference_thresholds(config):
    return SimpleNamespace(
        assoc_iou_thresh=config.match_iou,
        trk_assoc_iou_thresh=config.track_match_iou,
        new_det_thresh=config.new_score,
        high_conf_thresh=config.confident_score,
        high_iou_thresh=config.confident_iou,
        suppress_overlapping_based_on_recent_occlusion_threshold=config.suppress_iou,
    )


def associate(detections, scores, tracks, detection_concepts, track_concepts, config):
    return match(
        mask_iou(detections > 0, tracks > 0).numpy(),
        scores.numpy(),
        np.full(len(scores), config.new_score),
        detection_concepts.numpy()[:, None] == track_concepts.numpy()[None, :],
        ~(tracks > 0).flatten(1).any(1).numpy(),
        config,
    )


@pytest.mark.parametrize("seed", range(60))
def test_matching_is_that_of_the_reference(seed):
    rng = np.random.default_rng(seed)
    config = AssociationConfig(confident_iou=0.5, new_score=0.6)
    detections, tracks = random_masks(rng, int(rng.integers(0, 8))), random_masks(rng, int(rng.integers(1, 8)))
    scores = torch.from_numpy(rng.random(len(detections)) * 0.5 + 0.5)
    detection_concepts = torch.from_numpy(rng.integers(0, 2, len(detections)))
    track_concepts = torch.from_numpy(rng.integers(0, 2, len(tracks)))
    ids = [100 + i for i in range(len(tracks))]

    new, unmatched, shared, confident, empty = Reference._associate_det_trk(
        reference_thresholds(config), detections, scores, tracks, ids, detection_concepts, track_concepts
    )
    ours = associate(detections, scores, tracks, detection_concepts, track_concepts, config)

    assert np.flatnonzero(ours.new_n).tolist() == new
    assert [ids[i] for i in np.flatnonzero(ours.unmatched_m)] == unmatched
    assert [ids[i] for i in np.flatnonzero(ours.empty_m)] == empty
    assert {ids[t]: d for t, d in ours.confident.items()} == confident
    for detection, of_detection in shared.items():
        assert [ids[i] for i in np.flatnonzero(ours.shared_nm[detection])] == of_detection


def test_by_design_a_first_detection_must_reach_the_new_detection_threshold_too():
    config = AssociationConfig()
    detection, no_tracks = random_masks(np.random.default_rng(1), 1), torch.zeros(0, 16, 16)
    score, concept, nothing = torch.tensor([0.6]), torch.tensor([0]), torch.zeros(0, dtype=torch.long)
    theirs = Reference._associate_det_trk(
        reference_thresholds(config), detection, score, no_tracks, [], concept, nothing
    )
    assert theirs[0] == [0]  # 0.6 is under the reference's own new-detection threshold of 0.7
    assert not associate(detection, score, no_tracks, concept, nothing, config).new_n.any()
    assert associate(detection, score + 0.1, no_tracks, concept, nothing, config).new_n.all()


@pytest.mark.parametrize("seed", range(40))
def test_suppression_by_recent_occlusion_is_that_of_the_reference(seed):
    rng = np.random.default_rng(seed)
    config = AssociationConfig(suppress_iou=0.4)
    tracks = random_masks(rng, int(rng.integers(1, 8))) > 0
    occluded = rng.integers(-1, 5, len(tracks))
    expected = Reference._get_objects_to_suppress_based_on_most_recently_occluded(
        reference_thresholds(config), tracks, torch.from_numpy(occluded), list(range(len(tracks)))
    )
    same_concept = np.ones((len(tracks), len(tracks)), bool)
    ours = more_recently_occluded(mask_iou(tracks, tracks).numpy(), same_concept, occluded, config.suppress_iou)
    assert ours.tolist() == expected.tolist()


def test_overlaps_of_different_concepts_are_never_suppressed():
    iou, occluded = np.ones((2, 2)), np.array([3, 5])
    assert more_recently_occluded(iou, np.ones((2, 2), bool), occluded, 0.7).tolist() == [False, True]
    assert not more_recently_occluded(iou, np.eye(2, dtype=bool), occluded, 0.7).any()
    assert not more_recently_occluded(iou, np.ones((2, 2), bool), occluded, 0.0).any()


def test_the_defaults_are_the_reference_config_defaults():
    theirs = pytest.importorskip("transformers").Sam3VideoConfig
    names = {
        "score_threshold": "score_threshold_detection",
        "nms_iou": "det_nms_thresh",
        "match_iou": "assoc_iou_thresh",
        "track_match_iou": "trk_assoc_iou_thresh",
        "new_score": "new_det_thresh",
        "confident_score": "high_conf_thresh",
        "confident_iou": "high_iou_thresh",
        "recondition_ticks": "recondition_every_nth_frame",
        "hot_start_ticks": "hotstart_delay",
        "hot_start_unmatched_ticks": "hotstart_unmatch_thresh",
        "hot_start_duplicate_ticks": "hotstart_dup_thresh",
        "keep_alive_start": "init_trk_keep_alive",
        "keep_alive_max": "max_trk_keep_alive",
        "keep_alive_min": "min_trk_keep_alive",
        "keep_alive_drops_when_empty": "decrease_trk_keep_alive_for_empty_masklets",
        "suppress_iou": "suppress_overlapping_based_on_recent_occlusion_threshold",
    }
    config = AssociationConfig()
    for ours, reference_name in names.items():
        assert getattr(config, ours) == getattr(theirs, reference_name), ours
    assert config.hide_unmatched is not theirs.suppress_unmatched_only_within_hotstart


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"new_score": 1.2}, "new_score must lie between 0 and 1, got 1.2"),
        ({"suppress_iou": -0.1}, "suppress_iou must lie between 0 and 1"),
        ({"hot_start_ticks": -1}, "0 or more detection ticks"),
        ({"expire_after_s": 0.0}, "positive number of seconds"),
        ({"merge_after_s": float("nan")}, "positive number of seconds"),
        ({"keep_alive_start": 40}, "between keep_alive_min and keep_alive_max"),
    ],
)
def test_a_threshold_out_of_range_is_named(setting, message):
    with pytest.raises(ConfigError, match=message):
        AssociationConfig(**setting)
