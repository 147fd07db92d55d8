"""Objects and phrases as plain arrays and back, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from sam3_stream.models.lite.objects import LiteObject
from sam3_stream.models.lite.presence import Appearance
from sam3_stream.models.lite.prompts.concept import Concept
from sam3_stream.models.lite.ridge import RidgeMemory

ObjectArrays = dict[str, npt.NDArray[Any]]


def pack_object(tracked: LiteObject) -> ObjectArrays:
    """All state of an object."""
    return {
        "object_id": np.array(tracked.object_id),
        "prompt_id": np.array(tracked.prompt_id),
        "label": np.array(tracked.label),
        "gram": tracked.memory.gram.copy(),
        "moment": tracked.memory.moment.copy(),
        "said_gram": tracked.memory.said_gram.copy(),
        "said_moment": tracked.memory.said_moment.copy(),
        "classifier": tracked.classifier.copy(),
        "template": tracked.appearance.template.copy(),
        "first_template": tracked.appearance.first_template.copy(),
        "usual_area": np.array(tracked.appearance.usual_area),
        "probability": tracked.probability.copy(),
        "present": np.array(tracked.present),
        "score": np.array(tracked.score),
    }


def unpack_object(arrays: ObjectArrays) -> LiteObject:
    """The object that `pack_object` was given."""
    return LiteObject(
        object_id=int(arrays["object_id"]),
        prompt_id=str(arrays["prompt_id"]),
        label=str(arrays["label"]),
        memory=RidgeMemory(*(arrays[name].copy() for name in ("gram", "moment", "said_gram", "said_moment"))),
        classifier=arrays["classifier"].copy(),
        appearance=Appearance(arrays["template"].copy(), arrays["first_template"].copy(), float(arrays["usual_area"])),
        probability=arrays["probability"].copy(),
        present=bool(arrays["present"]),
        score=float(arrays["score"]),
    )


def pack_objects(objects: Iterable[LiteObject]) -> ObjectArrays:
    """The state of several objects in one flat dictionary."""
    return {
        f"objects/{index}/{name}": array
        for index, tracked in enumerate(objects)
        for name, array in pack_object(tracked).items()
    }


def unpack_objects(arrays: ObjectArrays) -> list[LiteObject]:
    """The objects that `pack_objects` was given, in the same order."""
    return [unpack_object(fields) for fields in _grouped(arrays, "objects")]


def pack_concepts(concepts: Iterable[Concept]) -> ObjectArrays:
    """The phrases that a session looks for, in one flat dictionary."""
    return {
        f"concepts/{index}/{name}": np.array(value)
        for index, concept in enumerate(concepts)
        for name, value in asdict(concept).items()
    }


def unpack_concepts(arrays: ObjectArrays) -> list[Concept]:
    """The phrases that `pack_concepts` was given, in the same order."""
    return [
        Concept(
            prompt_id=str(fields["prompt_id"]),
            text=str(fields["text"]),
            label=str(fields["label"]),
            classes=tuple(int(number) for number in fields["classes"]),
            score_threshold=float(fields["score_threshold"]),
            max_objects=int(fields["max_objects"]),
        )
        for fields in _grouped(arrays, "concepts")
    ]


def _grouped(arrays: ObjectArrays, kind: str) -> list[ObjectArrays]:
    """ "kind/3/name" -> the third dictionary's "name"."""
    groups: dict[int, ObjectArrays] = {}
    for key, array in arrays.items():
        if key.startswith(f"{kind}/"):
            _, index, name = key.split("/")
            groups.setdefault(int(index), {})[name] = array
    return [groups[index] for index in sorted(groups)]
