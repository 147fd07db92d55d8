"""What is remembered of the objects that a concept found.

As in `Sam3VideoModel` memories are encoded after all decisions of the frame, from the decoder's mask logits as they
are then, with masks of one concept kept from swallowing each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.mask_decoder import Decoded
from sam3_stream.models.sam3.positions import PositionTables
from sam3_stream.models.sam3.tracker import ObjectTracker, Tracked

NO_OBJECT_LOGIT = -10.0
_SHRUNK_TO = 0.3
_BIRTH_LOGIT = 0.5


def select(tracked: Tracked, rows: Sequence[int]) -> Tracked:
    """The record of some of the objects, in the order of `rows`."""
    decoded = tracked.decoded
    index = torch.tensor(list(rows), dtype=torch.int64, device=decoded.scores_n.device)
    return Tracked(
        slots=tuple(tracked.slots[row] for row in rows),
        decoded=Decoded(*(getattr(decoded, field.name)[index] for field in fields(Decoded))),
        embedding_nchw=tracked.embedding_nchw[index],
        mask_n1hw=None if tracked.mask_n1hw is None else tracked.mask_n1hw[index],
    )


def without_the_swallowed(masks_nhw: Tensor, concepts_n: npt.NDArray[np.int64]) -> Tensor:
    """Empty the masks of which others of the same concept, more certain pixel by pixel, leave less than 30 percent.

    The reference's `_suppress_object_pw_area_shrinkage`.

    Args:
        masks_nhw: Mask logits, shape (n, h, w).
        concepts_n: Number of each object's concept, shape (n,).
    """
    result_nhw = masks_nhw.clone()
    for concept in np.unique(concepts_n):
        rows = torch.from_numpy(np.flatnonzero(concepts_n == concept)).to(masks_nhw.device)
        if len(rows) > 1:
            group_khw = masks_nhw[rows]
            winner_hw = group_khw.argmax(dim=0)
            own_khw = winner_hw == torch.arange(len(rows), device=winner_hw.device)[:, None, None]
            before_k = (group_khw > 0).sum(dim=(1, 2))
            after_k = ((group_khw > 0) & own_khw).sum(dim=(1, 2))
            swallowed_k = after_k / before_k.clamp(min=1) < _SHRUNK_TO
            result_nhw[rows] = torch.where(swallowed_k[:, None, None], group_khw.clamp(max=NO_OBJECT_LOGIT), group_khw)
    return result_nhw


class ConceptMemory:
    """Writes the memories of a frame's concept objects.

    Args:
        tracker: The tracker.
        features: Features of the frame.
        tables: Positional tables of its resolution.
    """

    def __init__(self, tracker: ObjectTracker, features: Sam3Features, tables: PositionTables) -> None:
        self._tracker = tracker
        self._features = features
        self._tables = tables

    def current(self, slots: Sequence[int], found: Tracked | None) -> tuple[Tensor, Tensor]:
        """Mask and score logits of objects on this frame: as found, else as they are in the bank."""
        bank = self._tracker.bank
        index = torch.tensor(list(slots), dtype=torch.int64, device=bank.scores_s.device)
        logits_mhw, scores_m = bank.logits_shw[index], bank.scores_s[index]
        if found is not None:
            row_of = {slot: row for row, slot in enumerate(found.slots)}
            at = [place for place, slot in enumerate(slots) if slot in row_of]
            rows = [row_of[slots[place]] for place in at]
            logits_mhw[at], scores_m[at] = found.decoded.logits_nhw[rows], found.decoded.scores_n[rows]
        return logits_mhw, scores_m

    def clear(self, slot: int) -> None:
        """Forget the object of a slot."""
        self._tracker.bank.clear(slot)

    def remember(
        self,
        found: Tracked,
        masks_nhw: Tensor,
        remembered_nhw: Tensor,
        conditioning_n: npt.NDArray[np.bool_],
    ) -> None:
        """Remember tracked objects.

        Args:
            found: What propagation gave.
            masks_nhw: Mask logits after this frame's decisions: what the objects look like.
            remembered_nhw: The same `without_the_swallowed`: what the memory encoder reads.
            conditioning_n: Whether a detection confirmed the object, so that the frame conditions it.
        """
        present_n = (remembered_nhw > 0).flatten(1).any(dim=1)
        scores_n = torch.where(present_n, -NO_OBJECT_LOGIT, NO_OBJECT_LOGIT).to(found.decoded.scores_n.dtype)
        changed = replace(
            found,
            decoded=replace(found.decoded, logits_nhw=remembered_nhw, scores_n=scores_n),
            mask_n1hw=remembered_nhw[:, None],
        )
        self._tracker.memorize(self._features, self._tables, changed, conditioning_n, binarize=False)
        self.show(found.slots, masks_nhw, found.decoded.scores_n)

    def remember_raw(self, found: Tracked) -> None:
        """Remember tracked objects as `transformers` does on frames where another is born; they look as before."""
        logits_nhw, scores_n = self.current(found.slots, None)
        nowhere = np.zeros(len(found.slots), np.bool_)
        self._tracker.memorize(self._features, self._tables, found, nowhere, binarize=True)
        self.show(found.slots, logits_nhw, scores_n)

    def begin(self, slots: Sequence[int], masks_nhw: Tensor) -> Tracked:
        """Start objects from the detector's mask logits (n, h, w)."""
        certain_n1hw = (masks_nhw >= _BIRTH_LOGIT)[:, None]
        taken = self._tracker.take_mask(self._features, self._tables, slots, certain_n1hw)
        self._tracker.memorize(self._features, self._tables, taken, np.ones(len(slots), np.bool_), binarize=True)
        return taken

    def show(self, slots: Sequence[int], masks_nhw: Tensor, scores_n: Tensor) -> None:
        """Set what objects look like on this frame, whatever is remembered of them."""
        bank = self._tracker.bank
        index = torch.tensor(list(slots), dtype=torch.int64, device=bank.scores_s.device)
        bank.logits_shw[index] = masks_nhw.to(bank.logits_shw)
        bank.scores_s[index] = scores_n.to(bank.scores_s)
