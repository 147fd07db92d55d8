"""Phrases and exemplars on the small random checkpoints: a detector that finds things, and the reference's session."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from fractions import Fraction
from functools import lru_cache
from itertools import count
from pathlib import Path

import torch
from torch import Tensor
from transformers import Sam3VideoModel
from transformers.models.sam3.modeling_sam3 import Sam3VisionEncoderOutput
from transformers.models.sam3_video.modeling_sam3_video import Sam3VideoInferenceSession

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import ConceptPrompt
from sam3_stream.core.records import Frame
from sam3_stream.models.sam3.detector import Detector
from sam3_stream.models.sam3.text_encoder import TextFeatures
from tests.support.sam3_checkpoints import calibrated_model, draw_weights, moving_picture, small_config, to_pixels
from tests.support.sam3_tokenizer import save_tokenizer, tiny_tokenizer

PHRASES = ("dog", "red cat", "狗", "a person on a bicycle", "blue", "🐕", "truck", "x")


@torch.no_grad()
def calibrate_detector(model: Sam3VideoModel, *, score_std: float = 2.0, mask_std: float = 4.0) -> None:
    """Scale the detector's heads until scores have both signs and spread, and mask logits spread by `mask_std`."""
    detector = model.detector_model
    scores, masks = [], []
    for number in range(0, 40, 8):
        vision = vision_of(model, number)
        for phrase in PHRASES[:3]:
            out = detector(vision_embeds=vision, **reference_text(model, phrase))
            scores.append(out.pred_logits.flatten())
            masks.append(out.pred_masks.std(dim=(2, 3)).flatten())
    for parameter in detector.dot_product_scoring.query_proj.parameters():
        parameter *= score_std / float(torch.cat(scores).std())
    for parameter in detector.mask_decoder.mask_embedder.layers[2].parameters():
        parameter *= mask_std / float(torch.cat(masks).mean())
    detector.detr_decoder.presence_head.layer3.bias.fill_(4.0)


@lru_cache(maxsize=4)
def detector_model(seed: int = 0) -> Sam3VideoModel:
    """A float64 `Sam3VideoModel` whose detector is calibrated and whose tracker is not."""
    torch.manual_seed(seed)
    model = Sam3VideoModel(small_config()).eval()
    draw_weights(model, seed)
    calibrate_detector(model)
    return model.double()


@lru_cache(maxsize=4)
def concept_model(seed: int = 0, dtype: torch.dtype = torch.float64) -> Sam3VideoModel:
    """A `Sam3VideoModel` whose tracker and detector are calibrated; shared, so copy it before changing it."""
    model = deepcopy(calibrated_model(seed))
    calibrate_detector(model)
    return model.to(dtype)


def reference_text(model: Sam3VideoModel, phrase: str) -> dict[str, object]:
    """A phrase as `Sam3Model.forward` takes it."""
    tokens = tiny_tokenizer()(phrase, padding="max_length", max_length=32, return_tensors="pt")
    with torch.no_grad():
        return {
            "text_embeds": model.detector_model.get_text_features(**tokens, return_dict=True),
            "attention_mask": tokens.attention_mask,
        }


def vision_of(model: Sam3VideoModel, number: int) -> Sam3VisionEncoderOutput:
    """The trunk's and the detector neck's output for frame `number` of the moving picture."""
    parameter = next(model.parameters())
    side = model.config.detector_config.image_size
    with torch.no_grad():
        return model.detector_model.get_vision_features(to_pixels([moving_picture(number)], side).to(parameter.dtype))


def trunk_of(vision: Sam3VisionEncoderOutput) -> Tensor:
    """The trunk's output as a map, (1, channels, h, w)."""
    side = round(vision.last_hidden_state.shape[1] ** 0.5)
    return vision.last_hidden_state.unflatten(1, (side, side)).permute(0, 3, 1, 2)


def text_features(model: Sam3VideoModel, phrase: str) -> TextFeatures:
    """A phrase as our detector takes it."""
    reference = reference_text(model, phrase)
    return TextFeatures(reference["text_embeds"].pooler_output[0], reference["attention_mask"][0].bool())


def our_detector(model: Sam3VideoModel) -> Detector:
    """Our detector with the weights of the model, without going through a file."""
    detector = Detector(model.config.detector_config).to(next(model.parameters()).dtype)
    state = {
        name.removeprefix("vision_encoder."): value
        for name, value in model.detector_model.state_dict().items()
        if not name.startswith(("text_", "vision_encoder.backbone."))
    }
    detector.load_state_dict(state)
    return detector.eval().requires_grad_(False)


def reference_session(model: Sam3VideoModel, phrases: Sequence[str]) -> Sam3VideoInferenceSession:
    """A streaming session of `transformers` with these phrases."""
    session = Sam3VideoInferenceSession(dtype=next(model.parameters()).dtype)
    for phrase in phrases:
        prompt_id = session.add_prompt(phrase)
        tokens = tiny_tokenizer()(phrase, padding="max_length", max_length=32, return_tensors="pt")
        session.prompt_input_ids[prompt_id] = tokens.input_ids
        session.prompt_attention_masks[prompt_id] = tokens.attention_mask
    return session


@lru_cache(maxsize=8)
def saved_model(folder: tempfile.TemporaryDirectory[str], seed: int = 0) -> Path:
    """`concept_model` in float32, saved with its tokenizer below a temporary folder."""
    path = Path(folder.name) / f"seed{seed}"
    deepcopy(concept_model(seed)).float().save_pretrained(path)
    save_tokenizer(path)
    return path


def moving_frame(number: int, *, fps: int = 25) -> Frame:
    """Frame `number` of the moving picture, as a stream brings it."""
    return Frame("stream", number, number, Fraction(1, fps), ArrayPicture(moving_picture(number)))


def phrases(*texts: str) -> list[ConceptPrompt]:
    """Prompts for phrases, their ids being the phrases."""
    return [ConceptPrompt(prompt_id=text, text=text, label=text) for text in texts]


def id_counter() -> Iterator[int]:
    """Public ids from 1."""
    return count(1)
