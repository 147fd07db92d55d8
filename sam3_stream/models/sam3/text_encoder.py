"""Phrases to text features. Loaded when the first phrase that the prompt bank lacks comes up, and never before."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, CLIPTextModelWithProjection
from transformers.initialization import no_init_weights

from sam3_stream.core.errors import ModelError, PromptError
from sam3_stream.models.sam3.weights import Checkpoint

VISUAL_PHRASE = "visual"
"""What the model was trained to read when exemplar boxes alone say what is meant."""


@dataclass(frozen=True, slots=True, eq=False)
class TextFeatures:
    """What the detector is given of a phrase.

    Attributes:
        tokens_lc: float32 (or float64), shape (length, channels); the text encoder's output, projected.
        valid_l: bool, shape (length,), False where the phrase is padded.
    """

    tokens_lc: Tensor
    valid_l: Tensor


def normalize_phrase(text: str) -> str:
    """The phrase as CLIP's tokenizer reads it: canonical Unicode, single spaces, lower case.

    Raises:
        PromptError: Nothing is left of it.
    """
    phrase = " ".join(unicodedata.normalize("NFC", text).split()).lower()
    if not phrase:
        raise PromptError("the phrase is empty: say what to look for, such as --text dog")
    return phrase


class Tokenizer:
    """The checkpoint's own tokenizer, read when it is first needed.

    Args:
        folder: The checkpoint.
        max_tokens: How many tokens the text encoder reads, start and end marks included.
    """

    def __init__(self, folder: Path, max_tokens: int) -> None:
        self._folder = folder
        self._max_tokens = max_tokens
        self._tokenizer: Any = None

    def __call__(self, phrases: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token ids and which of them are not padding: int64 and bool, both (n, max_tokens).

        Any script and any emoji is read, byte by byte where the vocabulary has no word for it.

        Raises:
            PromptError: A phrase is too long; the text encoder was never trained on more.
            ModelError: The checkpoint's folder holds no tokenizer.
        """
        if self._tokenizer is None:
            self._tokenizer = self._load()
        ids = self._tokenizer(list(phrases)).input_ids
        for phrase, tokens in zip(phrases, ids, strict=True):
            if len(tokens) > self._max_tokens:
                raise PromptError(
                    f"the phrase {_shortened(phrase)!r} is too long: SAM 3 reads {self._max_tokens - 2} tokens (about "
                    f"as many short words) and it has {len(tokens) - 2}; name the object in a few words"
                )
        padded = self._tokenizer(list(phrases), padding="max_length", max_length=self._max_tokens, return_tensors="pt")
        return padded.input_ids, padded.attention_mask.bool()

    def _load(self) -> Any:
        if not any((self._folder / name).exists() for name in ("tokenizer.json", "vocab.json")):
            raise ModelError(
                f"{self._folder} holds no tokenizer.json: phrases need the tokenizer files of the checkpoint beside it"
            )
        try:
            return AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
        except Exception as error:  # whatever a damaged JSON file makes the tokenizers library raise
            raise ModelError(f"the tokenizer in {self._folder} cannot be read: {error}") from error


class TextEncoder:
    """CLIP's text encoder with SAM 3's projection. It runs once a phrase: on the CPU and in full precision, so that it
    takes no GPU memory and a phrase has the same features on every machine.

    Args:
        checkpoint: Where tokenizer and weights are.
        dtype: float32, or float64 to compare with a reference.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._modules: tuple[nn.Module, nn.Module] | None = None
        self.tokenize = Tokenizer(
            checkpoint.folder, checkpoint.config.detector_config.text_config.max_position_embeddings
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._modules is not None

    @torch.inference_mode()
    def __call__(self, phrases: Sequence[str]) -> list[TextFeatures]:
        """Encode phrases as one batch.

        Raises:
            PromptError: A phrase is too long.
            ModelError: The checkpoint lacks the tokenizer or the text encoder.
        """
        ids_nl, valid_nl = self.tokenize(phrases)
        if self._modules is None:
            self._modules = self._load()
        encoder, projection = self._modules
        hidden_nlc = encoder(input_ids=ids_nl, attention_mask=valid_nl.long(), return_dict=True).last_hidden_state
        tokens_nlc = projection(hidden_nlc)
        return [TextFeatures(tokens, valid) for tokens, valid in zip(tokens_nlc, valid_nl, strict=True)]

    def unload(self) -> None:
        """Free the weights; they are read again when another new phrase comes up."""
        self._modules = None

    def _load(self) -> tuple[nn.Module, nn.Module]:
        config = self._checkpoint.config.detector_config
        with no_init_weights():
            encoder = CLIPTextModelWithProjection(config.text_config)
            projection = nn.Linear(config.text_config.hidden_size, config.detr_encoder_config.hidden_size)
        self._checkpoint.load_into(encoder, "detector_model.text_encoder.")
        self._checkpoint.load_into(projection, "detector_model.text_projection.")
        for module in (encoder, projection):
            module.eval().requires_grad_(False).to(self._dtype)
        return encoder, projection


def _shortened(phrase: str) -> str:
    return phrase if len(phrase) <= 40 else phrase[:37] + "…"
