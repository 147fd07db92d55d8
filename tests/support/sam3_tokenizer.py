"""A CLIP tokenizer built from nothing: all bytes, a few merges, and the marks that the small checkpoints expect."""

from __future__ import annotations

from pathlib import Path

from transformers import CLIPTokenizer

START_ID, END_ID = 998, 999  # see text_config in sam3_checkpoints.small_config
_MERGES = [("d", "o"), ("do", "g</w>"), ("c", "a"), ("ca", "t</w>"), ("r", "e"), ("re", "d</w>")]


def tiny_tokenizer() -> CLIPTokenizer:
    """Reads any text byte by byte, with words of its own for dog, cat and red."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(byte) for byte in printable] + [chr(256 + index) for index in range(256 - len(printable))]
    tokens = letters + [letter + "</w>" for letter in letters] + ["".join(merge) for merge in _MERGES]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    vocabulary |= {"<|startoftext|>": START_ID, "<|endoftext|>": END_ID}
    return CLIPTokenizer(vocab=vocabulary, merges=_MERGES)


def save_tokenizer(folder: Path) -> None:
    """Put the tokenizer beside a checkpoint."""
    tiny_tokenizer().save_pretrained(folder)
