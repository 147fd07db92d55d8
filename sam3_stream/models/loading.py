"""A model's name -> a `VideoModel`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from sam3_stream.core.errors import ModelError
from sam3_stream.models.protocols import VideoModel


def load_model(name: str | Path = "lite", *, device: str = "auto", **options: Any) -> VideoModel:
    """Load a model.

    Args:
        name: ``lite`` (the embedded default; no download, no GPU), ``sam3`` (``facebook/sam3``, or what
            ``SAM3_STREAM_WEIGHTS`` points to), a folder with SAM 3 weights, or an id on the Hugging Face hub.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``. `lite` always runs on the CPU.
        options: What else SAM 3 takes: dtype, resolution, warmup, idle_unload_s, sha256, max_objects, … as
            `sam3_stream.models.sam3.load_sam3` documents them. `lite` has no options.

    Raises:
        ModelError: No such model, or its weights or the packages it needs cannot be had; says what to do.
    """
    if options and str(name) in ("lite", "fake"):
        raise ModelError(f"{', '.join(options)}: the model {name} takes no such option; leave it out or use sam3")
    if str(name) == "lite":
        from sam3_stream.models.lite import load_lite

        return load_lite()
    if str(name) == "fake":
        from sam3_stream.models.fake import FakeModel

        return FakeModel()
    if str(name) == "sam3":
        return _load_sam3(None, device, options)
    if Path(name).is_dir() or _looks_like_hub_id(str(name)):
        return _load_sam3(name, device, options)
    nearest = difflib.get_close_matches(str(name), ["lite", "sam3"], n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise ModelError(
        f"unknown model {str(name)!r}: {hint}expected lite, sam3, a folder with SAM 3 weights, "
        "or a hub id such as facebook/sam3"
    )


def _looks_like_hub_id(name: str) -> bool:
    owner, slash, repository = name.partition("/")
    return bool(owner and slash and repository) and "/" not in repository and not name.startswith((".", "~"))


def _load_sam3(weights: str | Path | None, device: str, options: dict[str, Any]) -> VideoModel:
    from sam3_stream.models.sam3 import load_sam3

    return load_sam3(weights, device=device, **options)
