"""`transformers`' own click tracker, driven as its processor drives it, as the measure of ours.

What its sessions do is taken as it is. Two things they lack are added from outside, out of the model's own methods:
clicks on an object that is tracked already are decoded together with the mask that it has on that frame
(`prev_sam_mask_logits`, which the session never passes), and the frame then conditions the object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import Sam2VideoVideoProcessor, Sam3TrackerVideoModel, Sam3TrackerVideoProcessor
from transformers.models.sam3.image_processing_sam3 import Sam3ImageProcessor
from transformers.models.sam3_tracker_video.modeling_sam3_tracker_video import Sam3TrackerVideoInferenceSession

from sam3_stream.core.prompts import ObjectPrompt


@dataclass(frozen=True)
class Found:
    """One object on one frame: mask logits (h, w), presence logit, predicted IoU, and the chosen proposal (1 to 3)."""

    logits: torch.Tensor
    score: float
    iou: float
    choice: int | None


class Oracle:
    """A reference tracker and its session."""

    def __init__(self, tracker: Sam3TrackerVideoModel) -> None:
        self.tracker = tracker
        self.resolution = tracker.image_size
        self.dtype = next(tracker.parameters()).dtype
        self.session = Sam3TrackerVideoInferenceSession(dtype=self.dtype)
        self.images = Sam3ImageProcessor(size={"height": self.resolution, "width": self.resolution})
        self.processor = Sam3TrackerVideoProcessor(self.images, Sam2VideoVideoProcessor(), target_size=self.resolution)
        self.frame = -1
        self._decoded: dict[int, tuple[float, int | None]] = {}

    def step(self, picture: np.ndarray, prompts: Sequence[ObjectPrompt] = ()) -> dict[int, Found]:
        """Track the next frame; all live objects by id."""
        self.frame += 1
        pixels = self.images(torch.from_numpy(picture).permute(2, 0, 1), return_tensors="pt").pixel_values[0]
        height, width = picture.shape[:2]
        refined = [prompt for prompt in prompts if self._refines(prompt)]
        self._add([prompt for prompt in prompts if prompt not in refined], (height, width))
        with self._recorded():
            if not self.session.obj_ids:
                self.session.add_new_frame(pixels.to(self.dtype), self.frame)
                return {}
            out = self.tracker(self.session, frame=pixels.to(self.dtype))
            if refined:
                for prompt in refined:
                    self._forget_absent(prompt)
                self._add(refined, (height, width))
                out = self.tracker(self.session, frame=pixels.to(self.dtype), frame_idx=self.frame)
                for prompt in refined:
                    self._make_conditioning(prompt)
        return {
            object_id: Found(out.pred_masks[row, 0], float(out.object_score_logits[row]), *self._decoded[row])
            for row, object_id in enumerate(out.object_ids)
        }

    def _refines(self, prompt: ObjectPrompt) -> bool:
        return prompt.object_id in self.session.obj_ids and prompt.box_xyxy is None and prompt.mask is None

    def _add(self, prompts: Sequence[ObjectPrompt], size: tuple[int, int]) -> None:
        for prompt in prompts:
            inputs: dict[str, Any] = {}
            if prompt.mask is not None:
                inputs["input_masks"] = [prompt.mask]
            if len(prompt.points_n2):
                inputs["input_points"] = [[prompt.points_n2.tolist()]]
                inputs["input_labels"] = [[prompt.positive_n.astype(int).tolist()]]
            if prompt.box_xyxy is not None:
                inputs["input_boxes"] = [[list(prompt.box_xyxy)]]
            self.processor.add_inputs_to_inference_session(
                self.session, self.frame, prompt.object_id, original_size=size, **inputs
            )
        self.session.obj_with_new_inputs = [prompt.object_id for prompt in prompts]

    def _outputs(self, prompt: ObjectPrompt) -> dict[str, dict[int, dict[str, torch.Tensor]]]:
        return self.session.output_dict_per_obj[self.session.obj_id_to_idx(prompt.object_id)]

    def _forget_absent(self, prompt: ObjectPrompt) -> None:
        """An object that was not found on this frame starts afresh from positive clicks."""
        found = self._outputs(prompt)["non_cond_frame_outputs"]
        if prompt.positive_n.any() and float(found[self.frame]["object_score_logits"]) <= 0:
            del found[self.frame]
            del self.session.frames_tracked_per_obj[self.session.obj_id_to_idx(prompt.object_id)][self.frame]

    def _make_conditioning(self, prompt: ObjectPrompt) -> None:
        outputs = self._outputs(prompt)
        if self.frame in outputs["non_cond_frame_outputs"]:
            moved = outputs["non_cond_frame_outputs"].pop(self.frame)
            outputs["cond_frame_outputs"][self.frame] = moved

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Note what the decoder chose for each object, and pass the mask on to clicks that refine it."""
        run_frame, run_decoder = self.tracker._run_single_frame_inference, self.tracker._single_frame_forward
        last: dict[str, Any] = {}

        def decoder(**inputs: Any) -> Any:
            out = run_decoder(**inputs)
            multimask = inputs.get("multimask_output", True)
            ious = out.iou_scores[0, 0]
            last["choice"] = (float(ious.max()), int(ious.argmax()) + 1 if multimask else None)
            return out

        def frame(**inputs: Any) -> Any:
            found = self.session.output_dict_per_obj[inputs["obj_idx"]]["non_cond_frame_outputs"].get(self.frame)
            if inputs["point_inputs"] is not None and found is not None and float(found["object_score_logits"]) > 0:
                inputs["prev_sam_mask_logits"] = found["pred_masks"].clamp(-32.0, 32.0)
            out = run_frame(**inputs)
            self._decoded[inputs["obj_idx"]] = last["choice"] if inputs["mask_inputs"] is None else (1.0, None)
            return out

        self.tracker._run_single_frame_inference, self.tracker._single_frame_forward = frame, decoder
        try:
            yield
        finally:
            del self.tracker._run_single_frame_inference, self.tracker._single_frame_forward
