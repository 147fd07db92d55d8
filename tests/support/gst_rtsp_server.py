"""A GStreamer RTSP server whose pictures carry a clock. Run by the system's Python, started by `rtsp_server.py`.

usage: /usr/bin/python3 gst_rtsp_server.py '{"port": 0, "mounts": [{"path": "/cam0", …}], …}'

Prints ``ready PORT``, then answers each line on stdin: ``count /mount`` with the number of coded pictures that a RECORD
mount has received, as ``count N WIDTH HEIGHT``. Ends when stdin does, so that no server outlives its test.
"""

import itertools
import json
import sys
import time

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import Gio, GLib, Gst, GstRtspServer  # noqa: E402

CELLS, CELL_ROWS, CELL_HEIGHT = 24, 2, 16
ENCODERS = {
    "h264": "x264enc tune=zerolatency speed-preset=ultrafast threads=1 bitrate={kbps} key-int-max={gop} "
    "! video/x-h264,profile=constrained-baseline ! rtph264pay name=pay0 pt=96 config-interval=-1",
    "h265": "x265enc tune=zerolatency speed-preset=ultrafast bitrate={kbps} key-int-max={gop} "
    "option-string=pools=1:frame-threads=1:log-level=none ! rtph265pay name=pay0 pt=96 config-interval=-1",
    "mjpeg": "jpegenc ! rtpjpegpay name=pay0 pt=26",
    "unknown": "rtpgstpay name=pay0 pt=96",  # an RTP format of GStreamer's own that FFmpeg has no decoder for
}
RECORD = "( rtph264depay name=depay0 ! h264parse ! video/x-h264,alignment=au ! fakesink name=sink sync=false )"


class Pictures:
    """I420 pictures: a gradient, a white square that moves, and at the bottom a clock in black and white cells."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.gradient = bytes(16 + x * 200 // width for x in range(width))
        self.colors = bytes([118]) * (width // 2 * (height // 2)) + bytes([138]) * (width // 2 * (height // 2))
        self.side = height // 6
        self.count = 0

    def next(self):
        """The next picture, stamped with the monotonic clock in ms (32 bits) and its number (16 bits)."""
        upper = self.height - CELL_ROWS * CELL_HEIGHT
        x = self.count * 4 % (self.width - self.side)
        y = upper // 3
        row = self.gradient[:x] + bytes([235]) * self.side + self.gradient[x + self.side :]
        stamp = (int(time.monotonic() * 1000) & 0xFFFFFFFF) << 16 | self.count & 0xFFFF
        self.count += 1
        clock = b"".join(self.cells(stamp >> CELLS * index) * CELL_HEIGHT for index in range(CELL_ROWS))
        rest = self.gradient * (upper - y - self.side)
        return self.gradient * y + row * self.side + rest + clock + self.colors

    def cells(self, bits):
        """One row of pixels that shows the lowest 24 bits, the lowest on the left."""
        edges = [self.width * cell // CELLS for cell in range(CELLS + 1)]
        widths = [right - left for left, right in itertools.pairwise(edges)]
        return b"".join(bytes([235 if bits >> bit & 1 else 16]) * width for bit, width in enumerate(widths))


def play_factory(mount):
    """A mount that plays a live picture of its own, shared by all clients."""
    if mount["file"]:
        factory = GstRtspServer.RTSPMediaFactory()
        factory.set_launch(f"( filesrc location={mount['file']} ! qtdemux ! h264parse ! rtph264pay name=pay0 pt=96 )")
        factory.set_shared(True)
        return factory
    width, height, fps = mount["width"], mount["height"], mount["fps"]
    caps = f"video/x-raw,format=I420,width={width},height={height},framerate={fps}/1"
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(
        f"( appsrc name=src is-live=true do-timestamp=true format=time max-bytes=0 caps={caps} "
        f"! {ENCODERS[mount['codec']].format(kbps=mount['kbps'], gop=mount['gop'])} )"
    )
    factory.set_shared(True)
    factory.connect("media-configure", lambda _, media: feed(media, mount))
    return factory


def feed(media, mount):
    """Push pictures into a mount's appsrc while anybody watches it."""
    source = media.get_element().get_by_name("src")
    pictures = Pictures(mount["width"], mount["height"])

    def push():
        source.emit("push-buffer", Gst.Buffer.new_wrapped(pictures.next()))
        return True

    timer = GLib.timeout_add(1000 // mount["fps"], push)
    media.connect("unprepared", lambda _: GLib.source_remove(timer))


class Received:
    """What a RECORD mount has got."""

    def __init__(self):
        self.pictures, self.width, self.height = 0, 0, 0

    def factory(self):
        """A mount that takes one H.264 stream at a time and counts its pictures."""
        factory = GstRtspServer.RTSPMediaFactory()
        factory.set_launch(RECORD)
        factory.set_transport_mode(GstRtspServer.RTSPTransportMode.RECORD)
        factory.connect("media-configure", self.watch)
        return factory

    def watch(self, _, media):
        pad = media.get_element().get_by_name("sink").get_static_pad("sink")
        pad.add_probe(Gst.PadProbeType.BUFFER, self.count)

    def count(self, pad, _):
        self.pictures += 1
        size = pad.get_current_caps().get_structure(0)
        self.width, self.height = size.get_int("width")[1], size.get_int("height")[1]
        return Gst.PadProbeReturn.OK


def protect(server, factories, config):
    """Ask for a user and a password (digest), and encrypt if there is a certificate."""
    auth = GstRtspServer.RTSPAuth()
    if config.get("certificate"):
        auth.set_tls_certificate(Gio.TlsCertificate.new_from_file(config["certificate"]))
    if config.get("user"):
        token = GstRtspServer.RTSPToken()
        token.set_string("media.factory.role", "viewer")
        auth.set_supported_methods(2)  # GST_RTSP_AUTH_DIGEST
        auth.add_digest(config["user"], config["password"], token)
    else:
        token = GstRtspServer.RTSPToken()
        token.set_string("media.factory.role", "viewer")
        auth.set_default_token(token)
    for factory in factories:
        permissions = GstRtspServer.RTSPPermissions()
        permissions.add_role("viewer")
        for right in ("media.factory.access", "media.factory.construct"):
            permissions.add_permission_for_role("viewer", right, True)
        factory.set_permissions(permissions)
    server.set_auth(auth)


def main():
    """Serve until stdin ends."""
    config = json.loads(sys.argv[1])
    Gst.init(None)
    loop = GLib.MainLoop()
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(str(config["port"]))
    received = {mount["path"]: Received() for mount in config["mounts"] if mount["record"]}
    factories = {
        mount["path"]: received[mount["path"]].factory() if mount["record"] else play_factory(mount)
        for mount in config["mounts"]
    }
    for path, factory in factories.items():
        server.get_mount_points().add_factory(path, factory)
    if config.get("user") or config.get("certificate"):
        protect(server, factories.values(), config)
    if not server.attach(None):
        sys.exit("cannot listen")
    # Sessions of clients that vanished are thrown out, as any server does sooner or later.
    GLib.timeout_add_seconds(2, lambda: bool(server.get_session_pool().cleanup()) or True)

    def answer(stdin, _):
        line = stdin.readline()
        if not line:
            loop.quit()
            return False
        seen = received[line.split()[1]]
        print("count", seen.pictures, seen.width, seen.height, flush=True)
        return True

    GLib.io_add_watch(sys.stdin, GLib.IO_IN | GLib.IO_HUP, answer)
    print("ready", server.get_bound_port(), flush=True)
    loop.run()


main()
