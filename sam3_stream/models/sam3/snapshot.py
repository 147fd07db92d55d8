"""What a session knows of the current frame, and a session's whole state as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from sam3_stream.core.errors import ModelError
from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.core.records import Frame
from sam3_stream.models.protocols import SessionState
from sam3_stream.models.sam3.memory_bank import MemoryBank
from sam3_stream.models.sam3.objects import ObjectTable

_VERSION = 1
_BANK_TENSORS = ("memories_selc", "pointers_spc", "logits_shw", "scores_s")
_BANK_AGES = ("memory_ages_se", "pointer_ages_sp")


@dataclass(slots=True, eq=False)
class CurrentFrame:
    """The frame that was stepped last, for further clicks on it.

    Attributes:
        stream_id: Its stream; None before the first frame.
        sequence: Its number.
        embeddings: By slot, the features that the object was decoded from: (1, channels, grid, grid).
        clicks: By object id, what was clicked on this frame.
    """

    stream_id: str | None = None
    sequence: int = -1
    embeddings: dict[int, torch.Tensor] = field(default_factory=dict)
    clicks: dict[int, ObjectPrompt] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: Frame) -> CurrentFrame:
        """A frame on which nothing has happened yet."""
        return cls(frame.stream_id, frame.sequence)

    def is_frame(self, frame: Frame) -> bool:
        """Whether this is that frame."""
        return (self.stream_id, self.sequence) == (frame.stream_id, frame.sequence)

    def forget(self, object_id: int, slot: int) -> None:
        """Drop what is known of an object."""
        self.embeddings.pop(slot, None)
        self.clicks.pop(object_id, None)


def take_snapshot(bank: MemoryBank, objects: ObjectTable, current: CurrentFrame) -> SessionState:
    """All state of a session as arrays that `np.savez` takes without pickling."""
    entries = list(objects)
    slots = np.array([entry.slot for entry in entries], np.int64)
    state: SessionState = {
        "version": np.array(_VERSION),
        "grids": np.array([bank.grid, bank.mask_grid]),
        "slots": slots,
        "object_ids": np.array([entry.object_id for entry in entries], np.int64),
        "prompt_ids": np.array([entry.prompt_id for entry in entries], np.str_),
        "labels": np.array([entry.label for entry in entries], np.str_),
        "stream_id": np.array([] if current.stream_id is None else [current.stream_id], np.str_),
        "sequence": np.array(current.sequence),
        "embedding_slots": np.array(sorted(current.embeddings), np.int64),
        "click_ids": np.array(sorted(current.clicks), np.int64),
    }
    for name in _BANK_TENSORS:
        state[name] = _to_array(getattr(bank, name)[torch.from_numpy(slots).to(bank.scores_s.device)])
    for name in _BANK_AGES:
        state[name] = getattr(bank, name)[slots].copy()
    for slot, embedding in current.embeddings.items():
        state[f"embedding_{slot}"] = _to_array(embedding)
    for object_id, prompt in current.clicks.items():
        state[f"points_{object_id}"] = prompt.points_n2.copy()
        state[f"positive_{object_id}"] = prompt.positive_n.copy()
        state[f"box_{object_id}"] = np.array(prompt.box_xyxy or (), np.float64)
    return state


def read_snapshot(state: SessionState, bank: MemoryBank, objects: ObjectTable) -> CurrentFrame:
    """Give bank and table the state of a snapshot, in place of their own; returns the frame it was taken on."""
    if int(state.get("version", np.array(0))) != _VERSION:
        raise ModelError("the snapshot is not of a SAM 3 session, or of another version of it")
    slots = state["slots"]
    if slots.size and int(slots.max()) >= bank.capacity:
        raise ModelError(
            f"the snapshot needs room for {int(slots.max()) + 1} objects, the session has {bank.capacity}: "
            "open it with a higher max_objects"
        )
    if state["pointers_spc"].shape[1:] != tuple(bank.pointers_spc.shape[1:]):
        raise ModelError("the snapshot is of another checkpoint than the one that is loaded")
    grid, mask_grid = (int(side) for side in state["grids"])
    bank.reset(grid, mask_grid)
    objects.clear()
    device = bank.scores_s.device
    rows = torch.from_numpy(slots.astype(np.int64)).to(device)
    for name in _BANK_TENSORS:
        tensor = getattr(bank, name)
        tensor[rows] = _to_tensor(state[name], tensor.dtype).to(device)
    for name in _BANK_AGES:
        getattr(bank, name)[slots] = state[name]
    for object_id, slot, prompt_id, label in zip(
        state["object_ids"], slots, state["prompt_ids"], state["labels"], strict=True
    ):
        objects.add(int(object_id), str(prompt_id), str(label), int(slot))
    return _read_current(state, objects, bank)


def _read_current(state: SessionState, objects: ObjectTable, bank: MemoryBank) -> CurrentFrame:
    stream_ids = state["stream_id"]
    current = CurrentFrame(str(stream_ids[0]) if stream_ids.size else None, int(state["sequence"]))
    for slot in state["embedding_slots"].tolist():
        embedding = _to_tensor(state[f"embedding_{slot}"], bank.pointers_spc.dtype)
        current.embeddings[slot] = embedding.to(bank.scores_s.device)
    for object_id in state["click_ids"].tolist():
        box = state[f"box_{object_id}"]
        current.clicks[object_id] = ObjectPrompt(
            object_id=object_id,
            prompt_id=objects[object_id].prompt_id,
            label=objects[object_id].label,
            points_n2=state[f"points_{object_id}"].astype(np.float32),
            positive_n=state[f"positive_{object_id}"].astype(np.bool_),
            box_xyxy=(float(box[0]), float(box[1]), float(box[2]), float(box[3])) if box.size else None,
        )
    return current


def _to_array(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """The tensor as an array of its own; bfloat16, which numpy lacks, as its bits."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    return np.array(tensor.cpu().numpy())


def _to_tensor(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(array))
    return tensor.view(torch.bfloat16) if tensor.dtype == torch.int16 else tensor.to(dtype)
