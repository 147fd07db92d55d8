"""The embedded default: needs no download beyond pip and no GPU."""

from __future__ import annotations

from sam3_stream.models.lite.model import LiteModel


def load_lite(*, resolution_scale: float = 1.0, capacity: int = 64, seed: int = 0, threads: int = 1) -> LiteModel:
    """Load the lite model; the options are those of `LiteModel`."""
    return LiteModel(resolution_scale=resolution_scale, capacity=capacity, seed=seed, threads=threads)


__all__ = ["LiteModel", "load_lite"]
