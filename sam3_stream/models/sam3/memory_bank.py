"""What a session remembers of its objects: a fixed number of tensors of fixed size.

Each object has a slot. A slot holds up to 4 conditioning memories (frames on which the user said something of the
object) and up to 6 recent ones, each with the object's pointer, and further pointers of recent frames. The reference
keeps them all, picks among them by frame number, and grows. Here every entry has an age in frames instead, entries
nobody can pick any more are overwritten, and what memory attention gets to see is the same:

* Recent memories are those of the last 6 frames, recent pointers those of the last 15; conditioning frames come on top.
  So pointers are at most 4 + 15 (the reference's `max_object_pointers_in_encoder` of 16 counts the current frame).
* A fifth conditioning frame pushes out the oldest, which goes on as a recent one while it is young enough. That is what
  the reference does for memories. For pointers it differs on purpose: the reference attends to the pointers of *all*
  conditioning frames ever, which grows without bound; here a pointer lasts as long as its memory, or 15 frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

IntArray = npt.NDArray[np.int64]
EMPTY = -1
_OLDEST = 1 << 20  # ages stop here, after ten hours at 30 frames a second


@dataclass(frozen=True, slots=True, eq=False)
class MemoryGroup:
    """Objects that remember equally much, so that they run as one batch.

    Attributes:
        slots_n: Their slots.
        entries_nm: For each object the rows of its memories in the bank.
        offsets_nm: How many frames ago each was made; 0 for conditioning memories, as the model was trained.
        pointers_np: For each object the rows of its pointers in the bank.
        pointer_ages_np: How many frames ago each pointer was made, conditioning ones too.
    """

    slots_n: IntArray
    entries_nm: IntArray
    offsets_nm: IntArray
    pointers_np: IntArray
    pointer_ages_np: IntArray


class MemoryBank:
    """Rings of memories and pointers for a fixed number of objects.

    Args:
        slots: Number of objects there is room for.
        grid: Side of the memory grid.
        mask_grid: Side of the mask logits.
        memory_channels: Channels of a memory.
        pointer_channels: Channels of a pointer.
        conditioning: Conditioning memories an object.
        recent: Recent memories an object.
        pointers: Recent pointers an object.
        device: Where the tensors live.
        dtype: Format of pointers, logits and scores. Memories are bfloat16, as in the reference at every precision.
    """

    def __init__(
        self,
        slots: int,
        *,
        grid: int,
        mask_grid: int,
        memory_channels: int,
        pointer_channels: int,
        conditioning: int,
        recent: int,
        pointers: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.grid = grid
        self.mask_grid = mask_grid
        self._conditioning = conditioning
        self._recent = recent
        self.memories_selc = torch.zeros(
            (slots, conditioning + recent, grid * grid, memory_channels), dtype=torch.bfloat16, device=device
        )
        self.pointers_spc = torch.zeros((slots, conditioning + pointers, pointer_channels), dtype=dtype, device=device)
        self.logits_shw = torch.zeros((slots, mask_grid, mask_grid), dtype=dtype, device=device)
        self.scores_s = torch.zeros(slots, dtype=dtype, device=device)
        self.memory_ages_se: IntArray = np.full((slots, conditioning + recent), EMPTY, np.int64)
        self.pointer_ages_sp: IntArray = np.full((slots, conditioning + pointers), EMPTY, np.int64)

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return len(self.memory_ages_se)

    @property
    def nbytes(self) -> int:
        """Bytes of all state."""
        tensors = (self.memories_selc, self.pointers_spc, self.logits_shw, self.scores_s)
        arrays = (self.memory_ages_se, self.pointer_ages_sp)
        return sum(tensor.nbytes for tensor in tensors) + sum(array.nbytes for array in arrays)

    def advance(self) -> None:
        """A new frame begins: everything gets one frame older."""
        for ages in (self.memory_ages_se, self.pointer_ages_sp):
            ages[ages != EMPTY] += 1
            np.minimum(ages, _OLDEST, out=ages)

    def clear(self, slot: int) -> None:
        """Forget an object."""
        self.memory_ages_se[slot] = EMPTY
        self.pointer_ages_sp[slot] = EMPTY

    def reset(self, grid: int, mask_grid: int) -> None:
        """Forget everything and set the grid."""
        self.memory_ages_se[:] = EMPTY
        self.pointer_ages_sp[:] = EMPTY
        if (grid, mask_grid) != (self.grid, self.mask_grid):
            self.resample(grid, mask_grid)

    def release(self) -> None:
        """Free the memory; the bank cannot be used any more."""
        self.memories_selc = self.memories_selc[:0].clone()
        self.pointers_spc = self.pointers_spc[:0].clone()
        self.logits_shw = self.logits_shw[:0].clone()

    def groups(self, slots: Sequence[int]) -> list[MemoryGroup]:
        """Sort objects into groups with equally many memories and pointers of earlier frames.

        Rows are in the reference's order: conditioning ones first, oldest first; then memories oldest first and
        pointers newest first.
        """
        slots_n = np.array(slots, np.int64)
        memory_ages = self.memory_ages_se[slots_n]
        pointer_ages = self.pointer_ages_sp[slots_n]
        entries, entry_counts = self._in_order(memory_ages, -memory_ages)
        pointers, pointer_counts = self._in_order(pointer_ages, pointer_ages)
        counts = np.stack([entry_counts, pointer_counts], axis=1)
        found = []
        for entry_count, pointer_count in np.unique(counts, axis=0):
            members = np.flatnonzero((counts == (entry_count, pointer_count)).all(axis=1))
            entries_nm, pointers_np = entries[members, :entry_count], pointers[members, :pointer_count]
            ages_nm = np.take_along_axis(memory_ages[members], entries_nm, axis=1)
            offsets_nm = np.where(entries_nm < self._conditioning, 0, ages_nm)
            ages_np = np.take_along_axis(pointer_ages[members], pointers_np, axis=1)
            found.append(MemoryGroup(slots_n[members], entries_nm, offsets_nm, pointers_np, ages_np))
        return found

    def _in_order(self, ages_nr: IntArray, recent_order_nr: IntArray) -> tuple[IntArray, IntArray]:
        """Rows of earlier frames that can still be picked, in order and first, and how many they are."""
        rows = ages_nr.shape[1]
        is_conditioning = np.arange(rows) < self._conditioning
        usable = (ages_nr >= 1) & (is_conditioning | (ages_nr <= rows - self._conditioning))
        last = 4 * _OLDEST
        order = np.where(is_conditioning, -ages_nr, last + recent_order_nr)
        return np.argsort(np.where(usable, order, 2 * last), axis=1, kind="stable"), usable.sum(axis=1)

    def write(
        self,
        slots: Sequence[int],
        memories_nlc: torch.Tensor,
        pointers_nc: torch.Tensor,
        conditioning_n: npt.NDArray[np.bool_],
    ) -> None:
        """Remember the current frame, in place of what was remembered of it before.

        Args:
            slots: Slots of the objects.
            memories_nlc: (n, grid*grid, memory_channels).
            pointers_nc: (n, pointer_channels).
            conditioning_n: Whether the frame conditions the object from now on.
        """
        slots_n = np.array(slots, np.int64)
        rows = [slots_n]
        for ages_sr in (self.memory_ages_se, self.pointer_ages_sp):
            ages_nr = ages_sr[slots_n]
            ages_sr[slots_n] = np.where(ages_nr == 0, EMPTY, ages_nr)
            rows.append(self._recent_rows(ages_sr[slots_n]))
        for row in np.flatnonzero(conditioning_n):
            rows[1][row] = rows[2][row] = self._conditioning_row(slots_n[row])
        self.memory_ages_se[slots_n, rows[1]] = self.pointer_ages_sp[slots_n, rows[2]] = 0
        at = torch.from_numpy(np.stack(rows)).to(self.memories_selc.device, non_blocking=True)
        self.memories_selc[at[0], at[1]] = memories_nlc.to(self.memories_selc.dtype)
        self.pointers_spc[at[0], at[2]] = pointers_nc.to(self.pointers_spc.dtype)

    def _conditioning_row(self, slot: np.int64) -> int:
        """A free conditioning row, emptied by moving the oldest to the recent ones if need be."""
        ages = self.memory_ages_se[slot, : self._conditioning]
        if (ages == EMPTY).any():
            return int(np.argmax(ages == EMPTY))
        oldest = int(np.argmax(ages))
        for tensor, ages_sr in (
            (self.memories_selc, self.memory_ages_se),
            (self.pointers_spc, self.pointer_ages_sp),
        ):
            row = int(self._recent_rows(ages_sr[slot][None])[0])
            if ages_sr[slot, oldest] < ages_sr.shape[1] - self._conditioning:
                tensor[slot, row] = tensor[slot, oldest]
                ages_sr[slot, row] = ages_sr[slot, oldest]
        return oldest

    def _recent_rows(self, ages_nr: IntArray) -> IntArray:
        """For each object the recent row that is empty, or else the oldest."""
        recent_nr = ages_nr[:, self._conditioning :]
        rows_n: IntArray = np.where(recent_nr == EMPTY, 2 * _OLDEST, recent_nr).argmax(axis=1) + self._conditioning
        return rows_n

    def resample(self, grid: int, mask_grid: int) -> None:
        """Bring memories and logits to another grid; everything else stays as it is."""
        slots, entries, _, channels = self.memories_selc.shape
        resampled = torch.zeros(
            (slots, entries, grid * grid, channels), dtype=torch.bfloat16, device=self.memories_selc.device
        )
        logits = self.logits_shw.new_zeros((slots, mask_grid, mask_grid))
        for slot in np.flatnonzero((self.memory_ages_se != EMPTY).any(axis=1)):
            old_echw = to_map(self.memories_selc[slot].transpose(1, 2), self.grid).float()
            new_echw = functional.interpolate(old_echw, size=(grid, grid), mode="bilinear", align_corners=False)
            resampled[slot] = new_echw.flatten(2).transpose(1, 2).to(torch.bfloat16)
            logits[slot] = functional.interpolate(
                self.logits_shw[slot][None, None], size=(mask_grid, mask_grid), mode="bilinear", align_corners=False
            )[0, 0]
        self.memories_selc, self.logits_shw = resampled, logits
        self.grid, self.mask_grid = grid, mask_grid


def to_map(tokens_ncl: torch.Tensor, grid: int) -> torch.Tensor:
    """Tokens in reading order as a map: (n, channels, grid, grid)."""
    return tokens_ncl.reshape(*tokens_ncl.shape[:2], grid, grid)
