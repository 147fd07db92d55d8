"""Phrases and exemplars in a live session: when the detector looks, and what becomes of what it finds.

One `Concepts` a session. It asks the detector at the interval, lets `planning` decide, and carries the decisions out on
the tracker's memory and the session's table of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from sam3_stream.core.records import Retraction
from sam3_stream.models.protocols import SessionState
from sam3_stream.models.sam3.concept_frame import ConceptFrame, ConceptState
from sam3_stream.models.sam3.concept_memory import NO_OBJECT_LOGIT, select, without_the_swallowed
from sam3_stream.models.sam3.concept_options import ConceptOptions
from sam3_stream.models.sam3.concept_snapshot import read_concepts, write_concepts
from sam3_stream.models.sam3.concept_table import Concept, ConceptTable, PhraseBank
from sam3_stream.models.sam3.detect_interval import DetectSchedule
from sam3_stream.models.sam3.objects import ObjectEntry, ObjectTable
from sam3_stream.models.sam3.planning import Detections, Overlaps, Plan, Planner, Tracks
from sam3_stream.models.sam3.postprocess import fill_holes, remove_sprinkles
from sam3_stream.models.sam3.tracker import Tracked


class Concepts:
    """The concepts of one session and the life of the objects that they find.

    Args:
        options: Options.
        objects: The session's objects; those born are added, those that are over are removed.
        capacity: Slots of the session.
        new_object_id: Gives the next public id.
        phrases: Gives the text features of phrases.
        hole_area: Holes up to this area are filled before masks are compared, in pixels of the decoder's grid.
        sprinkle_area: Specks up to this area are removed before masks are compared.

    Attributes:
        table: What is looked for.
        schedule: When the detector looks.
        looked: Whether it looked at the frame that was stepped last; None while there is nothing to look for.
    """

    def __init__(
        self,
        options: ConceptOptions,
        objects: ObjectTable,
        capacity: int,
        new_object_id: Callable[[], int],
        phrases: PhraseBank,
        *,
        hole_area: int,
        sprinkle_area: int,
    ) -> None:
        self._thresholds = options.association
        self._objects = objects
        self._new_object_id = new_object_id
        self._areas = hole_area, sprinkle_area
        self._planner = Planner(options.association, capacity)
        self._changed: set[str] = set()
        self._shown = np.full((capacity, 2), -1, np.int64)  # first and last frame that showed the slot's object
        self._retracted: list[Retraction] = []
        self.table = ConceptTable(phrases, options.max_concepts)
        self.schedule = DetectSchedule(options.detect_interval)
        self.looked: bool | None = None

    def accept(self, checked: Sequence[Concept]) -> list[ObjectEntry]:
        """Look for these concepts from now on; the objects that end because another phrase took their place."""
        ended = []
        for concept in checked:
            taken, objects_end = self.table.accept(concept)
            if taken:
                self._changed.add(concept.prompt.prompt_id)
            if objects_end:
                ended += [entry for entry in self._objects if entry.prompt_id == concept.prompt.prompt_id]
        return ended

    def remove(self, prompt_id: str) -> list[ObjectEntry]:
        """Stop looking for a concept; its objects, which end. Unknown ids are ignored."""
        self._changed.discard(prompt_id)
        if not self.table.remove(prompt_id):
            return []
        if not len(self.table):
            self.looked = None
        return [entry for entry in self._objects if entry.prompt_id == prompt_id]

    def forget(self, slot: int) -> None:
        """The object in this slot has been removed."""
        self._planner.lifecycle.forget(slot)
        self._shown[slot] = -1

    def update(self, step: ConceptFrame) -> Tracked | None:
        """Look at the frame if it is time, decide, and remember the concepts' objects.

        Returns:
            What was made of objects that were born on it, or None.
        """
        for slot in step.settled:
            self._planner.lifecycle.pin(slot)
        looked_for = self._looked_for(step)
        self.looked = bool(looked_for)
        tracks = self._tracks(step, looked_for if step.again else list(self.table))
        if not looked_for:
            self._remember(step, tracks, Overlaps.of(tracks), None, Plan())
            return None
        detections = self._detect(step, looked_for)
        overlaps = Overlaps.of(tracks, detections)
        plan = self._planner.look(
            detections,
            tracks,
            overlaps,
            time_s=step.frame.time_s,
            room=len(self._shown) - len(self._objects),
            room_of_concept=self._room(),
        )
        self._remember(step, tracks, overlaps, detections, plan)
        self._end(step, plan)
        born = self._begin(step, detections, plan)
        if not step.again:
            self._planner.lifecycle.next_tick()
            self.schedule.looked(step.frame.time_s)
        self._changed.clear()
        return born

    def _looked_for(self, step: ConceptFrame) -> list[Concept]:
        changed = [concept for concept in self.table if concept.prompt.prompt_id in self._changed]
        if step.again:
            return changed
        due = self.schedule.is_due(step.frame.time_s)
        return list(self.table) if due or changed else []

    def _tracks(self, step: ConceptFrame, concepts: Sequence[Concept]) -> Tracks:
        """The concepts' objects in order of id, with their masks on this frame."""
        numbers = {concept.prompt.prompt_id: concept.number for concept in concepts}
        entries = [entry for entry in self._objects if entry.prompt_id in numbers]
        slots = [entry.slot for entry in entries]
        logits_mhw, scores_m = step.memory.current(slots, step.found)
        concepts_m = np.array([numbers[entry.prompt_id] for entry in entries], np.int64)
        return Tracks(self._clean(logits_mhw), scores_m, np.array(slots, np.int64), concepts_m)

    def _clean(self, logits_nhw: torch.Tensor) -> torch.Tensor:
        hole_area, sprinkle_area = self._areas
        if not len(logits_nhw):
            return logits_nhw
        return remove_sprinkles(fill_holes(logits_nhw, hole_area), sprinkle_area)

    def _detect(self, step: ConceptFrame, concepts: Sequence[Concept]) -> Detections:
        detector, thresholds = step.detector(), self._thresholds
        features = detector.features(step.features.trunk_1chw)
        prompts = [self.table.read(concept, detector, features, step.frame) for concept in concepts]
        wanted = [concept.prompt.score_threshold for concept in concepts]
        lows = [thresholds.score_threshold if low is None else min(low, thresholds.score_threshold) for low in wanted]
        found = detector.detect(features, prompts, lows, thresholds.nms_iou)
        counts = [len(candidates.scores_n) for candidates in found]
        return Detections(
            torch.cat([candidates.masks_nhw for candidates in found]),
            np.concatenate([candidates.scores_n for candidates in found]),
            np.repeat(np.array([concept.number for concept in concepts], np.int64), counts),
            np.repeat(np.array([thresholds.new_score if low is None else low for low in wanted]), counts),
        )

    def _room(self) -> dict[int, int]:
        """How many more objects those concepts may have that have a limit."""
        live = [entry.prompt_id for entry in self._objects]
        return {
            concept.number: max(0, concept.prompt.max_objects - live.count(concept.prompt.prompt_id))
            for concept in self.table
            if concept.prompt.max_objects is not None
        }

    def _remember(
        self, step: ConceptFrame, tracks: Tracks, overlaps: Overlaps, detections: Detections | None, plan: Plan
    ) -> None:
        """Suppress, confirm and remember the objects that propagation found and that live on."""
        if step.again:
            return
        suppressed_m = self._planner.suppress(tracks, overlaps)
        masks_mhw = tracks.masks_mhw.clone()
        masks_mhw[torch.from_numpy(suppressed_m).to(masks_mhw.device)] = NO_OBJECT_LOGIT
        if step.found is None:
            return
        remembered_mhw = without_the_swallowed(masks_mhw, tracks.concepts_m)
        row_of = {slot: row for row, slot in enumerate(step.found.slots)}
        gone = {*plan.rejected, *plan.ended}
        kept = [index for index, slot in enumerate(tracks.slots_m.tolist()) if slot in row_of and slot not in gone]
        slots = tracks.slots_m[kept].tolist()
        if not slots:
            return
        found = select(step.found, [row_of[slot] for slot in slots])
        confirmed_n = np.array([slot in plan.recondition for slot in slots], np.bool_)
        step.memory.remember(found, masks_mhw[kept], remembered_mhw[kept], confirmed_n)
        if plan.births and self._thresholds.remember_raw_on_birth:
            step.memory.remember_raw(select(found, np.flatnonzero(~confirmed_n).tolist()))
        if detections is not None and confirmed_n.any():
            rows = np.flatnonzero(confirmed_n)
            seen = [plan.recondition[slots[row]] for row in rows]
            step.memory.show([slots[row] for row in rows], detections.masks_nhw[seen], found.decoded.scores_n[rows])

    def _end(self, step: ConceptFrame, plan: Plan) -> None:
        entry_of = {entry.slot: entry for entry in self._objects}
        for slot in (*plan.rejected, *plan.ended):
            entry = entry_of[slot]
            first, last = self._shown[slot].tolist()
            if slot in plan.rejected and first >= 0:
                self._retracted.append(Retraction(entry.object_id, first, last))
            self._objects.remove(entry.object_id)
            step.memory.clear(slot)
            self.forget(slot)

    def _begin(self, step: ConceptFrame, detections: Detections, plan: Plan) -> Tracked | None:
        if not plan.births:
            return None
        births = list(plan.births)
        of_number = {concept.number: concept.prompt for concept in self.table}
        slots = []
        for concept in detections.concepts_n[births].tolist():
            prompt = of_number[concept]
            entry = self._objects.add(self._new_object_id(), prompt.prompt_id, prompt.label)
            self.forget(entry.slot)
            self._planner.lifecycle.start(entry.slot, step.frame.time_s)
            slots.append(entry.slot)
        masks_nhw = detections.masks_nhw[births]
        taken = step.memory.begin(slots, masks_nhw)
        scores_n = torch.from_numpy(detections.scores_n[births]).logit(eps=1e-6)
        step.memory.show(slots, self._clean(masks_nhw), scores_n)
        return taken

    # --- state

    def state(self) -> ConceptState:
        """What `undo` goes back to."""
        return ConceptState(
            lifecycle=self._planner.lifecycle.state(),
            schedule=self.schedule.state(),
            shown=self._shown.copy(),
            changed=frozenset(self._changed),
            object_ids=frozenset(entry.object_id for entry in self._objects),
        )

    def undo(self, state: ConceptState) -> list[ObjectEntry]:
        """Go back to before a frame that has to be stepped again; the objects born on it, which end."""
        self._planner.lifecycle.restore(state.lifecycle)
        self.schedule.restore(state.schedule)
        self._shown[:] = state.shown
        self._changed = set(state.changed)
        return [entry for entry in self._objects if entry.object_id not in state.object_ids]

    def snapshot(self) -> SessionState:
        """All state as plain arrays, their names starting with ``concept``."""
        arrays = {f"concept_lifecycle_{name}": value for name, value in self._planner.lifecycle.state().items()}
        arrays["concept_schedule"] = np.array(self.schedule.state())
        arrays["concept_shown"] = self._shown.copy()
        return {**arrays, **write_concepts(self.table)}

    def restore(self, state: SessionState, device: torch.device) -> None:
        """Become the concepts that gave this `snapshot`; none when there were none."""
        self._shown[:] = -1
        self._changed = set()
        self.table.restore(read_concepts(state, device))
        if "concept_schedule" not in state:
            return
        prefix = "concept_lifecycle_"
        lifecycle = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        self._planner.lifecycle.restore(lifecycle)
        frames, last_s, due_s = state["concept_schedule"].tolist()
        self.schedule.restore((frames, last_s, due_s))
        count = min(len(self._shown), len(state["concept_shown"]))
        self._shown[:count] = state["concept_shown"][:count]

    # --- what a user sees of it

    def is_listed(self, entry: ObjectEntry) -> bool:
        """Whether an object is in the results: not while it waits for its probation to pass, if so configured."""
        return entry.prompt_id not in self.table or self._planner.lifecycle.is_shown(entry.slot)

    def is_hidden(self, entry: ObjectEntry) -> bool:
        """Whether an object is reported absent whatever its mask, because nothing has confirmed it for long."""
        return entry.prompt_id in self.table and self._planner.lifecycle.is_hidden(entry.slot)

    def shown(self, slots: Sequence[int], sequence: int) -> tuple[Retraction, ...]:
        """Note that a frame shows the objects in these slots; what it takes back."""
        index = np.array(slots, np.int64)
        self._shown[index, 1] = sequence
        new = index[self._shown[index, 0] < 0]
        self._shown[new, 0] = sequence
        retracted, self._retracted = tuple(self._retracted), []
        return retracted
