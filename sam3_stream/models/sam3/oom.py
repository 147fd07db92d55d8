"""Going on with less when the GPU's memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import torch

logger = logging.getLogger("sam3_stream.models.sam3")
Result = TypeVar("Result")


class BatchLimit:
    """Runs work in batches, and in smaller ones from the moment that memory ran out.

    Args:
        unit: What a batch is made of, for the log, such as ``"objects"``.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self.limit: int | None = None

    def run(self, count: int, work: Callable[[int, int], Result]) -> list[Result]:
        """Call `work(start, stop)` for consecutive ranges that cover 0 to `count`.

        Raises:
            torch.OutOfMemoryError: Not even a batch of one fits.
        """
        results: list[Result] = []
        start = 0
        while start < count:
            stop = count if self.limit is None else min(count, start + self.limit)
            try:
                results.append(work(start, stop))
            except torch.OutOfMemoryError:
                if stop - start == 1:
                    raise
                self.limit = (stop - start) // 2
                logger.warning(
                    "GPU memory ran out with %d %s in a batch; going on with %d", stop - start, self._unit, self.limit
                )
                free_cached_memory()
                continue
            start = stop
        return results


def free_cached_memory() -> None:
    """Give what PyTorch holds in reserve back to the GPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
