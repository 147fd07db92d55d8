"""The tracker of one stream: slots with memories, and the network parts that read and write them, in batches.

It knows slots, tensors and the square picture that the model sees; ids, prompts and displayed pixels are the session's.
A frame goes: the bank's `advance`, then any of `propagate`, `click` and `take_mask`, then `memorize` what came out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.mask_decoder import Decoded, MaskDecoder
from sam3_stream.models.sam3.memory_attention import MemoryAttention
from sam3_stream.models.sam3.memory_bank import MemoryBank, MemoryGroup
from sam3_stream.models.sam3.memory_encoder import MemoryEncoder
from sam3_stream.models.sam3.network import TrackerNetwork
from sam3_stream.models.sam3.oom import BatchLimit
from sam3_stream.models.sam3.positions import PositionTables

_PREVIOUS_LOGITS_LIMIT = 32.0
_MASK_LOGIT_SCALE, _MASK_LOGIT_BIAS = 20.0, -10.0


@dataclass(frozen=True, slots=True, eq=False)
class Tracked:
    """What was decoded for the objects in `slots`, and the features that it was decoded from.

    Attributes:
        slots: Slots of the objects, one a row.
        decoded: Their masks, scores and pointers.
        embedding_nchw: Features conditioned on each object's memory, for further clicks on the same frame.
        mask_n1hw: Mask logits at the picture's size where they are finer than `logits_nhw`; else None.
    """

    slots: tuple[int, ...]
    decoded: Decoded
    embedding_nchw: torch.Tensor
    mask_n1hw: torch.Tensor | None = None


class ObjectTracker:
    """Tracks the objects of a bank. Holds no state of its own, so it is made anew for every frame.

    Args:
        network: The network.
        bank: The objects' memories.
        batches: How many objects fit into a batch.
        multimask_max_points: With so many points or fewer the best of three proposals is taken.
    """

    def __init__(
        self, network: TrackerNetwork, bank: MemoryBank, batches: BatchLimit, *, multimask_max_points: int
    ) -> None:
        self._network = network
        self._multimask_max_points = multimask_max_points
        self.batches = batches
        self.bank = bank
        self.memory_attention = MemoryAttention(network)
        self.mask_decoder = MaskDecoder(network)
        self.memory_encoder = MemoryEncoder(network)

    def propagate(self, features: Sam3Features, tables: PositionTables, slots: Sequence[int]) -> Tracked | None:
        """Find the objects by their memories; None for no objects. Remembers nothing yet."""
        if not slots:
            return None
        begun = self.memory_attention.begin(features.embedding_1chw, tables)
        results = []
        for group in self.bank.groups(slots):

            def propagate(start: int, stop: int, group: MemoryGroup = group) -> Tracked:
                return self._propagate(features, tables, begun, _part(group, start, stop))

            results += self.batches.run(len(group.slots_n), propagate)
        return concatenate(results)

    def _propagate(
        self, features: Sam3Features, tables: PositionTables, begun: torch.Tensor, group: MemoryGroup
    ) -> Tracked:
        embedding = self.memory_attention.attend(begun, self.bank, group, tables)
        count = len(group.slots_n)
        no_points = torch.zeros((1, 1, 2), device=begun.device), torch.full((1, 1), -1, device=begun.device)
        points = self.mask_decoder.embed_points(*no_points, tables.resolution).expand(count, -1, -1, -1)
        config = self._network.config
        multimask = config.multimask_output_in_sam and config.multimask_output_for_tracking
        decoded = self.mask_decoder.decode(embedding, features, tables, points_n1pc=points, multimask=multimask)
        return Tracked(tuple(group.slots_n.tolist()), decoded, embedding)

    def fresh_embedding(self, features: Sam3Features, count: int) -> torch.Tensor:
        """Features for objects that have no memory: (n, channels, grid, grid)."""
        embedding: torch.Tensor = features.embedding_1chw + self._network.tracker.no_memory_embedding.view(1, -1, 1, 1)
        return embedding.expand(count, -1, -1, -1)

    def click(
        self,
        features: Sam3Features,
        tables: PositionTables,
        slots: Sequence[int],
        points_np2: torch.Tensor,
        labels_np: torch.Tensor,
        embedding_nchw: torch.Tensor,
        previous_logits_nhw: torch.Tensor | None = None,
    ) -> Tracked:
        """Find objects by clicks or box corners, equally many for each.

        Args:
            features: The picture's features.
            tables: Positional tables of its resolution.
            slots: Slots of the objects.
            points_np2: (n, p, 2), x and y in pixels of the square picture.
            labels_np: (n, p), int64, as `MaskDecoder.embed_points` takes them.
            embedding_nchw: `fresh_embedding`, or what `propagate` gave for these objects.
            previous_logits_nhw: The masks to be refined, or None.
        """
        points = self.mask_decoder.embed_points(points_np2, labels_np, tables.resolution)
        mask = None
        if previous_logits_nhw is not None:
            limit = _PREVIOUS_LOGITS_LIMIT
            mask = self.mask_decoder.embed_mask(previous_logits_nhw.clamp(-limit, limit))
        config = self._network.config
        few_enough = config.multimask_min_pt_num <= points_np2.shape[1] <= self._multimask_max_points
        decoded = self.mask_decoder.decode(
            embedding_nchw,
            features,
            tables,
            points_n1pc=points,
            mask_nchw=mask,
            multimask=config.multimask_output_in_sam and few_enough,
        )
        return Tracked(tuple(slots), decoded, embedding_nchw)

    def take_mask(
        self, features: Sam3Features, tables: PositionTables, slots: Sequence[int], masks_n1hw: torch.Tensor
    ) -> Tracked:
        """Take masks as the truth: the decoder runs only for the pointers.

        Args:
            features: The picture's features.
            tables: Positional tables of its resolution.
            slots: Slots of the objects.
            masks_n1hw: 0 and 1 at any size; brought to (n, 1, resolution, resolution).
        """
        network, tracker, dtype = self._network, self._network.tracker, self._network.stream_dtype
        masks = _resize(masks_n1hw.to(dtype), tables.resolution)
        logits_at_picture = masks * _MASK_LOGIT_SCALE + _MASK_LOGIT_BIAS
        logits = _resize(logits_at_picture, tables.mask_grid, always=True)[:, 0]
        rough = _resize(tracker.mask_downsample(masks.to(tracker.mask_downsample.weight.dtype)), tables.mask_grid)
        device, count = network.device, len(slots)
        no_points = torch.zeros((count, 1, 2), device=device), torch.full((count, 1), -1, device=device)
        decoded = self.mask_decoder.decode(
            features.embedding_1chw,
            features,
            tables,
            points_n1pc=self.mask_decoder.embed_points(*no_points, tables.resolution),
            mask_nchw=self.mask_decoder.embed_mask(rough[:, 0]),
            multimask=True,
        )
        present = masks_n1hw.flatten(1).any(dim=1)
        pointers = torch.where(present[:, None], decoded.pointers_nc, tracker.no_object_pointer)
        scores = present.to(dtype) * _MASK_LOGIT_SCALE + _MASK_LOGIT_BIAS
        ones = torch.ones_like(scores)
        taken = Decoded(logits, scores, pointers, ones, decoded.choices_n)
        return Tracked(tuple(slots), taken, self.fresh_embedding(features, count), logits_at_picture)

    def memorize(
        self,
        features: Sam3Features,
        tables: PositionTables,
        tracked: Tracked,
        conditioning_n: npt.NDArray[np.bool_],
        *,
        binarize: bool,
    ) -> None:
        """Remember what was found on the current frame.

        Args:
            features: The picture's features.
            tables: Positional tables of its resolution.
            tracked: What was found, or what is to be remembered in its place.
            conditioning_n: For each object whether the frame conditions it from now on.
            binarize: Whether masks are remembered as 0 and 1. The reference does so for all objects of a frame with a
                prompt for any of them, so that is what callers pass.
        """

        decoded = tracked.decoded

        def encode(start: int, stop: int) -> torch.Tensor:
            if tracked.mask_n1hw is not None:
                masks = tracked.mask_n1hw[start:stop]
            else:
                masks = functional.interpolate(
                    decoded.logits_nhw[start:stop, None].float(),
                    size=(tables.resolution, tables.resolution),
                    mode="bilinear",
                    align_corners=False,
                ).to(decoded.logits_nhw.dtype)
            scores = decoded.scores_n[start:stop]
            return self.memory_encoder.encode(features, masks, scores, tables, binarize=binarize)

        memories = torch.cat(self.batches.run(len(tracked.slots), encode))
        self.bank.write(tracked.slots, memories, decoded.pointers_nc, conditioning_n)
        slots = torch.tensor(tracked.slots, device=memories.device)
        self.bank.logits_shw[slots] = decoded.logits_nhw
        self.bank.scores_s[slots] = decoded.scores_n


def concatenate(parts: Sequence[Tracked]) -> Tracked:
    """One record of all objects of several; those with and without a finer mask do not mix."""
    if len(parts) == 1:
        return parts[0]
    finer = [part.mask_n1hw for part in parts if part.mask_n1hw is not None]
    return Tracked(
        slots=tuple(slot for part in parts for slot in part.slots),
        decoded=Decoded(*(torch.cat([getattr(part.decoded, name.name) for part in parts]) for name in fields(Decoded))),
        embedding_nchw=torch.cat([part.embedding_nchw for part in parts]),
        mask_n1hw=torch.cat(finer) if finer else None,
    )


def _part(group: MemoryGroup, start: int, stop: int) -> MemoryGroup:
    return MemoryGroup(*(getattr(group, field.name)[start:stop] for field in fields(MemoryGroup)))


def _resize(images_n1hw: torch.Tensor, side: int, *, always: bool = False) -> torch.Tensor:
    """Bilinear with antialiasing, in float32 as the reference does it, unless the size is right."""
    if images_n1hw.shape[-2:] == (side, side) and not always:
        return images_n1hw
    resized = functional.interpolate(
        images_n1hw.float(), size=(side, side), mode="bilinear", align_corners=False, antialias=True
    )
    return resized.to(images_n1hw.dtype)
