"""The memory of one stream: prompts and frames in, tracked objects out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from sam3_stream.core.errors import PromptError
from sam3_stream.core.prompts import ObjectPrompt, SessionPrompt
from sam3_stream.core.records import EncodedFrame, TrackedFrame, TrackedObject
from sam3_stream.models.protocols import SessionState
from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.memory_bank import MemoryBank
from sam3_stream.models.sam3.objects import ObjectTable
from sam3_stream.models.sam3.oom import BatchLimit, free_cached_memory
from sam3_stream.models.sam3.positions import PositionTables
from sam3_stream.models.sam3.postprocess import MaskPostprocessor
from sam3_stream.models.sam3.prompts import check_object_prompt, mask_on_square, merge_clicks, points_on_square
from sam3_stream.models.sam3.snapshot import CurrentFrame, read_snapshot, take_snapshot
from sam3_stream.models.sam3.tracker import ObjectTracker, Tracked, concatenate

if TYPE_CHECKING:
    from sam3_stream.models.sam3.model import Sam3Model


class Sam3Session:
    """Tracks the objects of one stream.

    How prompts are taken:

    * A new object, a box, and a mask start (or restart) an object from what is said, without its memory.
    * Clicks on an object that is tracked refine it: it is first found by its memory, then the clicks and that mask's
      logits go to the decoder together. If it was not found, positive clicks start it afresh.
    * Either way the frame conditions the object from then on (see `memory_bank`).
    * `step` with the frame that was stepped last only applies the prompts: neither the trunk nor memory attention runs,
      and objects without a prompt stay as they are. Clicks add to those given on that frame before.

    Args:
        model: The model; its weights are borrowed for each step.
        bank: The stream's memory, empty.
    """

    def __init__(self, model: Sam3Model, bank: MemoryBank) -> None:
        self._model = model
        self._options = model.options
        self._bank = bank
        self._objects = ObjectTable(model.options.max_objects)
        self._batches = BatchLimit("objects")
        self._postprocessor = MaskPostprocessor(model.options)
        self._current = CurrentFrame()

    @property
    def nbytes(self) -> int:
        """Bytes of the memory, which stay the same while the resolution does."""
        return self._bank.nbytes

    @torch.inference_mode()
    def step(self, encoded: EncodedFrame, prompts: Sequence[SessionPrompt] = ()) -> TrackedFrame:
        """See `TrackingSession.step`."""
        wanted = self._check(encoded, prompts)
        earlier: list[int] = []
        if not self._current.is_frame(encoded.frame):
            self._bank.advance()
            self._current = CurrentFrame.of(encoded.frame)
            earlier = [entry.slot for entry in self._objects]
        wanted = [self._enter(prompt) for prompt in wanted]
        while True:
            try:
                self._track(encoded, earlier, wanted)
                break
            except torch.OutOfMemoryError:
                free_cached_memory()
                encoded = self._model.encode_smaller(encoded)
        return self._result(encoded)

    def _check(self, encoded: EncodedFrame, prompts: Sequence[SessionPrompt]) -> list[ObjectPrompt]:
        """The prompts, one an object, all of them good; raises before anything has changed."""
        merged: dict[int, ObjectPrompt] = {}
        for prompt in prompts:
            if not isinstance(prompt, ObjectPrompt):
                raise PromptError(f"the SAM 3 tracker takes clicks, boxes and masks, got the phrase {prompt.text!r}")
            is_new = prompt.object_id not in self._objects
            check_object_prompt(prompt, encoded.frame.width, encoded.frame.height, is_new=is_new)
            merged[prompt.object_id] = merge_clicks(merged.get(prompt.object_id), prompt)
        self._objects.check_room(sum(object_id not in self._objects for object_id in merged))
        return list(merged.values())

    def _enter(self, prompt: ObjectPrompt) -> ObjectPrompt:
        """Give a new object its slot; the prompt with what was clicked on this frame before, unless it starts anew."""
        if prompt.object_id in self._objects:
            entry = self._objects[prompt.object_id]
        else:
            entry = self._objects.add(prompt.object_id, prompt.prompt_id, prompt.label)
        if _restarts(prompt):
            self._current.forget(entry.object_id, entry.slot)
        prompt = merge_clicks(self._current.clicks.get(entry.object_id), prompt)
        if prompt.mask is None:
            self._current.clicks[entry.object_id] = prompt
        return prompt

    def _track(self, encoded: EncodedFrame, earlier: Sequence[int], prompts: Sequence[ObjectPrompt]) -> None:
        """Find every object on the frame and remember it; may be called again for the same frame."""
        features: Sam3Features = encoded.features
        with self._model.engine() as engine:
            tables = engine.tables(features.resolution)
            if tables.grid != self._bank.grid:
                self._bank.resample(tables.grid, tables.mask_grid)
                self._current.embeddings.clear()
            tracker = ObjectTracker(
                engine.network, self._bank, self._batches, multimask_max_points=self._options.multimask_max_points
            )
            _FrameStep(tracker, encoded, tables, self._objects, self._current).run(earlier, prompts)

    def _result(self, encoded: EncodedFrame) -> TrackedFrame:
        frame = encoded.frame
        entries = list(self._objects)
        slots = torch.tensor([entry.slot for entry in entries], dtype=torch.int64, device=self._bank.scores_s.device)
        masks = self._postprocessor.run(self._bank.logits_shw[slots], (frame.width, frame.height))
        scores = self._bank.scores_s[slots].sigmoid().tolist()
        objects = tuple(
            TrackedObject(entry.object_id, entry.prompt_id, entry.label, score, mask, present=bool(mask.any()))
            for entry, score, mask in zip(entries, scores, masks, strict=True)
        )
        return TrackedFrame(frame, objects, "tracked", resolution=encoded.resolution)

    def remove(self, object_id: int) -> None:
        """See `TrackingSession.remove`."""
        entry = self._objects.remove(object_id)
        if entry is not None:
            self._bank.clear(entry.slot)
            self._current.forget(entry.object_id, entry.slot)

    def snapshot(self) -> SessionState:
        """See `TrackingSession.snapshot`."""
        return take_snapshot(self._bank, self._objects, self._current)

    @torch.inference_mode()
    def restore(self, state: SessionState) -> None:
        """See `TrackingSession.restore`.

        Raises:
            ModelError: The snapshot is of another checkpoint, or of a session with more room.
        """
        self._current = read_snapshot(state, self._bank, self._objects)

    def close(self) -> None:
        """See `TrackingSession.close`."""
        self._objects.clear()
        self._current = CurrentFrame()
        self._bank.release()


class _FrameStep:
    """One pass over the objects of a frame, in the reference's order: find, prompt, remember."""

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

    def run(self, earlier: Sequence[int], prompts: Sequence[ObjectPrompt]) -> None:
        """Find the objects in the slots `earlier` by memory, apply the prompts, and remember all that came out."""
        restarted = {self._slot(prompt) for prompt in prompts if _restarts(prompt)}
        self._remember_found([slot for slot in earlier if slot not in restarted], prompts)
        masks = [prompt for prompt in prompts if prompt.mask is not None]
        others = [prompt for prompt in prompts if prompt.mask is None]
        for batch in (self._take_masks(masks), self._click(others)):
            if batch is not None:
                self._keep(batch)
                conditioning = np.ones(len(batch.slots), np.bool_)
                self._tracker.memorize(self._features, self._tables, batch, conditioning, binarize=True)

    def _remember_found(self, slots: Sequence[int], prompts: Sequence[ObjectPrompt]) -> None:
        found = self._tracker.propagate(self._features, self._tables, slots)
        if found is not None:
            self._keep(found)
            conditioning = np.zeros(len(found.slots), np.bool_)
            self._tracker.memorize(self._features, self._tables, found, conditioning, binarize=bool(prompts))

    def _slot(self, prompt: ObjectPrompt) -> int:
        return self._objects[prompt.object_id].slot

    def _keep(self, tracked: Tracked) -> None:
        for row, slot in enumerate(tracked.slots):
            self._current.embeddings[slot] = tracked.embedding_nchw[row : row + 1]

    def _take_masks(self, prompts: Sequence[ObjectPrompt]) -> Tracked | None:
        if not prompts:
            return None
        device = self._features.embedding_1chw.device
        masks = torch.cat([mask_on_square(prompt, self._tables.resolution, device) for prompt in prompts])
        slots = [self._slot(prompt) for prompt in prompts]
        return self._tracker.take_mask(self._features, self._tables, slots, masks)

    def _click(self, prompts: Sequence[ObjectPrompt]) -> Tracked | None:
        """Decode clicks and boxes; prompts with equally many points that start or refine alike run together."""
        groups: dict[tuple[int, bool], list[ObjectPrompt]] = {}
        for prompt in prompts:
            points = len(prompt.points_n2) + 2 * (prompt.box_xyxy is not None)
            groups.setdefault((points, self._refines(prompt)), []).append(prompt)
        parts = [self._click_group(group, refine) for (_, refine), group in groups.items()]
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


def _restarts(prompt: ObjectPrompt) -> bool:
    """Whether the prompt says where the object is without regard to its memory."""
    return prompt.mask is not None or prompt.box_xyxy is not None
