"""The memory of one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import cv2
import numpy as np

from sam3_stream.core.errors import CapacityError, PromptError
from sam3_stream.core.prompts import ConceptPrompt, ObjectPrompt, SessionPrompt
from sam3_stream.core.records import EncodedFrame, Frame, MaskArray, TrackedFrame, TrackedObject
from sam3_stream.models.lite.backbone import Backbone, FloatArray
from sam3_stream.models.lite.features import FourierColour, FrameView, LiteFeatures, Standardisation
from sam3_stream.models.lite.objects import LiteObject
from sam3_stream.models.lite.presence import IDENTITY_DOUBTFUL, is_scene_cut, mask_descriptor
from sam3_stream.models.lite.prompts.box_mask import mask_from_box
from sam3_stream.models.lite.prompts.click_mask import mask_from_clicks
from sam3_stream.models.lite.prompts.concept import MOST_REGIONS, PARTS, SCORE_THRESHOLD, Concept, find_concept
from sam3_stream.models.lite.prompts.fit import Clicks, log_odds
from sam3_stream.models.lite.snapshot import pack_concepts, pack_objects, unpack_concepts, unpack_objects
from sam3_stream.models.lite.tracking import compete, search_probability, tracked_log_odds
from sam3_stream.models.lite.vocabulary import check_concept, classes_of
from sam3_stream.models.protocols import SessionState

LEARN_EVERY = 4
LEARN_RATE = 0.08
SEARCH_EVERY = 8  # until a phrase has found something: to look on would sooner or later find what is not there


class LiteSession:
    """Tracks the objects of one stream. See `sam3_stream.models.protocols.TrackingSession`.

    Args:
        backbone: The model's network, for closer looks at what a box or a phrase means.
        colour: The model's colour features.
        new_object_id: Gives the next public id.
        capacity: How many objects there is room for.
    """

    def __init__(
        self, backbone: Backbone, colour: FourierColour, new_object_id: Callable[[], int], capacity: int
    ) -> None:
        self._backbone = backbone
        self._colour = colour
        self._new_object_id = new_object_id
        self._capacity = capacity
        self._objects: dict[int, LiteObject] = {}
        self._concepts: dict[str, Concept] = {}
        self._standardisation: Standardisation | None = None
        self._last_level: FloatArray | None = None
        self._steps = 0
        self._elapsed = 1  # frames since the step before

    def step(self, encoded: EncodedFrame, prompts: Sequence[SessionPrompt] = ()) -> TrackedFrame:
        """Track every object on this frame and apply the prompts to it."""
        self._check(encoded.frame, prompts)
        features: LiteFeatures = encoded.features
        if not self._objects:
            self._standardisation = Standardisation.of(features) if prompts or self._concepts else None
        if self._standardisation is None:
            return TrackedFrame(encoded.frame, resolution=encoded.resolution)
        view = FrameView(features, self._standardisation, self._colour)
        masks = self._track(view, encoded.frame)
        for prompt in prompts:
            if isinstance(prompt, ObjectPrompt):
                masks[prompt.object_id] = self._apply(prompt, view, encoded.frame)
            else:
                self._look_for(prompt)
        asked = {prompt.prompt_id for prompt in prompts}
        for concept in self._concepts.values():
            due = self._steps % SEARCH_EVERY < self._elapsed and not self._objects_of(concept.prompt_id)
            if concept.prompt_id in asked:
                masks |= self._search(concept, view, encoded.frame, range(PARTS))
            elif due:  # what is small in the picture is found after as many looks as there are parts, at most
                masks |= self._search(concept, view, encoded.frame, [self._steps // SEARCH_EVERY % PARTS])
        self._last_level = view.levels[-1]
        self._steps += self._elapsed
        self._elapsed = 1
        return TrackedFrame(encoded.frame, self._results(masks, encoded.frame), resolution=encoded.resolution)

    def move(self, carried: TrackedFrame) -> None:
        """See `protocols.SkipsFrames.move`: the moved masks are the prior of the next step, which learns for all."""
        self._elapsed = carried.mask_age
        if carried.state != "propagated":
            return
        for moved in carried.present:
            tracked = self._objects.get(moved.object_id)
            if tracked is not None and tracked.present:
                height, width = tracked.probability.shape
                mask = cv2.resize(moved.mask.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA)
                tracked.probability = np.asarray(mask, np.float32)

    def remove(self, object_id: int) -> None:
        """Forget an object; with the last object of a phrase, the phrase."""
        removed = self._objects.pop(object_id, None)
        if removed is not None and not self._objects_of(removed.prompt_id):
            self._concepts.pop(removed.prompt_id, None)  # nobody wants a phrase's last object back that was removed

    def remove_prompt(self, prompt_id: str) -> None:
        """Look no more for a phrase, and forget the objects found."""
        self._concepts.pop(prompt_id, None)
        for object_id in self._objects_of(prompt_id):
            del self._objects[object_id]

    def snapshot(self) -> SessionState:
        """All state as plain arrays."""
        state: SessionState = {"steps": np.array(self._steps), **pack_objects(self._objects.values())}
        state |= pack_concepts(self._concepts.values())
        if self._standardisation is not None:
            state["mean_c"] = self._standardisation.mean_c.copy()
            state["inverse_std_c"] = self._standardisation.inverse_std_c.copy()
        if self._last_level is not None:
            state["last_level"] = self._last_level.copy()
        return state

    def restore(self, state: SessionState) -> None:
        """Become the session that made this snapshot."""
        self._steps = int(state["steps"])
        self._objects = {tracked.object_id: tracked for tracked in unpack_objects(state)}
        self._concepts = {concept.prompt_id: concept for concept in unpack_concepts(state)}
        self._standardisation = self._last_level = None
        if "mean_c" in state:
            mean_c, inverse_std_c = (np.array(state[name], np.float32) for name in ("mean_c", "inverse_std_c"))
            self._standardisation = Standardisation(mean_c, inverse_std_c)
        if "last_level" in state:
            self._last_level = np.array(state["last_level"], np.float32)

    def close(self) -> None:
        """Forget everything."""
        self._objects.clear()
        self._concepts.clear()
        self._standardisation = self._last_level = None

    def _check(self, frame: Frame, prompts: Sequence[SessionPrompt]) -> None:
        """Refuse what cannot be done before anything is changed."""
        new = set()
        for prompt in prompts:
            if isinstance(prompt, ConceptPrompt):
                check_concept(prompt.text, exemplars=bool(prompt.exemplar_boxes_xyxy))
                continue
            known = prompt.object_id in self._objects
            if not known:
                new.add(prompt.object_id)
            if prompt.mask is not None and prompt.mask.shape != (frame.height, frame.width):
                raise PromptError(
                    f"the mask of {prompt.label} is {prompt.mask.shape[1]}x{prompt.mask.shape[0]}, "
                    f"the picture is {frame.width}x{frame.height}; they must have the same size"
                )
            says_where = prompt.mask is not None or prompt.box_xyxy is not None or prompt.positive_n.any()
            if not says_where and not known:
                raise PromptError(f"{prompt.label} has only negative clicks: at least one click must be on the object")
        if len(self._objects) + len(new) > self._capacity:
            raise CapacityError(
                f"there is room for {self._capacity} objects, {len(self._objects)} are tracked and "
                f"{len(new)} more are asked for; remove some first"
            )

    def _apply(self, prompt: ObjectPrompt, view: FrameView, frame: Frame) -> MaskArray:
        """Start or correct an object; returns its mask at the displayed size."""
        tracked = self._objects.get(prompt.object_id)
        current = tracked.probability if tracked is not None and tracked.present else None
        mask = self._mask_of(prompt, view, frame, current)
        probability = _to_grid(mask, view)
        if tracked is None:
            self._objects[prompt.object_id] = LiteObject.start(
                prompt.object_id, prompt.prompt_id, prompt.label, view, probability
            )
        else:
            tracked.correct(view, probability)
        return mask

    def _look_for(self, prompt: ConceptPrompt) -> None:
        """Start to look for a phrase; it replaces the one of the same prompt."""
        for object_id in self._objects_of(prompt.prompt_id):
            self.remove(object_id)
        threshold = SCORE_THRESHOLD if prompt.score_threshold is None else prompt.score_threshold
        self._concepts[prompt.prompt_id] = Concept(
            prompt.prompt_id,
            prompt.text,
            prompt.label,
            classes_of(prompt.text),
            threshold,
            prompt.max_objects or MOST_REGIONS,
        )

    def _search(self, concept: Concept, view: FrameView, frame: Frame, parts: Iterable[int]) -> dict[int, MaskArray]:
        """Start an object for everything that a phrase names and that is not tracked yet; returns their masks."""
        room = min(concept.max_objects - len(self._objects_of(concept.prompt_id)), self._capacity - len(self._objects))
        if room <= 0:
            return {}
        taken = np.zeros(view.grid_shape, np.bool_)
        for tracked in self._objects.values():
            taken |= tracked.probability > 0.5
        masks = {}
        for finding in find_concept(concept, self._backbone, self._colour, view, frame.picture, taken, parts)[:room]:
            object_id = self._new_object_id()
            probability = _to_grid(finding.mask, view)
            tracked = LiteObject.start(object_id, concept.prompt_id, concept.label, view, probability)
            tracked.score = finding.score
            self._objects[object_id] = tracked
            masks[object_id] = finding.mask
        return masks

    def _objects_of(self, prompt_id: str) -> list[int]:
        return [tracked.object_id for tracked in self._objects.values() if tracked.prompt_id == prompt_id]

    def _mask_of(self, prompt: ObjectPrompt, view: FrameView, frame: Frame, current: FloatArray | None) -> MaskArray:
        clicks = Clicks(prompt.points_n2, prompt.positive_n)
        if prompt.mask is not None and not len(clicks.positive_n):
            return prompt.mask
        if prompt.mask is not None:
            return mask_from_clicks(view, frame.picture, clicks, _to_grid(prompt.mask, view))
        if prompt.box_xyxy is not None:
            return mask_from_box(self._backbone, self._colour, frame.picture, prompt.box_xyxy, clicks)
        return mask_from_clicks(view, frame.picture, clicks, current)

    def _track(self, view: FrameView, frame: Frame) -> dict[int, MaskArray]:
        """Find the objects on the next frame; returns the masks of the present ones at the displayed size."""
        objects = list(self._objects.values())
        if not objects:
            return {}
        if is_scene_cut(view.levels[-1], self._last_level):
            for tracked in objects:
                tracked.lose()
        for tracked in objects:
            tracked.fit_grid(view.grid_shape)
        classifiers = np.stack([tracked.classifier for tracked in objects])
        scores_nhw = view.scores(classifiers)
        odds: dict[int, FloatArray] = {}
        for tracked, score in zip(objects, scores_nhw, strict=True):
            if tracked.present:
                odds[tracked.object_id] = tracked_log_odds(score, tracked.probability)
            elif (found := tracked.appearance.find(view.levels, search_probability(score))) is not None:
                odds[tracked.object_id] = log_odds(found, 1e-3)
        if not odds:
            return {}
        probabilities = compete(np.stack(list(odds.values())))
        fine = {
            object_id: self._settle(self._objects[object_id], view, probability)
            for object_id, probability in zip(odds, probabilities, strict=True)
        }
        return _exclusive_masks({key: mask for key, mask in fine.items() if mask is not None}, frame)

    def _settle(self, tracked: LiteObject, view: FrameView, probability: FloatArray) -> FloatArray | None:
        """Snap an object's mask to the edges, decide whether it is the object still, and learn from it.

        Returns:
            The mask at the fine size, float32 (h, w), or None when the object is not there.
        """
        model = view.edges.fit(probability)
        probability = model.apply(view.features.grid_rgb)
        descriptor = mask_descriptor(view.levels, probability)
        likeness = tracked.appearance.identity_of(descriptor)
        if not tracked.appearance.is_there(probability, likeness):
            tracked.lose()
            return None
        tracked.probability, tracked.present = probability, True
        tracked.score = float(probability[probability > 0.5].mean())
        if likeness >= IDENTITY_DOUBTFUL:
            tracked.appearance.update(descriptor, probability)
            if (self._steps + tracked.object_id) % LEARN_EVERY < self._elapsed:
                tracked.learn(view, probability, LEARN_RATE)
        return model.upsample(probability, view.features.fine_rgb)

    def _results(self, masks: dict[int, MaskArray], frame: Frame) -> tuple[TrackedObject, ...]:
        empty = np.zeros((frame.height, frame.width), np.bool_)
        results = []
        for object_id in sorted(self._objects):
            tracked = self._objects[object_id]
            mask = masks.get(object_id, empty) if tracked.present else empty
            results.append(
                TrackedObject(object_id, tracked.prompt_id, tracked.label, tracked.score, mask, tracked.present)
            )
        return tuple(results)


def _to_grid(mask: MaskArray, view: FrameView) -> FloatArray:
    """How much of every cell a mask at the displayed size covers: float32 (h, w), 0 to 1."""
    size = view.grid_shape[::-1]
    return np.asarray(cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA), np.float32)


def _exclusive_masks(fine: dict[int, FloatArray], frame: Frame) -> dict[int, MaskArray]:
    """Masks at the displayed size; a pixel belongs to the object that is most likely there."""
    size = frame.width, frame.height
    best = np.full((frame.height, frame.width), 0.5, np.float32)
    owner = np.zeros((frame.height, frame.width), np.int32)
    for object_id, probability in fine.items():
        if probability.shape != best.shape:
            probability = np.asarray(cv2.resize(probability, size), np.float32)
        wins = probability > best
        owner[wins] = object_id
        np.maximum(best, probability, out=best)
    return {object_id: owner == object_id for object_id in fine}
