"""Phrases in a session against `Sam3VideoModel` streaming, in float64 on calibrated checkpoints.

With the settings that make the rules equal, the same ids appear on the same frames with the same mask logits. What ours
does otherwise by design is then switched on, one thing at a time.
"""

import math
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from transformers.models.sam3_video import modeling_sam3_video as reference_module

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.models.sam3 import TrackerOptions, load_sam3
from sam3_stream.models.sam3.concept_options import ConceptOptions
from tests.models.sam3.test_mask_nms import greedy_loop
from tests.support.sam3_checkpoints import moving_picture, to_pixels
from tests.support.sam3_concepts import concept_model, id_counter, moving_frame, phrases, reference_session
from tests.support.sam3_tokenizer import save_tokenizer

PHRASES = ("dog", "red cat")
MAX_OBJECTS = 12
RESOLUTION = 56
SAME_RULES = AssociationConfig(
    score_threshold=0.7,
    new_score=0.7,
    nms_iou=0.0,
    confident_score=0.6,
    confident_iou=0.3,
    confident_track_logit=0.6,
    suppress_iou=0.5,
    hot_start_ticks=0,
    expire_after_s=math.inf,
    merge_after_s=math.inf,
    remember_raw_on_birth=True,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    saved = {}

    def folder_of(seed):
        if seed not in saved:
            saved[seed] = tmp_path_factory.mktemp(f"seed{seed}")
            concept_model(seed, RESOLUTION).save_pretrained(saved[seed])
            save_tokenizer(saved[seed])
        return saved[seed]

    return folder_of


class Theirs:
    """`Sam3VideoModel` with a streaming session, one frame at a time."""

    def __init__(self, seed, config, *, plain_pointers=False, streaming=True):
        self.model = deepcopy(concept_model(seed, RESOLUTION))
        model = self.model
        model.score_threshold_detection = config.score_threshold
        model.new_det_thresh = config.new_score
        model.det_nms_thresh = config.nms_iou
        model.high_conf_thresh, model.high_iou_thresh = config.confident_score, config.confident_iou
        model.suppress_overlapping_based_on_recent_occlusion_threshold = config.suppress_iou
        model.hotstart_delay = config.hot_start_ticks
        model.hotstart_unmatch_thresh = config.hot_start_unmatched_ticks
        model.hotstart_dup_thresh = config.hot_start_duplicate_ticks
        model.max_num_objects = MAX_OBJECTS
        self.streaming = streaming
        self.session = reference_session(model, PHRASES)
        if not plain_pointers:
            # the reference scales pointer ages by the number of frames so far until there are 16; here there always are
            self.session.processed_frames = {-number: torch.zeros(0) for number in range(1, 17)}

    def step(self, number):
        """{id: mask logits} and {id: object score logit} of the frame."""
        pixels = to_pixels([moving_picture(number)], RESOLUTION)[0].double()
        if self.streaming:
            out = self.model(self.session, frame=pixels, frame_idx=number)
        else:
            self.session.add_new_frame(pixels, number)
            out = self.model(self.session, frame_idx=number)
        return {object_id + 1: out.obj_id_to_mask[object_id][0] for object_id in out.object_ids}, {
            object_id + 1: score for object_id, score in out.obj_id_to_tracker_score.items()
        }


class Ours:
    """Our session on the same checkpoint."""

    def __init__(self, folder, config, *, areas=0):
        self.model = load_sam3(
            folder,
            device="cpu",
            dtype="fp64",
            options=TrackerOptions(hole_area=areas, sprinkle_area=areas, max_objects=MAX_OBJECTS),
            concepts=ConceptOptions(association=config, prompt_bank=None),
        )
        ids = id_counter()
        self.session = self.model.open_session(lambda: next(ids))
        self.result = None

    def step(self, number):
        encoded = self.model.encode([moving_frame(number)])[0]
        self.result = self.session.step(encoded, phrases(*PHRASES) if number == 0 else [])
        bank, entries = self.session._bank, list(self.session._objects)
        masks = {entry.object_id: bank.logits_shw[entry.slot].clone() for entry in entries}
        return masks, {entry.object_id: float(bank.scores_s[entry.slot].sigmoid()) for entry in entries}


def distance(ours, theirs):
    """Largest difference of the mask logits of two frames with the same objects."""
    return max((float((ours[object_id] - theirs[object_id]).abs().max()) for object_id in theirs), default=0.0)


def assert_same(ours, theirs, frames, number_of=lambda step: step):
    for step in range(frames):
        (our_masks, our_scores), (their_masks, their_scores) = ours.step(number_of(step)), theirs.step(number_of(step))
        assert list(our_masks) == sorted(their_masks), f"frame {step}"
        assert distance(our_masks, their_masks) < 1e-3, f"frame {step}"
        for object_id, score in our_scores.items():
            assert abs(score - their_scores[object_id]) < 1e-5, f"frame {step}, object {object_id}"
    return our_masks


@pytest.mark.parametrize(("seed", "rule", "at_least"), [(9, "suppressed", 20), (4, "confirmed", 2), (14, "births", 12)])
def test_the_same_ids_appear_on_the_same_frames_with_the_same_logits_over_40_frames(
    seed, rule, at_least, folders, monkeypatch
):
    happened = SimpleNamespace(births=0, confirmed=0, suppressed=0)
    ours, theirs = Ours(folders(seed), SAME_RULES), Theirs(seed, SAME_RULES)
    planner = ours.session._concepts._planner
    look, suppress = planner.look, planner.suppress

    def counted_look(*args, **kwargs):
        plan = look(*args, **kwargs)
        happened.births += len(plan.births)
        happened.confirmed += len(plan.recondition)
        return plan

    def counted_suppress(*args):
        suppressed = suppress(*args)
        happened.suppressed += int(suppressed.sum())
        return suppressed

    monkeypatch.setattr(planner, "look", counted_look)
    monkeypatch.setattr(planner, "suppress", counted_suppress)
    masks = assert_same(ours, theirs, 40)
    assert happened.births == len(masks) > 0
    assert getattr(happened, rule) >= at_least, "each checkpoint exercises a rule of its own"


def test_with_kernels_for_nms_and_holes_the_reference_does_what_ours_does_without(folders, monkeypatch):
    """The reference's kernels, as their documentation describes them, against our own NMS and hole filling."""

    class Kernels:
        @staticmethod
        def generic_nms(ious, scores, threshold, use_iou_matrix):
            return torch.from_numpy(np.flatnonzero(greedy_loop(ious.numpy(), scores.numpy(), threshold)))

        @staticmethod
        def cc_2d(masks, get_counts):
            labels, counts = np.zeros(masks.shape, np.int32), np.zeros(masks.shape, np.int32)
            for index, mask in enumerate(masks[:, 0].numpy()):
                _, labels[index, 0], stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
                counts[index, 0] = np.where(mask > 0, stats[labels[index, 0], cv2.CC_STAT_AREA], 0)
            return torch.from_numpy(labels), torch.from_numpy(counts)

    monkeypatch.setattr(reference_module, "cv_utils_kernel", Kernels)
    config = replace(SAME_RULES, nms_iou=0.1, score_threshold=0.6, new_score=0.6)
    ours, theirs = Ours(folders(9), config, areas=16), Theirs(9, config)
    assert_same(ours, theirs, 20)

    with_kernels = Theirs(9, config).step(0)[0]
    monkeypatch.setattr(reference_module, "cv_utils_kernel", False)
    without = Theirs(9, config).step(0)[0]
    assert len(without) > len(with_kernels), "without its kernels the reference keeps duplicates"


def test_hot_start_while_streaming_is_the_references_hot_start_with_the_whole_video(folders):
    """The reference skips hot start when frames are streamed; given the video it removes what ours removes.

    On a frame where it removes something it hands out the masks of others under the ids that remain (it drops the
    objects before it pairs ids with masks), so logits are compared on the other frames.
    """
    config = replace(
        SAME_RULES, hot_start_ticks=15, hot_start_unmatched_ticks=3, hot_start_duplicate_ticks=3, score_threshold=0.7,
        new_score=0.7,
    )  # fmt: skip
    ours, theirs, streaming = (
        Ours(folders(9), config),
        Theirs(9, config, streaming=False),
        Theirs(9, config),
    )
    removed, kept, compared = set(), {}, 0
    shown_until = {}
    for number in range(14):
        our_masks, their_masks, streamed = ours.step(number)[0], theirs.step(number)[0], streaming.step(number)[0]
        assert list(our_masks) == sorted(their_masks), f"frame {number}"
        if not ours.result.retracted:
            compared += 1
            assert distance(our_masks, their_masks) < 1e-3, f"frame {number}"
        assert set(kept) <= set(streamed), "the streaming reference keeps them all"
        kept = streamed
        for retraction in ours.result.retracted:
            removed.add(retraction.object_id)
            assert retraction.last_sequence == number - 1 == shown_until[retraction.object_id]
        shown_until.update(dict.fromkeys(our_masks, number))
    assert len(removed) >= 3
    assert compared >= 3
    assert removed.isdisjoint(our_masks)


def test_by_design_ghosts_expire(folders):
    """A track that no detection supports: the reference keeps it for ever, ours ends it when its time is over."""
    config = replace(SAME_RULES, expire_after_s=0.4, settle_ticks=3)
    ours, theirs = Ours(folders(9), config), Theirs(9, SAME_RULES)
    gone_at = {}
    for number in range(24):
        our_masks, their_masks = ours.step(number)[0], theirs.step(number)[0]
        assert ours.result.retracted == (), "it was real while it lasted"
        if not gone_at and set(our_masks) != set(their_masks):
            gone_at = dict.fromkeys(set(their_masks) - set(our_masks), number)
            break
        assert distance(our_masks, their_masks) < 1e-3, "until then nothing differs"
    assert gone_at
    assert min(gone_at.values()) >= 10, "0.4 s at 25 frames a second"


def test_by_design_pointer_ages_have_one_scale_from_the_first_frame_on(folders):
    """The reference scales them by the number of frames so far, up to 16, which makes frame 1 look like frame 15."""
    ours, theirs, plain = (
        Ours(folders(14), SAME_RULES),
        Theirs(14, SAME_RULES),
        Theirs(14, SAME_RULES, plain_pointers=True),
    )
    for number in range(3):
        our_masks, their_masks, plain_masks = (one.step(number)[0] for one in (ours, theirs, plain))
        assert distance(our_masks, their_masks) < 1e-3
    assert distance(our_masks, plain_masks) > 1e-3


def test_by_design_a_birth_does_not_change_what_other_objects_remember(folders):
    """`transformers` runs its tracker a second time on such frames, and binarises the others' masks."""
    ours = Ours(folders(14), replace(SAME_RULES, remember_raw_on_birth=False))
    alike = Ours(folders(14), SAME_RULES)
    counts, distances = [], []
    for number in range(3):
        masks, masks_alike = ours.step(number)[0], alike.step(number)[0]
        counts.append(len(masks))
        distances.append(distance(masks, {object_id: masks_alike[object_id] for object_id in masks}))
    assert counts[1] > counts[0] > 0, "frame 1 has births among other objects"
    assert distances[:2] == [0.0, 0.0]
    assert distances[2] > 1e-3
