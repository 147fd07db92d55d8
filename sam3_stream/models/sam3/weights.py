"""From a hub id, a folder or an environment variable to tensors, with errors that say what to do.

`facebook/sam3` is one checkpoint with a detector, a click tracker and a neck for each on a shared trunk. Only the parts
that are asked for are read; the text encoder and the detector stay on disk until there are phrases.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import errors as hub_errors
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig

from sam3_stream.core.errors import ModelError

DEFAULT_WEIGHTS = "facebook/sam3"
WEIGHTS_VARIABLE = "SAM3_STREAM_WEIGHTS"
_FILES = ["*.json", "*.safetensors", "*.txt"]
_NEEDED = "a folder with config.json and model.safetensors as in huggingface.co/facebook/sam3"


def locate(weights: str | Path | None) -> Path:
    """Find the checkpoint's folder, downloading it to the hub's cache when it is not there yet.

    Args:
        weights: A folder, a hub id such as ``"facebook/sam3"``, or None for what the environment variable
            SAM3_STREAM_WEIGHTS says, else ``"facebook/sam3"``.

    Raises:
        ModelError: No such folder, no access, or no network; the message says what to do.
    """
    name = str(weights or os.environ.get(WEIGHTS_VARIABLE) or DEFAULT_WEIGHTS)
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise ModelError(f"{path.name} is not a format that can be read here: give {_NEEDED}")
    if path.is_file():
        if path.suffix == ".safetensors":
            return path.parent
        raise ModelError(f"{path} is a file; expected {_NEEDED}")
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        raise ModelError(f"no folder {name}: expected {_NEEDED}, or a hub id such as {DEFAULT_WEIGHTS}")
    return _from_hub(name)


def _from_hub(hub_id: str) -> Path:
    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=_FILES, local_files_only=True))
        if any(folder.glob("*.safetensors")) and (folder / "config.json").exists():
            return folder
    except hub_errors.LocalEntryNotFoundError:
        pass  # not in the cache yet
    page = f"https://huggingface.co/{hub_id}"
    try:
        return Path(snapshot_download(hub_id, allow_patterns=_FILES))
    except hub_errors.GatedRepoError as error:
        raise ModelError(
            f"the weights of {hub_id} need a licence: accept it on {page} and set HF_TOKEN to a token of that account"
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"no model {hub_id} on the hub, or no access to it: check the name, or accept its terms on {page} "
            "and set HF_TOKEN"
        ) from error
    except (hub_errors.HfHubHTTPError, hub_errors.LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"{hub_id} is not in the cache and the hub cannot be reached: connect once to download it, or set "
            f"{WEIGHTS_VARIABLE} to {_NEEDED}"
        ) from error


class Checkpoint:
    """A checkpoint folder whose headers have been read and whose tensors are read when asked for.

    Args:
        folder: Holds config.json and one or more .safetensors files.
        sha256: Expected SHA-256 of the weights (of all files in order of name, one after the other), hexadecimal.

    Attributes:
        config: The `Sam3VideoConfig`.

    Raises:
        ModelError: Files missing, damaged, of another model, or with another hash.
    """

    def __init__(self, folder: Path, sha256: str | None = None) -> None:
        self.folder = folder
        self.config = _read_config(folder)
        self._files = sorted(folder.glob("*.safetensors"))
        if not self._files:
            hint = "; the .pt file there is another format" if any(folder.glob("*.pt")) else ""
            raise ModelError(f"{folder} holds no .safetensors file{hint}: expected {_NEEDED}")
        if sha256 is not None:
            self._check_hash(sha256)
        self._stored: dict[str, tuple[Path, str]] = {}
        for path in self._files:
            with _opened(path) as file:
                self._stored.update({_usual_name(name): (path, name) for name in file.keys()})  # noqa: SIM118

    def _check_hash(self, expected: str) -> None:
        digest = hashlib.sha256()
        for path in self._files:
            with path.open("rb") as file:
                while block := file.read(1 << 22):
                    digest.update(block)
        if digest.hexdigest() != expected.lower():
            raise ModelError(
                f"the weights in {self.folder} have SHA-256 {digest.hexdigest()}, expected {expected.lower()}: "
                "another version or a damaged download"
            )

    def tensors(self, prefix: str) -> dict[str, torch.Tensor]:
        """Read every tensor whose name starts with `prefix`; names come back without it."""
        found = {}
        for path in self._files:
            names = {
                name: stored
                for name, (owner, stored) in self._stored.items()
                if owner == path and name.startswith(prefix)
            }
            if names:
                with _opened(path) as file:
                    found.update({name.removeprefix(prefix): file.get_tensor(stored) for name, stored in names.items()})
        return found

    def load_into(self, module: torch.nn.Module, prefix: str) -> None:
        """Give `module` the tensors below `prefix`; those it has no place for are left out.

        Raises:
            ModelError: A tensor is missing or has another shape.
        """
        tensors = self.tensors(prefix)
        wanted = module.state_dict()
        for name, value in wanted.items():
            if name not in tensors:
                raise ModelError(f"{self.folder} holds no tensor {prefix}{name}: not a whole SAM 3 checkpoint")
            if tensors[name].shape != value.shape:
                raise ModelError(
                    f"{self.folder}: tensor {prefix}{name} has shape {tuple(tensors[name].shape)}, "
                    f"its config.json says {tuple(value.shape)}"
                )
        module.load_state_dict({name: tensors[name] for name in wanted}, assign=True)


def _usual_name(stored: str) -> str:
    """The name as in facebook/sam3: `save_pretrained` of `Sam3VideoModel` says "tracker_model." twice."""
    return re.sub(r"^(tracker_model\.)+", "tracker_model.", stored)


def _read_config(folder: Path) -> Any:
    path = folder / "config.json"
    try:
        model_type = json.loads(path.read_text(encoding="utf-8")).get("model_type")
    except FileNotFoundError as error:
        raise ModelError(f"{folder} holds no config.json: expected {_NEEDED}") from error
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if model_type != "sam3_video":
        kind = "SAM 2, another model," if str(model_type).startswith("sam2") else f"a {model_type} model"
        raise ModelError(f"{folder} holds {kind} where SAM 3 (model_type sam3_video) is needed")
    return AutoConfig.from_pretrained(folder)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path} is damaged or not whole ({path.stat().st_size} bytes): download it again; {error}"
        ) from error
