"""The live preview wired by hand: a file on the page of `sam3-stream serve`, and its results in Python.

usage: python pipelines/preview_webrtc.py clip.mp4 X,Y
"""

from __future__ import annotations

import contextlib
import sys
import threading

from sam3_stream import PointPrompt
from sam3_stream.build_preview import PreviewService
from sam3_stream.config.preview import PreviewConfig
from sam3_stream.server.app import preview_app
from sam3_stream.server.serving import listen, make_server
from sam3_stream.stages.sinks.broadcast import Subscription
from sam3_stream.transport.webrtc.candidates import LOOPBACK, offer_only


def report(results: Subscription) -> None:
    """Print what is seen; a reader that is too slow misses frames, and holds nobody up."""
    for tracked in results:
        print(tracked.frame.sequence, [each.box_xywh for each in tracked.present])


def main() -> None:
    """Track what is under the click, and serve it at http://127.0.0.1:8420/ until Ctrl-C."""
    path, click = sys.argv[1], sys.argv[2]
    x, y = (float(value) for value in click.split(","))
    stream = {"name": "clip", "source": {"type": "file", "path": path}}
    config = PreviewConfig.model_validate({"streams": [stream]})

    offer_only([LOOPBACK])  # media go over this address alone
    with listen(LOOPBACK, config.preview.port) as listening, PreviewService(config) as service:
        service.start()
        clip = service.preview_stream("clip")
        clip.add_prompt(PointPrompt(x=x, y=y, name="subject"))
        threading.Thread(target=report, args=[clip.subscribe()], daemon=True).start()
        server = make_server(preview_app(service, config, hosts=(LOOPBACK, "localhost")))
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


if __name__ == "__main__":
    main()
