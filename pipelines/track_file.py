"""The main job wired by hand: what `configs/track_file.yaml` says, in Python.

usage: python pipelines/track_file.py clip.mp4 X,Y
"""

from __future__ import annotations

import sys

from sam3_stream import (
    ImageEncoder,
    MasksSink,
    MemoryTracker,
    OverlaySink,
    Pipeline,
    PointPrompt,
    VideoDecoder,
    load_model,
    run_header,
)


def main() -> None:
    """Track what is under the click, write a video and a masks file, and print what is seen on the way."""
    path, click = sys.argv[1], sys.argv[2]
    x, y = (float(value) for value in click.split(","))
    prompt = PointPrompt(x=x, y=y, name="subject")

    video = VideoDecoder(path)
    model = load_model("lite")
    pipeline = Pipeline(
        video,
        [ImageEncoder(model), MemoryTracker(model, [prompt])],
        header=run_header(path, model.name, [prompt]),
        sinks=[OverlaySink("tracked.mp4", audio_from=path), MasksSink("tracked.jsonl")],
    )
    with pipeline:
        for tracked in pipeline:  # masks are numpy; to_detections() speaks supervision's language
            detections = tracked.to_detections()
            print(f"{tracked.frame.time_s:7.3f} s  {len(detections)} objects  {detections.xyxy.tolist()}")


if __name__ == "__main__":
    main()
