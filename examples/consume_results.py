"""Print what a pipeline publishes, with nothing but pyzmq and msgpack. usage: consume_results.py ADDRESS STREAM"""

import sys
from urllib.parse import quote

import msgpack
import zmq


def main(address: str, stream: str) -> None:
    """Print the objects of every frame until the stream ends."""
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(address)
    socket.subscribe(f"frame/{quote(stream, safe='')}/")
    last = None
    lost = 0
    while True:
        _topic, packed, *_buffers = socket.recv_multipart()
        header = msgpack.unpackb(packed)
        if header["v"] != 1:
            continue
        if header["type"] == "end":
            print(f"end of {stream}, {lost} gaps", flush=True)
            return
        frame = header["frame"]
        if last is not None and last != (frame["epoch"], header["previous"]):
            lost += 1
        last = (frame["epoch"], frame["sequence"])
        objects = ", ".join(f"{each['id']} {each['label']} at {each['box']}" for each in header["objects"])
        print(f"{frame['sequence']}: {objects or 'nothing'}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
