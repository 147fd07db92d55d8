"""The memory of one stream: prompts and frames in, tracked objects out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from sam3_stream.core.prompts import ConceptPrompt, ObjectPrompt, SessionPrompt
from sam3_stream.core.records import EncodedFrame, MaskArray, TrackedFrame, TrackedObject
from sam3_stream.models.protocols import SessionState
from sam3_stream.models.sam3.concept_table import Concept
from sam3_stream.models.sam3.concepts import Concepts
from sam3_stream.models.sam3.detect_interval import DetectInterval
from sam3_stream.models.sam3.frame_step import FrameStep, restarts
from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.memory_bank import MemoryBank
from sam3_stream.models.sam3.objects import ObjectEntry, ObjectTable
from sam3_stream.models.sam3.oom import BatchLimit, free_cached_memory
from sam3_stream.models.sam3.postprocess import MaskPostprocessor
from sam3_stream.models.sam3.prompts import check_object_prompt, merge_clicks
from sam3_stream.models.sam3.snapshot import CurrentFrame, read_snapshot, take_snapshot
from sam3_stream.models.sam3.tracker import ObjectTracker

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
    * A concept (a phrase, exemplars) is looked for from the frame it comes with; see `Concepts`. What is said of an
      object that a concept found corrects it, and only the user ends it from then on.

    Args:
        model: The model; its weights are borrowed for each step.
        bank: The stream's memory, empty.
        new_object_id: Gives the next public id, for objects that concepts find.
    """

    def __init__(self, model: Sam3Model, bank: MemoryBank, new_object_id: Callable[[], int]) -> None:
        self._model = model
        self._options = model.options
        self._bank = bank
        self._objects = ObjectTable(bank.capacity)
        self._batches = BatchLimit("objects")
        self._postprocessor = MaskPostprocessor(model.options)
        self._current = CurrentFrame()
        self._concepts = Concepts(
            model.concept_options,
            self._objects,
            bank.capacity,
            new_object_id,
            model.phrases,
            hole_area=model.options.hole_area,
            sprinkle_area=model.options.sprinkle_area,
        )

    @property
    def detect_interval(self) -> DetectInterval:
        """How often the detector looks for the session's concepts; may be set at any time."""
        return self._concepts.schedule.interval

    @detect_interval.setter
    def detect_interval(self, interval: DetectInterval) -> None:
        self._concepts.schedule.interval = interval

    @property
    def look_every(self) -> int | None:
        """See `protocols.LooksForObjects`: the `detect_interval` if it is in frames."""
        return self.detect_interval.frames

    @look_every.setter
    def look_every(self, steps: int) -> None:
        self.detect_interval = DetectInterval(frames=steps)

    @property
    def looked(self) -> bool | None:
        """Whether the detector looked at the frame that was stepped last; None while there is nothing to look for."""
        return self._concepts.looked

    @property
    def nbytes(self) -> int:
        """Bytes of the memory, which stay the same while the resolution does."""
        return self._bank.nbytes

    @torch.inference_mode()
    def step(self, encoded: EncodedFrame, prompts: Sequence[SessionPrompt] = ()) -> TrackedFrame:
        """See `TrackingSession.step`."""
        wanted, concepts = self._check(encoded, prompts)
        earlier: list[int] = []
        again = self._current.is_frame(encoded.frame)
        self._drop(self._concepts.accept(concepts))
        if not again:
            self._bank.advance()
            self._current = CurrentFrame.of(encoded.frame)
            earlier = [entry.slot for entry in self._objects]
        wanted = [self._enter(prompt) for prompt in wanted]
        before = self._concepts.state()
        while True:
            try:
                self._track(encoded, earlier, wanted, again=again)
                break
            except torch.OutOfMemoryError:
                free_cached_memory()
                self._drop(self._concepts.undo(before))
                encoded = self._model.encode_smaller(encoded)
        return self._result(encoded)

    def _check(
        self, encoded: EncodedFrame, prompts: Sequence[SessionPrompt]
    ) -> tuple[list[ObjectPrompt], list[Concept]]:
        """The prompts, one an object, and the concepts, all of them good; raises before anything has changed."""
        merged: dict[int, ObjectPrompt] = {}
        concepts = [prompt for prompt in prompts if isinstance(prompt, ConceptPrompt)]
        for prompt in prompts:
            if isinstance(prompt, ConceptPrompt):
                continue
            is_new = prompt.object_id not in self._objects
            check_object_prompt(prompt, encoded.frame.width, encoded.frame.height, is_new=is_new)
            merged[prompt.object_id] = merge_clicks(merged.get(prompt.object_id), prompt)
        self._objects.check_room(sum(object_id not in self._objects for object_id in merged))
        return list(merged.values()), self._concepts.table.check(concepts, encoded.frame)

    def _enter(self, prompt: ObjectPrompt) -> ObjectPrompt:
        """Give a new object its slot; the prompt with what was clicked on this frame before, unless it starts anew."""
        if prompt.object_id in self._objects:
            entry = self._objects[prompt.object_id]
        else:
            entry = self._objects.add(prompt.object_id, prompt.prompt_id, prompt.label)
        if restarts(prompt):
            self._current.forget(entry.object_id, entry.slot)
        prompt = merge_clicks(self._current.clicks.get(entry.object_id), prompt)
        if prompt.mask is None:
            self._current.clicks[entry.object_id] = prompt
        return prompt

    def _track(
        self, encoded: EncodedFrame, earlier: Sequence[int], prompts: Sequence[ObjectPrompt], *, again: bool
    ) -> None:
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
            step = FrameStep(tracker, encoded, tables, self._objects, self._current)
            found = step.run(earlier, prompts, self._concepts)
            if len(self._concepts.table):
                step.look(self._concepts, engine, found, prompts, again=again)

    def _result(self, encoded: EncodedFrame) -> TrackedFrame:
        frame = encoded.frame
        entries = [entry for entry in self._objects if self._concepts.is_listed(entry)]
        masks = self._masks(entries, frame.width, frame.height)
        scores = self._bank.scores_s[self._index(entries)].sigmoid().tolist()
        objects = tuple(
            TrackedObject(entry.object_id, entry.prompt_id, entry.label, score, mask, present=bool(mask.any()))
            for entry, score, mask in zip(entries, scores, masks, strict=True)
        )
        retracted = self._concepts.shown([entry.slot for entry in entries], frame.sequence)
        return TrackedFrame(frame, objects, "tracked", resolution=encoded.resolution, retracted=retracted)

    def _masks(self, entries: Sequence[ObjectEntry], width: int, height: int) -> list[MaskArray]:
        """Masks at display size. Objects of different concepts may overlap, others only if so configured."""
        groups: dict[str | None, list[int]] = {}
        for row, entry in enumerate(entries):
            apart = self._options.non_overlapping and entry.prompt_id in self._concepts.table
            groups.setdefault(entry.prompt_id if apart else None, []).append(row)
        masks: list[MaskArray] = [np.zeros((height, width), np.bool_) for _ in entries]
        for rows in groups.values():
            logits = self._bank.logits_shw[self._index([entries[row] for row in rows])]
            for row, mask in zip(rows, self._postprocessor.run(logits, (width, height)), strict=True):
                if not self._concepts.is_hidden(entries[row]):
                    masks[row] = mask
        return masks

    def _index(self, entries: Sequence[ObjectEntry]) -> torch.Tensor:
        return torch.tensor([entry.slot for entry in entries], dtype=torch.int64, device=self._bank.scores_s.device)

    def remove(self, object_id: int) -> None:
        """See `TrackingSession.remove`."""
        if object_id in self._objects:
            self._drop([self._objects[object_id]])

    def remove_prompt(self, prompt_id: str) -> None:
        """Stop looking for a phrase or exemplars, and forget the objects found. Unknown ids are ignored."""
        self._drop(self._concepts.remove(prompt_id))

    def _drop(self, entries: Iterable[ObjectEntry]) -> None:
        for entry in entries:
            self._objects.remove(entry.object_id)
            self._bank.clear(entry.slot)
            self._current.forget(entry.object_id, entry.slot)
            self._concepts.forget(entry.slot)

    def snapshot(self) -> SessionState:
        """See `TrackingSession.snapshot`."""
        return {**take_snapshot(self._bank, self._objects, self._current), **self._concepts.snapshot()}

    @torch.inference_mode()
    def restore(self, state: SessionState) -> None:
        """See `TrackingSession.restore`.

        Raises:
            ModelError: The snapshot is of another checkpoint, or of a session with more room.
        """
        self._current = read_snapshot(state, self._bank, self._objects)
        self._concepts.restore(state, self._bank.scores_s.device)

    def close(self) -> None:
        """See `TrackingSession.close`."""
        self._objects.clear()
        self._current = CurrentFrame()
        self._bank.release()
