"""How well lite tracks on DAVIS, and what a step costs beside the pass of its own backbone.

J and F as in `davis_metrics.py`; a sequence's figure is the mean over its frames without the first and the last, as the
semi-supervised protocol of DAVIS has it. The ground truth of the first frame is the prompt, as the mask itself, as its
tight box, or as clicks: the first at its deepest interior point, the second at the deepest point of the largest error
that the first leaves, positive or negative. For boxes and clicks the IoU of the first mask is measured too, on the
first and on the middle frame.

A step is everything from the decoded picture to masks at its size. The backbone's pass alone is timed on the same
frames, right after each step and with the same number of threads; the ratio is that of the medians.

OPENBLAS_NUM_THREADS=2 gives both two threads instead of one.

usage: python benchmarks/davis.py DAVIS_ROOT [--seeds N] [--prompt mask|box|click|two-clicks] [--sequences NAME,NAME]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path

THREADS = int(os.environ.setdefault("OPENBLAS_NUM_THREADS", "1"))  # numpy reads it when it is imported

import cv2  # noqa: E402
import numpy as np  # noqa: E402
from davis_metrics import contour_accuracy, region_similarity  # noqa: E402

from sam3_stream.core.pictures import ArrayPicture  # noqa: E402
from sam3_stream.core.prompts import ObjectPrompt  # noqa: E402
from sam3_stream.core.records import Frame, MaskArray  # noqa: E402
from sam3_stream.models.lite import LiteModel, load_lite  # noqa: E402
from sam3_stream.models.lite.backbone import Backbone  # noqa: E402

RESULTS = Path(__file__).parent / "results"
PROMPTS = ("mask", "box", "click", "two-clicks")

Click = tuple[float, float, bool]


@dataclass(frozen=True)
class SequenceResult:
    """Figures of one sequence with one seed."""

    sequence: str
    frames: int
    j: float
    f: float
    step_ms: float
    backbone_ms: float

    @property
    def j_and_f(self) -> float:
        return (self.j + self.f) / 2


def read(root: Path, sequence: str) -> Iterator[tuple[Frame, MaskArray]]:
    """The frames of a sequence and their ground truth, one at a time."""
    for number, path in enumerate(sorted((root / "JPEGImages" / sequence).glob("*.jpg"))):
        rgb = np.asarray(cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB), np.uint8)
        annotation = root / "Annotations" / sequence / f"{path.stem}.png"
        truth = cv2.imread(str(annotation), cv2.IMREAD_GRAYSCALE) > 127
        yield Frame(sequence, number, number, Fraction(1, 24), ArrayPicture(rgb)), truth


def deepest_point(mask: MaskArray) -> tuple[float, float, float]:
    """(x, y) of the pixel farthest from the mask's outline, and how far that is."""
    distance = cv2.distanceTransform(np.pad(mask, 1).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)[1:-1, 1:-1]
    y, x = np.unravel_index(int(np.argmax(distance)), distance.shape)
    return float(x), float(y), float(distance[y, x])


def first_mask(model: LiteModel, frame: Frame, prompt: ObjectPrompt) -> MaskArray:
    return model.open_session(lambda: 1).step(model.encode([frame])[0], [prompt]).objects[0].mask


def with_clicks(clicks: list[Click]) -> ObjectPrompt:
    points = np.array([click[:2] for click in clicks], np.float32)
    return ObjectPrompt(1, "p1", "object 1", points, np.array([click[2] for click in clicks]))


def make_prompt(kind: str, model: LiteModel, frame: Frame, truth: MaskArray) -> ObjectPrompt:
    """What a user would say who sees the truth."""
    if kind == "mask":
        return ObjectPrompt(1, "p1", "object 1", mask=truth)
    if kind == "box":
        ys, xs = np.nonzero(truth)
        box = float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1)
        return ObjectPrompt(1, "p1", "object 1", box_xyxy=box)
    x, y, _ = deepest_point(truth)
    clicks = [(x, y, True)]
    if kind == "two-clicks":
        mask = first_mask(model, frame, with_clicks(clicks))
        missed, wrong = deepest_point(truth & ~mask), deepest_point(mask & ~truth)
        clicks.append((*missed[:2], True) if missed[2] >= wrong[2] else (*wrong[:2], False))
    return with_clicks(clicks)


def track(root: Path, sequence: str, model: LiteModel, backbone: Backbone, kind: str) -> SequenceResult:
    session = model.open_session(lambda: 1)
    j, f, step_s, backbone_s = [], [], [], []
    for frame, truth in read(root, sequence):
        prompts = [make_prompt(kind, model, frame, truth)] if frame.sequence == 0 else []
        began_s = time.perf_counter()
        encoded = model.encode([frame])[0]
        tracked = session.step(encoded, prompts)
        stepped_s = time.perf_counter()
        picture = frame.picture.to_ndarray("rgb24", size=encoded.resolution)[None]
        passed_s = time.perf_counter()
        backbone.taps(picture)
        if frame.sequence > 0:  # the first frame makes an object, the others are the cost of a stream
            step_s.append(stepped_s - began_s)
            backbone_s.append(time.perf_counter() - passed_s)
        j.append(region_similarity(tracked.objects[0].mask, truth))
        f.append(contour_accuracy(tracked.objects[0].mask, truth))
    return SequenceResult(
        sequence,
        len(j),
        statistics.mean(j[1:-1]),
        statistics.mean(f[1:-1]),
        1000 * statistics.median(step_s),
        1000 * statistics.median(backbone_s),
    )


def first_mask_overlaps(root: Path, sequence: str, model: LiteModel, kind: str) -> list[float]:
    """IoU of the first mask on the first and on the middle frame."""
    frames = list(read(root, sequence))
    return [
        region_similarity(first_mask(model, frame, make_prompt(kind, model, frame, truth)), truth)
        for frame, truth in (frames[0], frames[len(frames) // 2])
    ]


def print_table(results: list[list[SequenceResult]]) -> None:
    """Medians over the seeds."""
    print(f"{'sequence':<16}{'frames':>7}{'J':>7}{'F':>7}{'J&F':>7}{'step ms':>9}{'backbone':>9}{'ratio':>7}{'fps':>7}")
    for runs in zip(*results, strict=True):
        j, f, both = (statistics.median(getattr(run, name) for run in runs) for name in ("j", "f", "j_and_f"))
        step, backbone = (statistics.median(getattr(run, name) for run in runs) for name in ("step_ms", "backbone_ms"))
        print(
            f"{runs[0].sequence:<16}{runs[0].frames:>7}{j:>7.3f}{f:>7.3f}{both:>7.3f}{step:>9.1f}{backbone:>9.1f}"
            f"{step / backbone:>7.2f}{1000 / step:>7.1f}"
        )


def summarise(results: list[list[SequenceResult]], kind: str, overlaps: dict[str, list[float]]) -> dict[str, object]:
    means = [statistics.mean(run.j_and_f for run in seed) for seed in results]
    runs = [run for seed in results for run in seed]
    step, backbone = (statistics.median(getattr(run, name) for run in runs) for name in ("step_ms", "backbone_ms"))
    return {
        "prompt": kind,
        "threads": THREADS,
        "j_and_f_by_seed": means,
        "j_and_f_median": statistics.median(means),
        "j_mean": statistics.mean(run.j for run in runs),
        "f_mean": statistics.mean(run.f for run in runs),
        "lowest_sequence": min(
            statistics.median(run.j_and_f for run in of_one) for of_one in zip(*results, strict=True)
        ),
        "step_ms": step,
        "backbone_ms": backbone,
        "step_over_backbone": statistics.median(run.step_ms / run.backbone_ms for run in runs),
        "frames_per_second": 1000 / step,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "first_mask_iou": overlaps,
        "first_mask_iou_mean": statistics.mean(chain.from_iterable(overlaps.values())) if overlaps else None,
        "runs": [[asdict(run) for run in seed] for seed in results],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds of the random colour features")
    parser.add_argument("--prompt", choices=PROMPTS, default="mask")
    parser.add_argument("--sequences", help="names with commas; all by default")
    arguments = parser.parse_args()
    cv2.setNumThreads(THREADS)
    names = sorted(path.name for path in (arguments.root / "JPEGImages").iterdir())
    names = arguments.sequences.split(",") if arguments.sequences else names
    backbone = Backbone(THREADS)
    results: list[list[SequenceResult]] = []
    overlaps: dict[str, list[float]] = {}
    for seed in range(arguments.seeds):
        model = load_lite(seed=seed, threads=THREADS)
        results.append([track(arguments.root, name, model, backbone, arguments.prompt) for name in names])
        if arguments.prompt != "mask" and seed == 0:
            overlaps = {name: first_mask_overlaps(arguments.root, name, model, arguments.prompt) for name in names}
    print_table(results)
    for name, (first, middle) in overlaps.items():
        print(f"{name:<16} IoU of the first mask: first frame {first:.2f}, middle frame {middle:.2f}")
    summary = summarise(results, arguments.prompt, overlaps)
    print({key: value for key, value in summary.items() if key not in ("runs", "first_mask_iou")})
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"davis_{arguments.prompt.replace('-', '_')}.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
