"""Live ingestion wired by hand: one camera of `configs/ingest_rtsp.yaml`, in Python.

usage: python pipelines/ingest_rtsp.py rtsp://user:password@camera/stream X,Y
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from sam3_stream import (
    LiveDecoder,
    LiveSourceConfig,
    LiveTracker,
    MasksSink,
    Pipeline,
    PointPrompt,
    SegmentsSink,
    load_model,
    run_header,
)


def main() -> None:
    """Track what is under the click for ever, keep the masks of the last hour, and print what is seen."""
    url, click = sys.argv[1], sys.argv[2]
    x, y = (float(value) for value in click.split(","))
    prompt = PointPrompt(x=x, y=y, name="subject")
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # the decoder says when the camera comes and goes

    model = load_model("lite")
    pipeline = Pipeline(
        LiveDecoder(LiveSourceConfig(url=url), "camera"),
        [LiveTracker(model, lambda frame: model.encode([frame])[0], [prompt])],
        header=run_header("camera", model.name, [prompt]),
        sinks=[SegmentsSink(Path("masks"), ".jsonl", MasksSink, segment_seconds=60, keep=60)],
        policy="latest",  # a sink that lags behind loses frames
        on_demand=True,  # the tracker takes the newest frame whenever it is free
    )
    with pipeline:
        for tracked in pipeline:
            boxes = [tracked_object.box_xywh for tracked_object in tracked.present]
            print(f"{tracked.frame.time_s:7.2f} s  {boxes}")


if __name__ == "__main__":
    main()
