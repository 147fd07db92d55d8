"""A process of its own that sends a coded stream to a server. It stands alone: run by its path, it needs PyAV only.

PyAV holds Python's lock while it connects to a server and while it says goodbye, so a server that does not answer would
stop every stream of the process. Here it stops nobody; and a process, unlike a thread, can always be ended: the alarm
does so whenever nothing has been sent for a while.

usage: python push_process.py HANG_TIMEOUT_S FORMAT      with the address as the first line of stdin (so that no list of
processes shows a password), then NUT
"""

from __future__ import annotations

import io
import os
import signal
import sys

import av


def main() -> None:
    """Send stdin to the server until it ends."""
    hang_timeout_s, file_format = int(sys.argv[1]), sys.argv[2]
    signal.alarm(hang_timeout_s)
    address = b""
    while not address.endswith(b"\n"):
        address += os.read(0, 1)
    options = {"rtsp_transport": "tcp"} if file_format == "rtsp" else {}
    with (
        av.open(io.FileIO(0), "r", format="nut", options={"probesize": "32", "analyzeduration": "0"}) as source,
        av.open(address.decode().strip(), "w", format=file_format, options=options) as server,
    ):
        video = source.streams.video[0]
        stream = server.add_stream_from_template(video)
        for packet in source.demux(video):
            if packet.dts is None:
                continue
            packet.stream = stream
            server.mux_one(packet)
            signal.alarm(hang_timeout_s)


if __name__ == "__main__":
    try:
        main()
    except (av.FFmpegError, OSError) as error:
        sys.exit(error.strerror or type(error).__name__)  # never the whole error: it shows the address
