"""What happens to the objects of one frame, in the reference's order: find, prompt, remember, look for more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.core.records import EncodedFrame
from sam3_stream.models.sam3.concept_frame import ConceptFrame
from sam3_stream.models.sam3.concept_memory import ConceptMemory, select
from sam3_stream.models.sam3.concepts import Concepts
from sam3_stream.models.sam3.engine import Engine
from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.objects import ObjectTable
from sam3_stream.models.sam3.positions import PositionTables
from sam3_stream.models.sam3.prompts import mask_on_square, points_on_square
from sam3_stream.models.sam3.snapshot import CurrentFrame
from sam3_stream.models.sam3.tracker import ObjectTracker, Tracked, concatenate


class FrameStep:
    """One pass over the objects of a frame.

    Args:
        tracker: Finds and remembers objects by slot.
        encoded: The frame.
        tables: Positional tables of its resolution.
        objects: Which object lives in which slot.
        current: What is known of the frame; what is found is added.
    """

    def __init__(
        self,
        tracker: ObjectTracker,
        encoded: EncodedFrame,
        tables: PositionTables,
        objects: ObjectTable,
        current: CurrentFrame,
    ) -> None:
        self._tracker = tracker
        self._frame = encoded.frame
        self._features: Sam3Features = encoded.features
        self._tables = tables
        self._objects = objects
        self._current = current

    def run(self, earlier: Sequence[int], prompts: Sequence[ObjectPrompt], concepts: Concepts) -> Tracked | None:
        """Find the objects in the slots `earlier` by memory, apply the prompts, and remember all that came out.

        Returns:
            What was found of objects that concepts found and no prompt speaks of; it is for `look` to remember.
        """
        restarted = {self._slot(prompt) for prompt in prompts if restarts(prompt)}
        mine = {entry.slot for entry in self._objects if entry.prompt_id in concepts.table}
        mine -= {self._slot(prompt) for prompt in prompts}
        left = self._remember_found([slot for slot in earlier if slot not in restarted], prompts, mine)
        masks = [prompt for prompt in prompts if prompt.mask is not None]
        others = [prompt for prompt in prompts if prompt.mask is None]
        for batch in (self._take_masks(masks), self._click(others)):
            if batch is not None:
                self._keep(batch)
                conditioning = np.ones(len(batch.slots), np.bool_)
                self._tracker.memorize(self._features, self._tables, batch, conditioning, binarize=True)
        return left

    def look(
        self,
        concepts: Concepts,
        engine: Engine,
        found: Tracked | None,
        prompts: Sequence[ObjectPrompt],
        *,
        again: bool,
    ) -> None:
        """Let the concepts look at the frame, and remember their objects."""
        entries = [self._objects[prompt.object_id] for prompt in prompts]
        born = concepts.update(
            ConceptFrame(
                frame=self._frame,
                features=self._features,
                memory=ConceptMemory(self._tracker, self._features, self._tables),
                detector=lambda: engine.detector,
                found=found,
                settled=tuple(entry.slot for entry in entries if entry.prompt_id in concepts.table),
                again=again,
            )
        )
        if born is not None:
            self._keep(born)

    def _remember_found(
        self, slots: Sequence[int], prompts: Sequence[ObjectPrompt], left_out: set[int]
    ) -> Tracked | None:
        """Find objects and remember them, all but those `left_out`, which are returned."""
        found = self._tracker.propagate(self._features, self._tables, slots)
        if found is None:
            return None
        self._keep(found)
        rows = [row for row, slot in enumerate(found.slots) if slot not in left_out]
        if rows:
            kept = found if len(rows) == len(found.slots) else select(found, rows)
            conditioning = np.zeros(len(rows), np.bool_)
            self._tracker.memorize(self._features, self._tables, kept, conditioning, binarize=bool(prompts))
        left = [row for row, slot in enumerate(found.slots) if slot in left_out]
        return select(found, left) if left else None

    def _slot(self, prompt: ObjectPrompt) -> int:
        return self._objects[prompt.object_id].slot

    def _keep(self, tracked: Tracked) -> None:
        for row, slot in enumerate(tracked.slots):
            self._current.embeddings[slot] = tracked.embedding_nchw[row : row + 1]

    def _take_masks(self, prompts: Sequence[ObjectPrompt]) -> Tracked | None:
        if not prompts:
            return None
        device = self._features.embedding_1chw.device

        def take(start: int, stop: int) -> Tracked:
            part = prompts[start:stop]
            masks = torch.cat([mask_on_square(prompt, self._tables.resolution, device) for prompt in part])
            return self._tracker.take_mask(self._features, self._tables, [self._slot(prompt) for prompt in part], masks)

        return concatenate(self._tracker.batches.run(len(prompts), take))

    def _click(self, prompts: Sequence[ObjectPrompt]) -> Tracked | None:
        """Decode clicks and boxes; prompts with equally many points that start or refine alike run together."""
        groups: dict[tuple[int, bool], list[ObjectPrompt]] = {}
        for prompt in prompts:
            points = len(prompt.points_n2) + 2 * (prompt.box_xyxy is not None)
            groups.setdefault((points, self._refines(prompt)), []).append(prompt)
        parts: list[Tracked] = []
        for (_, refine), group in groups.items():

            def click(start: int, stop: int, group: list[ObjectPrompt] = group, refine: bool = refine) -> Tracked:
                return self._click_group(group[start:stop], refine)

            parts += self._tracker.batches.run(len(group), click)
        return concatenate(parts) if parts else None

    def _refines(self, prompt: ObjectPrompt) -> bool:
        """Whether the prompt corrects the mask that the object has on this frame."""
        slot = self._slot(prompt)
        return slot in self._current.embeddings and bool(self._tracker.bank.scores_s[slot] > 0)

    def _click_group(self, prompts: Sequence[ObjectPrompt], refine: bool) -> Tracked:
        slots = [self._slot(prompt) for prompt in prompts]
        device = self._features.embedding_1chw.device
        width, height = self._frame.width, self._frame.height
        squares = [points_on_square(prompt, width, height, self._tables.resolution) for prompt in prompts]
        points = torch.from_numpy(np.stack([points for points, _ in squares])).to(device)
        labels = torch.from_numpy(np.stack([labels for _, labels in squares])).to(device)
        embedding = self._tracker.fresh_embedding(self._features, len(slots))
        previous = None
        if refine:
            embedding = torch.cat([self._current.embeddings[slot] for slot in slots])
            previous = self._tracker.bank.logits_shw[torch.tensor(slots, device=device)]
        return self._tracker.click(self._features, self._tables, slots, points, labels, embedding, previous)


def restarts(prompt: ObjectPrompt) -> bool:
    """Whether the prompt says where the object is without regard to its memory."""
    return prompt.mask is not None or prompt.box_xyxy is not None
