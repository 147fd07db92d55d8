"""Masks for frames that the model does not see: moved along with the picture, or held as they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import Frame, ImageArray, MaskArray, TrackedFrame, TrackedObject

CarryMode = Literal["propagated", "held"]

_FLOW_SIDE = 256  # pixels of the longer side of the pictures that the flow is computed on

FlowArray = npt.NDArray[np.float32]


class MaskCarrier:
    """Carries the masks of the latest tracked frame to the frames after it.

    ``propagated`` follows the picture by DIS optical flow (Kroeger et al., Fast Optical Flow using Dense Inverse
    Search, ECCV 2016) on small grey pictures, from frame to frame. The flows are chained and the model's own masks are
    moved once, so that they do not wear out from frame to frame. ``held`` leaves the masks where they were.

    `benchmarks/propagation.py` says what that costs and how much better it is.
    """

    def __init__(self, mode: CarryMode = "propagated") -> None:
        self._mode = mode
        self._tracked: TrackedFrame | None = None
        self._age = 0
        self._grey: ImageArray | None = None
        self._flow: FlowArray | None = None  # from the present frame back to the tracked one
        self._flow_engine = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
        self._flow_engine.setFinestScale(0)  # coarser flow lets the outline go with the background
        self._flow_engine.setPatchStride(5)  # the preset's 4 is no better on DAVIS and takes half as long again

    @property
    def ready(self) -> bool:
        """Whether there are masks to carry."""
        return self._tracked is not None

    @property
    def age(self) -> int:
        """To how many frames the masks have been carried."""
        return self._age

    def start(self, tracked: TrackedFrame) -> None:
        """Remember what the model made. Costs nothing until a frame is carried."""
        self._tracked = tracked
        self._age = 0
        self._grey = self._flow = None

    def carry(self, frame: Frame) -> TrackedFrame:
        """The objects of the latest tracked frame on a later one; frames come in order.

        A frame of another size than the tracked one (a source that changed) gets its objects as absent.

        Raises:
            RuntimeError: There are no masks yet.
        """
        if self._tracked is None:
            raise RuntimeError("no tracked frame to carry masks from; call start first")
        self._age += 1
        tracked = self._tracked
        same_size = (frame.width, frame.height) == (tracked.frame.width, tracked.frame.height)
        if not same_size:
            objects = tuple(_absent(tracked_object, frame) for tracked_object in tracked.objects)
        elif self._mode == "propagated" and tracked.present:
            objects = self._moved(tracked, frame)
        else:
            objects = tracked.objects
        return TrackedFrame(frame, objects, state=self._mode, resolution=None, mask_age=self._age)

    def _moved(self, tracked: TrackedFrame, frame: Frame) -> tuple[TrackedObject, ...]:
        before = small_grey(tracked.frame) if self._grey is None else self._grey
        self._grey = small_grey(frame)
        step: FlowArray = self._flow_engine.calc(self._grey, before, None)
        self._flow = step if self._flow is None else step + _sample(self._flow, step)
        masks = iter(_warp([item.mask for item in tracked.present], self._flow))
        return tuple(replace(item, mask=next(masks)) if item.present else item for item in tracked.objects)


def small_grey(frame: Frame, side: int = _FLOW_SIDE) -> ImageArray:
    """A frame for optical flow: uint8 (h, w), its longer side at most `side` pixels."""
    scale = min(1.0, side / max(frame.width, frame.height))
    # the flow needs room for its patches, however narrow the picture is
    size = (max(32, round(frame.width * scale)), max(32, round(frame.height * scale)))
    return np.asarray(cv2.cvtColor(frame.picture.to_ndarray("bgr24", size), cv2.COLOR_BGR2GRAY), dtype=np.uint8)


def _sample(values_hw2: FlowArray, flow_hw2: FlowArray) -> FlowArray:
    """`values_hw2` at where the flow points to."""
    x, y = _targets(flow_hw2)
    return np.asarray(cv2.remap(values_hw2, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), dtype=np.float32)


def _targets(flow_hw2: FlowArray) -> tuple[FlowArray, FlowArray]:
    height, width = flow_hw2.shape[:2]
    x = flow_hw2[..., 0] + np.arange(width, dtype=np.float32)[None, :]
    y = flow_hw2[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    return x, y


def _warp(masks: Sequence[MaskArray], flow_hw2: FlowArray) -> list[MaskArray]:
    """Masks at display size moved by a small picture's flow."""
    height, width = masks[0].shape
    scale = np.array([width / flow_hw2.shape[1], height / flow_hw2.shape[0]], dtype=np.float32)
    x, y = _targets(np.asarray(cv2.resize(flow_hw2 * scale, (width, height)), dtype=np.float32))
    return [cv2.remap(mask.view(np.uint8), x, y, cv2.INTER_NEAREST).view(np.bool_) for mask in masks]


def _absent(tracked_object: TrackedObject, frame: Frame) -> TrackedObject:
    return replace(tracked_object, mask=np.zeros((frame.height, frame.width), np.bool_), present=False)
