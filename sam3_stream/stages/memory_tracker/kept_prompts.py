"""What has been said of a live stream, so that it can be said again when tracking starts anew."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sam3_stream.core.prompt_scaling import scale_prompt
from sam3_stream.core.prompts import ExemplarPrompt, Prompt, TextPrompt


@dataclass
class _Kept:
    prompt: Prompt
    size: tuple[int, int] | None  # of the picture it was said on; None for the first picture of the stream
    target: int = 0  # which object or phrase it speaks of in the present session, from 1


class KeptPrompts:
    """The prompts of a stream, with the picture sizes that they were given for. From any thread.

    Args:
        prompts: Those known at the start, in pixels of the first picture.
    """

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self._lock = threading.Lock()
        self._first_size: tuple[int, int] | None = None
        self._size: tuple[int, int] | None = None
        self._targets = 0
        self._named: dict[str, int] = {}
        self._kept = [_Kept(prompt, None) for prompt in prompts]

    def begin_session(self, size: tuple[int, int]) -> list[Prompt]:
        """All prompts, for a session on pictures of this size.

        Raises:
            PromptError: A prompt does not fit the stream's first picture.
        """
        with self._lock:
            if self._first_size is None:
                self._first_size = size
                for kept in self._kept:
                    kept.prompt.check_size(*size)
            self._size = size
            self._targets = 0
            self._named = {}
            for kept in self._kept:
                self._number(kept)
            return [scale_prompt(kept.prompt, kept.size or self._first_size, size) for kept in self._kept]

    def add(self, prompt: Prompt) -> None:
        """Keep a prompt that takes effect on the present picture."""
        with self._lock:
            kept = _Kept(replace(prompt, time_s=0.0), self._size)
            self._number(kept)
            self._kept.append(kept)

    def forget(self, prompt_id: str) -> None:
        """Drop what was said of an object, by the id that the present session's results carry.

        A phrase stays: it speaks of many objects.
        """
        with self._lock:
            self._kept = [
                kept
                for kept in self._kept
                if f"p{kept.target}" != prompt_id or isinstance(kept.prompt, TextPrompt | ExemplarPrompt)
            ]

    def _number(self, kept: _Kept) -> None:
        """Number what a prompt speaks of, as `PromptSchedule` does."""
        name = kept.prompt.name
        if name is not None and name in self._named:
            kept.target = self._named[name]
            return
        self._targets += 1
        kept.target = self._targets
        if name is not None:
            self._named[name] = kept.target
