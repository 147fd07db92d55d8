"""What `Concepts` is given of a frame, and what it goes back to when the frame has to be stepped again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sam3_stream.core.records import Frame
from sam3_stream.models.protocols import SessionState
from sam3_stream.models.sam3.concept_memory import ConceptMemory
from sam3_stream.models.sam3.detector import Detector
from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.tracker import Tracked


@dataclass(frozen=True, slots=True, eq=False)
class ConceptFrame:
    """A frame as the session hands it over.

    Attributes:
        frame: The frame.
        features: Its features.
        memory: Writes memories of this frame.
        detector: Gives the detector, loaded if need be.
        found: What propagation gave for the concepts' objects; None for none.
        settled: Slots of concept objects that the user corrected on this frame: they are as the user wants them.
        again: Whether the frame was stepped before: then only concepts that are new are looked for.
    """

    frame: Frame
    features: Sam3Features
    memory: ConceptMemory
    detector: Callable[[], Detector]
    found: Tracked | None
    settled: tuple[int, ...] = ()
    again: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ConceptState:
    """What `Concepts.undo` goes back to."""

    lifecycle: SessionState
    schedule: tuple[float, float, float]
    shown: npt.NDArray[np.int64]
    changed: frozenset[str]
    object_ids: frozenset[int]
