"""Half precision where it is safe and nowhere else.

Matrix products and convolutions run in half precision; the residual stream, norms, softmax, rotary angles, positional
tables and the small heads that make decisions stay in FP32. So a sum over many layers cannot overflow FP16, and no
process-wide or thread-wide autocast is needed. `transformers` would cast everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn

DtypeName = Literal["auto", "fp16", "bf16", "fp32", "fp64"]

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
_PRODUCTS = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)


def resolve_device(name: str) -> torch.device:
    """The device that `auto` stands for (a GPU where there is one), or the one that was named."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def resolve_dtype(name: DtypeName, device: torch.device) -> torch.dtype:
    """The number format for matrix products: for `auto` bf16 where a GPU has it, fp16 on older ones, fp32 elsewhere."""
    if name != "auto":
        return _DTYPES[name]
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def _cast_input_to_weight(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0].to(module.weight.dtype), *args[1:])


def set_precision(root: nn.Module, dtype: torch.dtype, keep_fp32: Iterable[nn.Module] = ()) -> None:
    """Give every matrix product and convolution below `root` weights in `dtype`, everything else FP32.

    Args:
        root: Changed in place.
        dtype: float16, bfloat16, float32 or float64; the last two apply to the whole of `root`.
        keep_fp32: Modules below `root` whose products stay in FP32 too.
    """
    if dtype in (torch.float32, torch.float64):
        root.to(dtype)
        return
    root.float()
    kept = {id(module) for part in keep_fp32 for module in part.modules()}
    for module in root.modules():
        if isinstance(module, _PRODUCTS) and id(module) not in kept:
            module.to(dtype)
        if isinstance(module, (*_PRODUCTS, nn.LayerNorm)):
            module.register_forward_pre_hook(_cast_input_to_weight)
