"""Text features of phrases, kept: the latest in memory, all of them on disk.

With every phrase in the bank the text encoder (353 million weights) is never loaded.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from sam3_stream.models.sam3.text_encoder import TextFeatures, normalize_phrase

_log = logging.getLogger(__name__)

BANK_VARIABLE = "SAM3_STREAM_PROMPT_BANK"


def default_bank_folder() -> Path:
    """Where phrases are kept unless told otherwise: SAM3_STREAM_PROMPT_BANK, or in the user's cache folder."""
    if folder := os.environ.get(BANK_VARIABLE):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sam3_stream" / "prompts"


def text_weights_hash(folder: Path) -> str:
    """A hash that tells checkpoints apart whose text encoders differ, without reading 1.4 GB.

    It covers the tokenizer files and, of every tensor of the text encoder, its name, shape, type and first row, which
    training that touches the tensor changes.

    Args:
        folder: The checkpoint.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        if (folder / name).exists():
            digest.update((folder / name).read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in sorted(key for key in file.keys() if key.startswith("detector_model.text_")):  # noqa: SIM118
                part = file.get_slice(name)
                shape = part.get_shape()
                row = part[:1] if shape else file.get_tensor(name)[None]
                digest.update(f"{name} {shape} {row.dtype}\n".encode())
                digest.update(row.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class PromptBank:
    """Gives the text features of phrases; encodes only those that neither memory nor disk has.

    Phrases that the tokenizer reads alike ("Dog", " dog ") are one. A file that cannot be read is made again; a folder
    that cannot be written costs a warning, not the run.

    Args:
        encode: Encodes phrases as one batch.
        weights_hash: What tells these text features from those of other weights.
        folder: Where to keep them; None for memory only.
        capacity: How many phrases stay in memory (about 32 kB each), the latest used.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], list[TextFeatures]],
        weights_hash: str,
        folder: Path | None,
        capacity: int = 256,
    ) -> None:
        self._encode = encode
        self._folder = None if folder is None else folder / weights_hash[:32]
        self._capacity = capacity
        self._memory: OrderedDict[str, TextFeatures] = OrderedDict()

    def __len__(self) -> int:
        """How many phrases are in memory."""
        return len(self._memory)

    def __contains__(self, text: str) -> bool:
        phrase = normalize_phrase(text)
        return phrase in self._memory or self._read(phrase) is not None

    def __call__(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Features of each phrase, in order.

        Raises:
            PromptError: A phrase is empty or too long.
            ModelError: A new phrase needs the text encoder and the checkpoint lacks it.
        """
        phrases = [normalize_phrase(text) for text in texts]
        found: dict[str, TextFeatures] = {}
        for phrase in dict.fromkeys(phrases):
            features = self._memory.get(phrase) or self._read(phrase)
            if features is not None:
                found[phrase] = features
        missing = [phrase for phrase in dict.fromkeys(phrases) if phrase not in found]
        if missing:
            for phrase, encoded in zip(missing, self._encode(missing), strict=True):
                self._write(phrase, encoded)
                found[phrase] = encoded
        for phrase in found:
            self._memory[phrase] = found[phrase]
            self._memory.move_to_end(phrase)
        while len(self._memory) > self._capacity:
            self._memory.popitem(last=False)
        return [found[phrase] for phrase in phrases]

    def _path(self, phrase: str) -> Path | None:
        name = hashlib.sha256(phrase.encode()).hexdigest()
        return None if self._folder is None else self._folder / f"{name}.safetensors"

    def _read(self, phrase: str) -> TextFeatures | None:
        path = self._path(phrase)
        if path is None or not path.exists():
            return None
        try:
            tensors = load_file(path)
            return TextFeatures(tensors["tokens_lc"], tensors["valid_l"])
        except (SafetensorError, KeyError, OSError) as error:
            _log.warning("the prompt bank's file for %r is damaged and will be made again: %s", phrase, error)
            return None

    def _write(self, phrase: str, features: TextFeatures) -> None:
        path = self._path(phrase)
        if path is None:
            return
        tensors = {"tokens_lc": features.tokens_lc.contiguous().clone(), "valid_l": features.valid_l.clone()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
                pass
            save_file(tensors, part.name, metadata={"phrase": phrase})
            Path(part.name).replace(path)  # whole or not at all, whoever else writes it
        except (OSError, SafetensorError) as error:
            _log.warning("phrases cannot be kept in %s and will be encoded again next time: %s", path.parent, error)
