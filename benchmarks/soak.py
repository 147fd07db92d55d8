"""Four cameras for half an hour in a storm of faults: drops, reconnects, memory and descriptors over time.

Each camera is a GStreamer RTSP server of its own behind a proxy that stalls, cuts, delays, throttles and corrupts, and
is killed and started again; all streams share the fake model, and each writes masks in rolling files.

usage: python benchmarks/soak.py [--minutes 30] [--streams 4] [--events-per-minute 6]
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.storm import RECOVERY_S, Resources, Rig, script  # noqa: E402

SAMPLE_INTERVAL_S = 10.0


class Sampler:
    """Notes from time to time what the process holds and what has become of the streams."""

    def __init__(self, rig: Rig) -> None:
        self.samples: list[dict[str, float]] = []
        self._rig = rig

    def __call__(self, now_s: float) -> None:
        if self.samples and now_s - self.samples[-1]["at_s"] < SAMPLE_INTERVAL_S:
            return
        resources = Resources.now()
        reports = [stream.report() for stream in self._rig.streams]
        dropped: Counter[str] = Counter()
        for report in reports:
            for (place, reason), count in report.dropped.items():
                dropped[reason if place == "source" else "sinks"] += count
        self.samples.append(
            {
                "at_s": round(now_s, 1),
                "rss_mb": round(resources.rss_mb, 1),
                "descriptors": resources.descriptors,
                "threads": resources.threads,
                "live": sum(report.state == "live" for report in reports),
                "frames_out": sum(report.frames_out for report in reports),
                "reconnects": sum(max(0, report.source.connections - 1) for report in reports),
                "corrupt": sum(report.source.corrupt for report in reports),
                "hanging": sum(report.source.hanging for report in reports),
                **{f"dropped: {reason}": count for reason, count in sorted(dropped.items())},
            }
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--events-per-minute", type=float, default=6.0)
    options = parser.parse_args()
    logging.getLogger("sam3_stream").setLevel(logging.ERROR)
    duration_s = options.minutes * 60
    events = script(round(options.minutes * options.events_per_minute), duration_s, options.streams)
    with tempfile.TemporaryDirectory() as folder, Rig(Path(folder), options.streams) as rig:
        sampler = Sampler(rig)
        sampler(0.0)
        rig.run(events, sampler)
        sampler(sampler.samples[-1]["at_s"] + SAMPLE_INTERVAL_S)
        result = {
            "minutes": options.minutes,
            "streams": options.streams,
            "faults": [fault_row(rig, fault) for fault in sorted({event.fault for event in events})],
            "quiet_fps": [
                round(camera.quiet_rate(camera.sink.times_s[0], camera.sink.times_s[-1], RECOVERY_S), 2)
                for camera in rig.cameras
            ],
            "fps": rig.fps,
            "ids": [sorted(camera.sink.ids) for camera in rig.cameras],
            "samples": sampler.samples,
        }
    results = ROOT / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    (results / "soak.json").write_text(json.dumps(result, indent=2) + "\n")
    draw(result, results / "soak.png")
    report(result)


def fault_row(rig: Rig, fault: str) -> dict[str, object]:
    """How fast streams came back from one kind of fault."""
    outcomes = [each for camera in rig.cameras for each in camera.outcomes if each.event.fault == fault]
    recoveries_s = sorted(each.recovered_s - each.healed_s for each in outcomes)
    return {
        "fault": fault,
        "events": len(outcomes),
        "median_recovery_s": round(recoveries_s[len(recoveries_s) // 2], 2),
        "worst_recovery_s": round(recoveries_s[-1], 2),
    }


def report(result: dict) -> None:
    """Print the tables."""
    console = Console(width=140)
    faults = Table(title=f"{result['streams']} cameras, {result['minutes']:g} minutes: live again after a fault")
    for title in ("fault", "events", "median s", "worst s"):
        faults.add_column(title, justify="right")
    for row in result["faults"]:
        faults.add_row(*(str(value) for value in row.values()))
    console.print(faults)
    samples = result["samples"]
    table = Table(title="over time")
    for title in samples[0]:
        table.add_column(title, justify="right")
    step = max(1, len(samples) // 12)
    for sample in [*samples[:-1:step], samples[-1]]:
        table.add_row(*(f"{value:g}" for value in sample.values()))
    console.print(table)
    rates = ", ".join(f"{rate:g}" for rate in result["quiet_fps"])
    console.print(
        f"frames per second away from a stream's own faults: {rates} of {result['fps']}; ids: {result['ids']}"
    )


def draw(result: dict, path: Path) -> None:
    """Draw memory, descriptors, reconnects and drops over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    samples = result["samples"]
    minutes = [sample["at_s"] / 60 for sample in samples]
    figure, panes = pyplot.subplots(4, 1, sharex=True, figsize=(9, 9), layout="constrained")
    drops = [name for name in samples[0] if name.startswith("dropped") and any(sample[name] for sample in samples)]
    for pane, names in zip(panes, (["rss_mb"], ["descriptors", "threads"], ["reconnects", "live"], drops), strict=True):
        for name in names:
            pane.plot(minutes, [sample[name] for sample in samples], label=name)
        pane.set_ylim(bottom=0)
        pane.grid(alpha=0.3)
        if names:
            pane.legend(loc="lower right", fontsize=8)
    panes[-1].set_xlabel("minutes")
    figure.suptitle(
        f"{result['streams']} cameras in a storm of {sum(row['events'] for row in result['faults'])} faults"
    )
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
