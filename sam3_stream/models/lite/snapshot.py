"""Objects as plain arrays and back, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sam3_stream.models.lite.objects import LiteObject
from sam3_stream.models.lite.presence import Appearance
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
        memory=RidgeMemory(arrays["gram"].copy(), arrays["moment"].copy()),
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
    grouped: dict[int, ObjectArrays] = {}
    for key, array in arrays.items():
        if key.startswith("objects/"):
            _, index, name = key.split("/")
            grouped.setdefault(int(index), {})[name] = array
    return [unpack_object(grouped[index]) for index in sorted(grouped)]
