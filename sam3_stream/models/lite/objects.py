"""One tracked object: everything the lite model remembers of it."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from sam3_stream.models.lite.backbone import FloatArray
from sam3_stream.models.lite.features import FrameView
from sam3_stream.models.lite.presence import Appearance
from sam3_stream.models.lite.ridge import RidgeMemory

CORRECTION_RATE = 0.9


@dataclass(slots=True, eq=False)
class LiteObject:
    """State of one object; its size never changes.

    Attributes:
        object_id: Public id.
        prompt_id: Id of the prompt that made it.
        label: What to call it.
        memory: What its classifier has learnt from.
        classifier: Weights of the classifier, float32 (rows,).
        appearance: How to tell that it is there.
        probability: The last mask on the stride-4 grid, float32 (h, w), 0 to 1; all 0 while absent.
        present: Whether it is in the picture.
        score: Confidence, 0 to 1.
    """

    object_id: int
    prompt_id: str
    label: str
    memory: RidgeMemory
    classifier: FloatArray
    appearance: Appearance
    probability: FloatArray
    present: bool = True
    score: float = 1.0

    @classmethod
    def start(cls, object_id: int, prompt_id: str, label: str, view: FrameView, probability: FloatArray) -> LiteObject:
        memory = RidgeMemory.of(view.rows, probability)
        appearance = Appearance.of(view.levels, probability)
        return cls(object_id, prompt_id, label, memory, memory.solve(), appearance, probability)

    def correct(self, view: FrameView, probability: FloatArray) -> None:
        """Take over a mask that the user said or approved."""
        before = self.probability if self.present else None
        self.memory.correct(view.rows, probability, CORRECTION_RATE, before)
        self.classifier = self.memory.solve()
        self.appearance = Appearance.of(view.levels, probability)
        self.probability, self.present, self.score = probability, True, 1.0

    def learn(self, view: FrameView, probability: FloatArray, rate: float) -> None:
        """Learn from a tracked mask."""
        self.memory.learn(view.rows, probability, rate)
        self.classifier = self.memory.solve()

    def lose(self) -> None:
        """Note that it is not in the picture; what it looks like is kept."""
        self.present, self.score = False, 0.0
        self.probability = np.zeros_like(self.probability)

    def fit_grid(self, shape: tuple[int, int]) -> None:
        """Carry the last mask over to a grid of another size."""
        if self.probability.shape != shape:
            self.probability = np.asarray(cv2.resize(self.probability, shape[::-1]), np.float32)
