"""What DAVIS 2016 cannot show of lite: cuts, several objects of a kind, and what many objects cost.

Cuts: 16 frames of a sequence, 12 frames of another, then the first again. Reported are the share of frames of the other
sequence on which the object is said to be there, and in how many sequences it is found again (mean IoU over .3 from the
eighth frame after the cut back).

Twins: a mirrored copy of the object, cut out by its true mask, crosses the picture in front of the object itself; both
are prompted with their masks on the first frame. IoU of each after the crossing, with the other's mask beside it: where
that is higher the two have been swapped.

Cost: CPU milliseconds a step (one thread, without encoding) by the number of objects, and as a multiple of one.

usage: python benchmarks/lite_scenes.py DAVIS_ROOT
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy reads it when it is imported

import cv2
import numpy as np
from davis import read
from davis_metrics import region_similarity

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.core.records import Frame, MaskArray
from sam3_stream.models.lite import LiteModel, load_lite

RESULT = Path(__file__).parent / "results" / "lite_scenes.json"
BEFORE, AWAY, SETTLED = 16, 12, 8
COUNTS = (1, 2, 4, 8, 16, 64)
TWINS = ("blackswan", "camel", "cows", "goat", "car-roundabout")
CROSSING_FRAMES = 40


def with_mask(object_id: int, mask: MaskArray) -> ObjectPrompt:
    return ObjectPrompt(object_id, f"p{object_id}", f"object {object_id}", mask=mask)


def cut(model: LiteModel, root: Path, sequence: str, other: str) -> tuple[float, bool]:
    """Share of the other sequence's frames with the object, and whether it is found again."""
    shots = list(read(root, sequence))[: 2 * BEFORE]
    shots[BEFORE:BEFORE] = list(read(root, other))[:AWAY]
    session = model.open_session(lambda: 1)
    present, overlaps = [], []
    for number, (frame, truth) in enumerate(shots):
        prompts = [with_mask(1, truth)] if number == 0 else []
        tracked = session.step(model.encode([frame])[0], prompts).objects[0]
        present.append(tracked.present)
        overlaps.append(region_similarity(tracked.mask, truth))
    back = BEFORE + AWAY
    return statistics.mean(present[BEFORE:back]), statistics.mean(overlaps[back + SETTLED :]) > 0.3


def twins(root: Path, sequence: str) -> Iterator[tuple[Frame, list[MaskArray]]]:
    """The object and its mirrored copy, which crosses from the left edge to the right one in front of it."""
    for number, (frame, truth) in enumerate(read(root, sequence)):
        if number >= CROSSING_FRAMES:
            return
        rgb = frame.picture.to_ndarray("rgb24")
        ys, xs = np.nonzero(truth)
        top, left, bottom, right = ys.min(), xs.min(), ys.max() + 1, xs.max() + 1
        shape, pixels = truth[top:bottom, left:right][:, ::-1], rgb[top:bottom, left:right][:, ::-1]
        share = number / (CROSSING_FRAMES - 1)
        x = round((frame.width - shape.shape[1]) * share)
        copy = np.zeros_like(truth)
        copy[top:bottom, x : x + shape.shape[1]] = shape
        rgb[top:bottom, x : x + shape.shape[1]][shape] = pixels[shape]
        picture = ArrayPicture(np.ascontiguousarray(rgb))
        yield Frame(sequence, number, number, Fraction(1, 24), picture), [truth & ~copy, copy]


def crossing(model: LiteModel, root: Path, sequence: str) -> dict[str, float]:
    session = model.open_session(lambda: 1)
    own: list[list[float]] = []
    swapped: list[list[float]] = []
    for number, (frame, truths) in enumerate(twins(root, sequence)):
        prompts = [with_mask(n + 1, truth) for n, truth in enumerate(truths)] if number == 0 else []
        masks = [tracked.mask for tracked in session.step(model.encode([frame])[0], prompts).objects]
        if number >= CROSSING_FRAMES - 8:
            own.append([region_similarity(mask, truth) for mask, truth in zip(masks, truths, strict=True)])
            swapped.append([region_similarity(mask, truth) for mask, truth in zip(masks, truths[::-1], strict=True)])
    (first, second), (first_swapped, second_swapped) = np.mean(own, axis=0), np.mean(swapped, axis=0)
    return {
        "object": float(first),
        "copy": float(second),
        "object_on_copy": float(first_swapped),
        "copy_on_object": float(second_swapped),
    }


def cost_ms(model: LiteModel, root: Path, count: int) -> float:
    """Median CPU milliseconds of a step with this many boxes of 80x50 pixels as objects."""
    frames = [frame for frame, _ in read(root, TWINS[0])][:24]
    prompts = []
    for number in range(count):
        mask = np.zeros((frames[0].height, frames[0].width), np.bool_)
        x, y = number % 8 * 100 + 20, number // 8 * 58 + 5
        mask[y : y + 50, x : x + 80] = True
        prompts.append(with_mask(number + 1, mask))
    session, spent_s = model.open_session(lambda: 1), []
    for number, frame in enumerate(frames):
        encoded = model.encode([frame])[0]
        began_s = time.process_time()
        session.step(encoded, prompts if number == 0 else [])
        spent_s.append(time.process_time() - began_s)
    return 1000 * statistics.mean(spent_s[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    root = parser.parse_args().root
    cv2.setNumThreads(1)
    model = load_lite(threads=1)
    names = sorted(path.name for path in (root / "JPEGImages").iterdir())
    cuts = {}
    for number, name in enumerate(names):
        cuts[name] = cut(model, root, name, names[(number + 3) % len(names)])
        print(f"cut      {name:<16} false presence {cuts[name][0]:.2f}  found again {cuts[name][1]}", flush=True)
    false_presence = statistics.mean(share for share, _ in cuts.values())
    found_again = sum(found for _, found in cuts.values())
    print(f"cut      all              false presence {false_presence:.3f}  found again {found_again} of {len(cuts)}")
    crossings = {name: crossing(model, root, name) for name in TWINS if name in names}
    for name, figures in crossings.items():
        print(f"twins    {name:<16} " + "  ".join(f"{key} {value:.2f}" for key, value in figures.items()))
    costs = {count: cost_ms(model, root, count) for count in COUNTS}
    for count, milliseconds in costs.items():
        print(f"cost     {count:>2} objects {milliseconds:>7.1f} ms, {milliseconds / costs[1]:.1f} times one")
    RESULT.parent.mkdir(exist_ok=True)
    document = {"false_presence": false_presence, "found_again": found_again, "cuts": cuts, "twins": crossings}
    RESULT.write_text(json.dumps(document | {"step_cpu_ms": costs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
