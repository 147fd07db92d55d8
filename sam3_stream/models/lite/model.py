"""The lite model: what a laptop without a GPU and without a download tracks with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cv2
import numpy as np

from sam3_stream.core.prompts import ExemplarPrompt, Prompt, TextPrompt
from sam3_stream.core.records import EncodedFrame, Frame
from sam3_stream.models.lite.backbone import TAP_CHANNELS, Backbone
from sam3_stream.models.lite.features import FourierColour, LiteFeatures, encode_picture
from sam3_stream.models.lite.prompts.closer_look import working_size
from sam3_stream.models.lite.session import LiteSession
from sam3_stream.models.lite.vocabulary import check_concept
from sam3_stream.models.protocols import FeatureArrays, Resolution

WORKING_AREA = 448 * 256
FINE_AREA = 896 * 512
LADDER = (1.0, 0.86, 0.72, 0.58)  # scales of both sides: 448x256, 384x224, 320x192, 256x160 for 16:9


class LiteModel:
    """Promptable video object segmentation on a CPU; implements `sam3_stream.models.protocols.VideoModel`.

    Args:
        resolution_scale: Scale of both sides of the picture that the network sees; 1 is about 448x256 pixels.
        capacity: Objects that a session has room for.
        seed: Seed of the random colour features.
        threads: Threads of the network; 0 takes one a core. Encoding and tracking run side by side in a pipeline, so
            one leaves room for the other stages.

    Raises:
        ModelError: The weights are missing or damaged.
    """

    def __init__(self, *, resolution_scale: float = 1.0, capacity: int = 64, seed: int = 0, threads: int = 1) -> None:
        self.resolution_scale = resolution_scale
        self._capacity = capacity
        self._colour = FourierColour(seed)
        self._backbone = Backbone(threads)

    @property
    def name(self) -> str:
        """Name for headers and logs."""
        return "lite"

    def check_prompt(self, prompt: Prompt) -> None:
        """Raise `PromptError` when the model can never use the prompt: a phrase outside ImageNet's vocabulary, …"""
        if isinstance(prompt, TextPrompt | ExemplarPrompt):
            check_concept(prompt.text, exemplars=isinstance(prompt, ExemplarPrompt))

    def resolutions(self, width: int, height: int) -> tuple[Resolution, ...]:
        """See `VideoModel.resolutions`."""
        areas = (WORKING_AREA * (self.resolution_scale * scale) ** 2 for scale in LADDER)
        return tuple(dict.fromkeys(working_size(width, height, area) for area in areas))

    def encode(self, frames: Sequence[Frame], resolution: Resolution | None = None) -> list[EncodedFrame]:
        """Encode frames, one by one: a frame's features do not depend on the batch it came in.

        Args:
            frames: The frames.
            resolution: (width, height) in multiples of 32 pixels, instead of the model's own.
        """
        return [self._encode(frame, resolution or self.resolutions(frame.width, frame.height)[0]) for frame in frames]

    def features_to_arrays(self, features: LiteFeatures) -> FeatureArrays:
        """The features as arrays, for `PortableFeatures`."""
        levels: FeatureArrays = {f"level{index}_hwc": level for index, level in enumerate(features.levels_hwc)}
        return levels | {"grid_rgb": features.grid_rgb, "fine_rgb": features.fine_rgb}

    def features_from_arrays(self, arrays: FeatureArrays) -> LiteFeatures:
        """The features of such arrays."""
        levels = tuple(np.asarray(arrays[f"level{index}_hwc"], np.float32) for index in range(len(TAP_CHANNELS)))
        if any(level.shape[2:] != (channels,) for level, channels in zip(levels, TAP_CHANNELS, strict=True)):
            raise ValueError(f"expected levels of {TAP_CHANNELS} channels, got {[level.shape for level in levels]}")
        grid_rgb, fine_rgb = np.asarray(arrays["grid_rgb"], np.float32), np.asarray(arrays["fine_rgb"], np.uint8)
        if grid_rgb.shape != (*levels[0].shape[:2], 3) or fine_rgb.shape[2:] != (3,):
            raise ValueError(f"pictures of shape {grid_rgb.shape} and {fine_rgb.shape} do not go with the levels")
        return LiteFeatures(levels, grid_rgb, fine_rgb)

    def open_session(self, new_object_id: Callable[[], int], max_objects: int | None = None) -> LiteSession:
        """See `VideoModel.open_session`."""
        capacity = min(self._capacity, max_objects or self._capacity)
        return LiteSession(self._backbone, self._colour, new_object_id, capacity)

    def close(self) -> None:
        """Nothing to free but memory."""

    def _encode(self, frame: Frame, size: Resolution) -> EncodedFrame:
        shrink = min(1.0, (FINE_AREA / (frame.width * frame.height)) ** 0.5)
        fine_size = max(1, round(frame.width * shrink)), max(1, round(frame.height * shrink))
        fine_rgb = frame.picture.to_ndarray("rgb24", size=fine_size)
        working_rgb = np.asarray(cv2.resize(fine_rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
        return EncodedFrame(frame, encode_picture(self._backbone, working_rgb, fine_rgb), size)
