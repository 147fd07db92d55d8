"""Phrases and exemplars on the small random checkpoints: a detector that finds things, and the reference's session."""

from __future__ import annotations

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
    """Centre and scale the detector's heads, so that some queries score and masks cover a part of the picture.

    Score logits spread by `score_std` and mask logits by `mask_std`, both about half of that below zero.
    """
    detector = model.detector_model
    scoring, embedder = detector.dot_product_scoring, detector.mask_decoder.mask_embedder
    scores, masks, texts, embeddings = [], [], [], []
    hooks = [
        scoring.text_proj.register_forward_hook(lambda module, args, output: texts.append(output[0])),
        embedder.register_forward_hook(lambda module, args, output: embeddings.append(output[0])),
    ]
    for number in range(0, 40, 8):
        vision = vision_of(model, number)
        for phrase in PHRASES[:3]:
            out = detector(vision_embeds=vision, **reference_text(model, phrase))
            scores.append(out.pred_logits.flatten())
            masks.append(out.pred_masks)
    for hook in hooks:
        hook.remove()
    gain = score_std / float(torch.cat(scores).std())
    text = torch.stack(texts).mean(dim=0)
    for parameter in scoring.query_proj.parameters():
        parameter *= gain
    scoring.query_proj.bias -= (gain * torch.cat(scores).mean() + score_std / 2) * text / (text @ text * scoring.scale)
    gain = mask_std / float(torch.cat(masks).std(dim=(2, 3)).mean())
    embedding = gain * torch.cat(embeddings).mean(dim=0)
    for parameter in embedder.layers[2].parameters():
        parameter *= gain
    bias = detector.mask_decoder.instance_projection.bias
    bias -= (gain * torch.cat(masks).mean() + mask_std / 2) * embedding / (embedding @ embedding)
    presence = detector.detr_decoder.presence_head.layer3
    presence.weight *= 0.2
    presence.bias.fill_(4.0)


@lru_cache(maxsize=4)
def detector_model(seed: int = 9) -> Sam3VideoModel:
    """A float64 `Sam3VideoModel` whose detector is calibrated and whose tracker is not."""
    torch.manual_seed(seed)
    model = Sam3VideoModel(small_config()).eval()
    draw_weights(model, seed)
    calibrate_detector(model)
    return model.double()


@lru_cache(maxsize=4)
def concept_model(seed: int = 9, resolution: int = 112) -> Sam3VideoModel:
    """A float64 `Sam3VideoModel` whose tracker and detector are calibrated; shared, so copy it before changing it."""
    model = deepcopy(calibrated_model(seed, resolution))
    calibrate_detector(model)
    return model.double()


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
        if not name.startswith(("text_", "vision_encoder.backbone.", "vision_encoder.neck.fpn_layers.3."))
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


def save_concept_model(folder: Path, seed: int = 9, resolution: int = 112) -> Path:
    """Put `concept_model` in float32 and its tokenizer into a folder."""
    deepcopy(concept_model(seed, resolution)).float().save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def moving_frame(number: int, *, fps: int = 25) -> Frame:
    """Frame `number` of the moving picture, as a stream brings it."""
    return Frame("stream", number, number, Fraction(1, fps), ArrayPicture(moving_picture(number)))


def phrases(*texts: str) -> list[ConceptPrompt]:
    """Prompts for phrases, their ids being the phrases."""
    return [ConceptPrompt(prompt_id=text, text=text, label=text) for text in texts]


def id_counter() -> Iterator[int]:
    """Public ids from 1."""
    return count(1)
