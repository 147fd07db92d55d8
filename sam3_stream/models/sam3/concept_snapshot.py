"""A session's concepts as plain arrays, and back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from sam3_stream.core.prompts import ConceptPrompt
from sam3_stream.models.protocols import SessionState
from sam3_stream.models.sam3.concept_table import Concept
from sam3_stream.models.sam3.detector import PromptFeatures
from sam3_stream.models.sam3.text_encoder import TextFeatures


def write_concepts(concepts: Iterable[Concept]) -> SessionState:
    """Concepts, their features included, as arrays whose names start with ``concept``."""
    entries = list(concepts)
    prompts = [concept.prompt for concept in entries]
    state: SessionState = {
        "concept_ids": np.array([prompt.prompt_id for prompt in prompts], np.str_),
        "concept_texts": np.array([prompt.text for prompt in prompts], np.str_),
        "concept_labels": np.array([prompt.label for prompt in prompts], np.str_),
        "concept_numbers": np.array([concept.number for concept in entries], np.int64),
        "concept_thresholds": np.array([_or(prompt.score_threshold, np.nan) for prompt in prompts], np.float64),
        "concept_limits": np.array([_or(prompt.max_objects, -1) for prompt in prompts], np.int64),
    }
    for index, concept in enumerate(entries):
        state[f"concept_{index}_boxes"] = np.array(concept.prompt.exemplar_boxes_xyxy, np.float64).reshape(-1, 4)
        state[f"concept_{index}_positive"] = np.array(concept.prompt.exemplar_positive, np.bool_)
        state[f"concept_{index}_text_tokens"] = concept.text.tokens_lc.cpu().numpy().copy()
        state[f"concept_{index}_text_valid"] = concept.text.valid_l.cpu().numpy().copy()
        if concept.features is not None:
            state[f"concept_{index}_tokens"] = concept.features.tokens_lc.cpu().numpy().copy()
            state[f"concept_{index}_valid"] = concept.features.valid_l.cpu().numpy().copy()
    return state


def read_concepts(state: SessionState, device: torch.device) -> list[Concept]:
    """The concepts of a snapshot; none when it was taken without."""
    return [_read(state, index, device) for index in range(len(state.get("concept_ids", ())))]


def _read(state: SessionState, index: int, device: torch.device) -> Concept:
    threshold, limit = float(state["concept_thresholds"][index]), int(state["concept_limits"][index])
    boxes = state[f"concept_{index}_boxes"].tolist()
    prompt = ConceptPrompt(
        prompt_id=str(state["concept_ids"][index]),
        text=str(state["concept_texts"][index]),
        label=str(state["concept_labels"][index]),
        exemplar_boxes_xyxy=tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in boxes),
        exemplar_positive=tuple(state[f"concept_{index}_positive"].tolist()),
        score_threshold=None if np.isnan(threshold) else threshold,
        max_objects=None if limit < 0 else limit,
    )
    text = TextFeatures(
        torch.from_numpy(state[f"concept_{index}_text_tokens"]), torch.from_numpy(state[f"concept_{index}_text_valid"])
    )
    features = None
    if f"concept_{index}_tokens" in state:
        features = PromptFeatures(
            torch.from_numpy(state[f"concept_{index}_tokens"]).to(device),
            torch.from_numpy(state[f"concept_{index}_valid"]).to(device),
        )
    return Concept(prompt, int(state["concept_numbers"][index]), text, features)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
