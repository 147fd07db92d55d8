"""How well masks are carried to frames that the model does not see: DIS flow against holding them, on DAVIS.

Ground truth of every fourth frame is carried over one to four frames and compared with the ground truth there (IoU), so
that no model is in the figures. Milliseconds are CPU time of one thread for a carried frame at the size of the data,
with one object and with 20.

usage: python benchmarks/propagation.py DAVIS_ROOT
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np

from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import Frame, MaskArray, TrackedFrame, TrackedObject
from sam3_stream.stages.memory_tracker.mask_carrier import CarryMode, MaskCarrier

RESULT = Path(__file__).parent / "results" / "propagation.json"
AGES = (1, 2, 3, 4)
EVERY = 4


def load(root: Path, sequence: str) -> tuple[list[Frame], list[MaskArray]]:
    frames, masks = [], []
    for number, path in enumerate(sorted((root / "JPEGImages" / sequence).glob("*.jpg"))):
        rgb = np.asarray(cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB), dtype=np.uint8)
        frames.append(Frame(sequence, number, number, Fraction(1, 24), ArrayPicture(rgb)))
        annotation = root / "Annotations" / sequence / f"{path.stem}.png"
        masks.append(cv2.imread(str(annotation), cv2.IMREAD_GRAYSCALE) > 127)
    return frames, masks


def tracked(frame: Frame, mask: MaskArray, count: int = 1) -> TrackedFrame:
    return TrackedFrame(frame, tuple(TrackedObject(number, "p", "object", 1.0, mask) for number in range(1, count + 1)))


def overlaps(frames: list[Frame], masks: list[MaskArray], mode: CarryMode) -> list[float]:
    """Mean IoU by age."""
    found: list[list[float]] = [[] for _ in AGES]
    for first in range(0, len(frames) - AGES[-1], EVERY):
        carrier = MaskCarrier(mode)
        carrier.start(tracked(frames[first], masks[first]))
        for age in AGES:
            carried, truth = carrier.carry(frames[first + age]).objects[0].mask, masks[first + age]
            found[age - 1].append(float((carried & truth).sum() / max(1, (carried | truth).sum())))
    return [statistics.mean(values) for values in found]


def milliseconds(frames: list[Frame], masks: list[MaskArray], mode: CarryMode, count: int) -> float:
    times_s = []
    for first in range(0, min(len(frames), 40) - AGES[-1], EVERY):
        carrier = MaskCarrier(mode)
        carrier.start(tracked(frames[first], masks[first], count))
        began_s = time.process_time()
        for age in AGES:
            carrier.carry(frames[first + age])
        times_s.append((time.process_time() - began_s) / len(AGES))
    return 1000 * statistics.median(times_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    root = parser.parse_args().root
    cv2.setNumThreads(1)
    sequences = sorted(path.name for path in (root / "JPEGImages").iterdir())
    modes: tuple[CarryMode, ...] = ("propagated", "held")
    iou: dict[str, dict[str, list[float]]] = {mode: {} for mode in modes}
    cost_ms: dict[str, list[float]] = {}
    print(f"{'IoU after frames':<18}" + "".join(f"{mode:>12} {age}" for mode in modes for age in AGES))
    for sequence in sequences:
        frames, masks = load(root, sequence)
        for mode in modes:
            iou[mode][sequence] = overlaps(frames, masks, mode)
            cost_ms.setdefault(mode, [milliseconds(frames, masks, mode, count) for count in (1, 20)])
        print(f"{sequence:<18}" + "".join(f"{value:14.3f}" for mode in modes for value in iou[mode][sequence]))
    mean = {mode: [statistics.mean(values) for values in zip(*iou[mode].values(), strict=True)] for mode in modes}
    print(f"{'mean':<18}" + "".join(f"{value:14.3f}" for mode in modes for value in mean[mode]))
    for mode in modes:
        print(f"{mode}: {cost_ms[mode][0]:.1f} ms a frame with 1 object, {cost_ms[mode][1]:.1f} ms with 20")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"ages": AGES, "iou": iou, "mean": mean, "cpu_ms_1_20": cost_ms}, indent=1) + "\n")


if __name__ == "__main__":
    main()
