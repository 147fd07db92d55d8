"""The detector against `Sam3Model`, in float64: phrases as one batch, exemplar boxes, thresholds and NMS."""

from copy import deepcopy

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from sam3_stream.models.sam3.detector import PromptFeatures, sam3_boxes
from sam3_stream.models.sam3.mask_nms import mask_iou, mask_nms
from tests.support.sam3_concepts import (
    PHRASES,
    detector_model,
    our_detector,
    reference_text,
    text_features,
    trunk_of,
    vision_of,
)

BOXES = [(0.1, 0.2, 0.5, 0.6), (0.5, 0.1, 0.9, 0.8), (0.0, 0.55, 0.3, 1.0)]
POSITIVE = [True, True, False]


@pytest.fixture(scope="module", params=[0, 1])
def model(request):
    return detector_model(request.param)


@pytest.fixture(scope="module")
def detector(model):
    return our_detector(model)


def reference_candidates(model, vision, phrase, threshold, **boxes):
    """Scores and mask logits of the reference's queries above a threshold, as `run_detection` computes them."""
    with torch.inference_mode():
        out = model.detector_model(vision_embeds=vision, **reference_text(model, phrase), **boxes)
    scores = (out.pred_logits.sigmoid() * out.presence_logits.sigmoid())[0]
    return scores[scores > threshold], out.pred_masks[0][scores > threshold]


def close(ours, theirs):
    scores, masks = theirs
    assert ours.masks_nhw.shape == masks.shape
    np.testing.assert_allclose(ours.scores_n, scores.numpy(), atol=1e-9)
    if len(masks):
        assert float((ours.masks_nhw - masks).abs().max()) < 1e-8


@pytest.mark.parametrize("count", [1, 2, 8])
def test_many_phrases_as_one_batch_give_what_a_pass_each_gives(model, detector, count):
    phrases = PHRASES[:count]
    seen = 0
    with torch.inference_mode():
        prompts = [detector.prompt(text_features(model, phrase)) for phrase in phrases]
        for number in (0, 17):
            vision = vision_of(model, number)
            found = detector.detect(detector.features(trunk_of(vision)), prompts, [0.5] * count, nms_iou=0.0)
            for phrase, ours in zip(phrases, found, strict=True):
                theirs = reference_candidates(model, vision, phrase, 0.5)
                close(ours, theirs)
                seen += len(theirs[0])
    assert 0 < seen < 2 * 10 * count, "some queries must fail the threshold for the test to mean anything"


@pytest.mark.parametrize(("boxes", "positive"), [(BOXES[:1], [True]), (BOXES, POSITIVE), (BOXES[2:], [False])])
@pytest.mark.parametrize("phrase", ["visual", "red cat"])
def test_exemplar_boxes_with_or_without_a_phrase_give_what_the_reference_gives(
    model, detector, boxes, positive, phrase
):
    vision = vision_of(model, 3)
    reference_boxes = {
        "input_boxes": sam3_boxes(torch.tensor(boxes, dtype=torch.float64))[None],
        "input_boxes_labels": torch.tensor([positive]).long(),
    }
    theirs = reference_candidates(model, vision, phrase, 0.0, **reference_boxes)
    plain = reference_candidates(model, vision, phrase, 0.0)
    with torch.inference_mode():
        features = detector.features(trunk_of(vision))
        prompt = detector.prompt(text_features(model, phrase), features, boxes, positive)
        (ours,) = detector.detect(features, [prompt], [0.0], nms_iou=0.0)
    close(ours, theirs)
    assert float((theirs[0] - plain[0]).abs().max()) > 1e-3, "the boxes must matter"


def test_negative_and_positive_exemplars_differ(model, detector):
    features = detector.features(trunk_of(vision_of(model, 3)))
    text = text_features(model, "visual")
    scores = []
    for positive in (True, False):
        prompt = detector.prompt(text, features, BOXES[:1], [positive])
        scores.append(detector.detect(features, [prompt], [0.0], nms_iou=0.0)[0].scores_n)
    assert np.abs(scores[0] - scores[1]).max() > 1e-3


def test_phrases_and_exemplars_of_different_lengths_share_a_batch(model, detector):
    here, later = (detector.features(trunk_of(vision_of(model, number))) for number in (3, 9))
    prompts = [
        detector.prompt(text_features(model, "dog")),
        detector.prompt(text_features(model, "visual"), here, BOXES, POSITIVE),
        detector.prompt(text_features(model, "red cat"), here, BOXES[:1], [True]),
    ]
    assert [len(prompt.valid_l) for prompt in prompts] == [32, 36, 34]
    together = detector.detect(later, prompts, [0.3] * 3, nms_iou=0.0)
    for prompt, ours in zip(prompts, together, strict=True):
        (alone,) = detector.detect(later, [prompt], [0.3], nms_iou=0.0)
        close(ours, (torch.from_numpy(alone.scores_n), alone.masks_nhw))


def test_what_exemplars_show_is_kept_for_later_frames(model, detector):
    """The reference reads boxes on the frame they are on; ours goes on with the tokens made there."""
    here, later = (detector.features(trunk_of(vision_of(model, number))) for number in (3, 20))
    text = text_features(model, "visual")
    prompt = detector.prompt(text, here, BOXES, POSITIVE)
    read_again = detector.prompt(text, later, BOXES, POSITIVE)
    assert not torch.allclose(prompt.tokens_lc, read_again.tokens_lc, atol=1e-3)
    tokens = torch.cat([text.tokens_lc, prompt.tokens_lc[32:]])
    rebuilt = PromptFeatures(tokens, torch.cat([text.valid_l, torch.ones(4, dtype=torch.bool)]))
    ours, again = (detector.detect(later, [one], [0.0], nms_iou=0.0)[0] for one in (prompt, rebuilt))
    close(ours, (torch.from_numpy(again.scores_n), again.masks_nhw))


def test_by_design_duplicates_are_suppressed_without_a_kernel_from_the_hub(model, detector):
    """The reference without its kernel keeps them all; the difference is exactly our NMS."""
    features = detector.features(trunk_of(vision_of(model, 0)))
    prompt = detector.prompt(text_features(model, "dog"))
    (everything,) = detector.detect(features, [prompt], [0.3], nms_iou=0.0)
    (kept,) = detector.detect(features, [prompt], [0.3], nms_iou=0.1)
    survivors = mask_nms(everything.masks_nhw > 0, everything.scores_n, 0.1)
    assert 0 < survivors.sum() < len(survivors)
    assert np.array_equal(kept.scores_n, everything.scores_n[survivors])
    assert torch.equal(kept.masks_nhw, everything.masks_nhw[torch.from_numpy(survivors)])


def test_each_phrase_has_its_own_threshold_and_nothing_found_costs_no_masks(model, detector, monkeypatch):
    features = detector.features(trunk_of(vision_of(model, 0)))
    prompts = [detector.prompt(text_features(model, phrase)) for phrase in PHRASES[:2]]
    none, some = detector.detect(features, prompts, [1.0, 0.2], nms_iou=0.0)
    assert none.masks_nhw.shape == (0, 32, 32)
    assert len(some.scores_n) > 0
    monkeypatch.setattr(detector.mask_decoder, "_embed_pixels", None)  # must not be called
    none, nothing = detector.detect(features, prompts, [1.0, 1.0], nms_iou=0.1)
    assert len(none.scores_n) == len(nothing.scores_n) == 0


def compare_in_full_precision(half, full):
    """The gate: scores and masks on two frames and four phrases, against the detector in full precision."""
    texts = [text_features(detector_model(0), phrase) for phrase in PHRASES[:4]]
    ious, flips = [], 0
    for number in (0, 10):
        trunk = trunk_of(vision_of(detector_model(0), number)).float()
        exact, rough = (
            one.detect(one.features(trunk), [one.prompt(text) for text in texts], [0.4] * 4, nms_iou=0.0)
            for one in (full, half)
        )
        for ours, theirs in zip(rough, exact, strict=True):
            if len(ours.scores_n) != len(theirs.scores_n):
                flips += 1  # a score at the threshold
                continue
            assert np.abs(ours.scores_n - theirs.scores_n).max(initial=0) < 0.02
            ious += mask_iou(ours.masks_nhw > 0, theirs.masks_nhw > 0).diagonal().tolist()
    assert flips <= 2
    assert len(ious) > 10
    assert np.mean(ious) > 0.98
    assert min(ious) > 0.93


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_finds_the_same_with_the_same_masks(dtype):
    full = our_detector(deepcopy(detector_model(0)).float())
    half = deepcopy(full)
    half.set_precision(dtype)
    assert half.detr_encoder.layers[0].mlp.fc1.weight.dtype == dtype
    compare_in_full_precision(half, full)


def test_a_broken_half_precision_path_fails_that_gate():
    full = our_detector(deepcopy(detector_model(0)).float())
    broken = deepcopy(full)
    broken.set_precision(torch.float16)
    with torch.no_grad():
        broken.detr_encoder.layers[0].mlp.fc1.weight.mul_(1e5)  # overflows fp16
    with pytest.raises(AssertionError):
        compare_in_full_precision(broken, full)
