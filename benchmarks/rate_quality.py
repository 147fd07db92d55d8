"""What the levers of rate control cost in quality: J&F of `lite` on DAVIS 2016 against skipping and resolution.

Each sequence begins with the first frame's true mask; J&F is the mean of J and F over all frames but the first and the
last, as DAVIS counts. Skipped frames carry masks by `MaskCarrier`, both ways. Per sequence the median over the seeds of
the random colour features; the table has the mean over the sequences without drift-chicane, which one seed in two loses
whatever the setting, and drift-chicane apart. CPU is that of one thread for an emitted frame, all stages, against full
quality in the same run.

usage: python benchmarks/rate_quality.py DAVIS_ROOT
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from davis_metrics import BOUND_TH, contour_accuracy, region_similarity
from propagation import load

from sam3_stream.core.prompts import ObjectPrompt
from sam3_stream.core.records import EncodedFrame, Frame, MaskArray, TrackedFrame
from sam3_stream.models.lite import LiteModel
from sam3_stream.runtime.skip_pattern import SkipPattern
from sam3_stream.stages.memory_tracker.mask_carrier import CarryMode, MaskCarrier

RESULT = Path(__file__).parent / "results" / "rate_quality.json"
PICTURE = Path(__file__).parent / "rate_quality.png"
APART = "drift-chicane"
SHARES = (1, 2, 3, 5)
MODES: tuple[CarryMode, ...] = ("propagated", "held")

Scores = dict[str, dict[str, list[float]]]  # setting -> sequence -> J&F by seed


def quality(mask: MaskArray, truth: MaskArray) -> float:
    """J&F; on the part of the picture that holds both masks, which is the same and takes a tenth of the time."""
    radius_px = math.ceil(BOUND_TH * math.hypot(*mask.shape))
    rows, columns = (np.flatnonzero((mask | truth).any(axis=axis)) for axis in (1, 0))
    if rows.size:
        part = tuple(slice(max(0, at[0] - radius_px - 2), at[-1] + radius_px + 3) for at in (rows, columns))
        mask, truth = mask[part], truth[part]
    return (region_similarity(mask, truth) + contour_accuracy(mask, truth, radius_px)) / 2


def track(
    model: LiteModel, frames: list[Frame], size: tuple[int, int], first: MaskArray, share: int, mode: CarryMode
) -> Iterator[TrackedFrame]:
    """Every frame's results; the model sees every `share`-th frame. What `stages.memory_tracker.RateGate` does."""
    session, pattern, carrier = model.open_session(lambda: 1), SkipPattern(), MaskCarrier(mode)
    pattern.change(1, share)
    for number, frame in enumerate(frames):
        due = pattern.due
        pattern.count(tracked=due)
        if not due:
            yield carrier.carry(frame)
            continue
        if share > 1 and number:
            session.move(carrier.carry(frame))
        tracked = session.step(model.encode([frame], size)[0], [_prompt(first)] if number == 0 else [])
        carrier.start(tracked)
        yield tracked


def _prompt(mask: MaskArray) -> ObjectPrompt:
    return ObjectPrompt(1, "p1", "object", np.zeros((0, 2), np.float32), np.zeros(0, np.bool_), mask=mask)


class Encoded:
    """Encodes once for all seeds and settings: the features do not depend on them."""

    def __init__(self, model: LiteModel, frames: list[Frame], size: tuple[int, int]) -> None:
        self._by_number = {each.frame.sequence: each for each in model.encode(frames, size)}

    def encode(self, frames: list[Frame], size: tuple[int, int]) -> list[EncodedFrame]:
        return [self._by_number[frame.sequence] for frame in frames]


def settings(model: LiteModel, frame: Frame) -> Iterator[tuple[tuple[int, int], int, CarryMode]]:
    """(resolution, share, mode): full quality, skips at the best resolution, then the lower resolutions."""
    best, *lower = model.resolutions(frame.width, frame.height)
    yield best, 1, "propagated"
    yield from ((best, share, mode) for mode in MODES for share in SHARES[1:])
    yield from ((size, 1, "propagated") for size in lower)


def measure(root: Path, sequence: str, seeds: int) -> dict[str, list[float]]:
    """J&F of a sequence at every setting, for every seed."""
    cv2.setNumThreads(1)
    models = [LiteModel(seed=seed, threads=1) for seed in range(seeds)]
    frames, truths = load(root, sequence)
    found: dict[str, list[float]] = {}
    encoders: dict[tuple[int, int], Encoded] = {}
    for size, share, mode in settings(models[0], frames[0]):
        if size not in encoders:
            encoders = {size: Encoded(models[0], frames, size)}
        for model in models:
            model.encode = encoders[size].encode  # type: ignore[method-assign, assignment]
            results = list(track(model, frames, size, truths[0], share, mode))
            values = [quality(results[at].objects[0].mask, truths[at]) for at in range(1, len(frames) - 1)]
            found.setdefault(_name(size, share, mode), []).append(100 * float(np.mean(values)))
            del model.encode
    return found


def _name(size: tuple[int, int], share: int, mode: str) -> str:
    return "{}x{}".format(*size) + (f" 1/{share} {mode}" if share > 1 else "")


def cpu_ms(root: Path, sequence: str) -> dict[str, float]:
    """CPU milliseconds of an emitted frame, by setting."""
    model = LiteModel(threads=1)
    frames, truths = load(root, sequence)
    spent: dict[str, float] = {}
    for size, share, mode in settings(model, frames[0]):
        began_s = time.process_time()
        for _ in track(model, frames, size, truths[0], share, mode):
            pass
        spent[_name(size, share, mode)] = 1000 * (time.process_time() - began_s) / len(frames)
    return spent


def summary(scores: Scores) -> dict[str, tuple[float, float]]:
    """By setting: mean of the medians without drift-chicane, and the median of drift-chicane alone."""
    medians = {
        setting: {sequence: statistics.median(values) for sequence, values in by_sequence.items()}
        for setting, by_sequence in scores.items()
    }
    return {
        setting: (
            statistics.mean(value for sequence, value in values.items() if sequence != APART),
            values.get(APART, float("nan")),
        )
        for setting, values in medians.items()
    }


def draw(rows: dict[str, tuple[float, float]], spent: dict[str, float]) -> None:
    """J&F against CPU: a line for the resolutions, one for each way of carrying."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    full = next(iter(rows))
    lines = {"resolution": [name for name in rows if "/" not in name]}
    lines |= {f"skip, {mode}": [full, *(name for name in rows if name.endswith(mode))] for mode in MODES}
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for label, names in lines.items():
        costs = [100 * spent[name] / spent[full] for name in names]
        axes.plot(costs, [rows[name][0] for name in names], "o-", label=label)
        for cost, name in zip(costs, names, strict=True):
            text = name.split()[1] if " " in name else name
            axes.annotate(text, (cost, rows[name][0]), textcoords="offset points", xytext=(4, 5), fontsize=8)
    axes.set_xlabel("CPU of a frame, % of full quality")
    axes.set_ylabel("J&F")
    axes.invert_xaxis()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sequences", nargs="*", help="only these")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    sequences = arguments.sequences or sorted(path.name for path in (arguments.root / "JPEGImages").iterdir())
    scores: Scores = {}
    with ProcessPoolExecutor(arguments.workers) as pool:
        measured = pool.map(
            measure, *zip(*((arguments.root, each, arguments.seeds) for each in sequences), strict=True)
        )
        for sequence, found in zip(sequences, measured, strict=True):
            print(f"{sequence:<16}", {name: round(statistics.median(values), 1) for name, values in found.items()})
            for name, values in found.items():
                scores.setdefault(name, {})[sequence] = values
    spent = cpu_ms(arguments.root, sequences[0])
    rows = summary(scores)
    full = next(iter(rows))
    print(f"{'setting':<26}{'J&F':>7}{'loss':>7}{'CPU':>7}{APART:>16}")
    for name, (value, apart) in rows.items():
        loss, share = rows[full][0] - value, 100 * spent[name] / spent[full]
        print(f"{name:<26}{value:7.1f}{loss:7.1f}{share:6.0f}%{apart:16.1f}")
    RESULT.write_text(json.dumps({"scores": scores, "summary": rows, "cpu_ms": spent}, indent=1) + "\n")
    draw(rows, spent)


if __name__ == "__main__":
    main()
