"""Tell a running pipeline what to track, and follow it."""

from sam3_stream import Client

with Client("tcp://127.0.0.1:5560", control="tcp://127.0.0.1:5561") as client:
    client.add({"type": "click", "x": 640, "y": 360, "name": "bunny"})
    for tracked in client.results("0", timeout_s=10):
        print(tracked.frame.sequence, [(each.label, each.box_xywh) for each in tracked.present])
