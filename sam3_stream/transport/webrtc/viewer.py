"""A WHEP viewer: a peer that is sent a stream's video, and its results if it offers a data channel."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import av
from aiortc import RTCDataChannel, RTCRtpSender, RTCRtpTransceiver
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from aiortc.rtp import RTCP_PSFB_APP, RtcpPsfbPacket, RtcpRrPacket, unpack_remb_fci

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import CapacityError, UsageError
from sam3_stream.transport.webrtc.bandwidth import RenditionChoice
from sam3_stream.transport.webrtc.rendition import (
    BIT_RATES,
    HEIGHTS,
    USUAL_TICKS,
    EncodedPicture,
    RenditionKey,
    Renditions,
)
from sam3_stream.transport.webrtc.session import PeerSession
from sam3_stream.transport.webrtc.video_encoder import Codec

RESULTS_CHANNEL = "results"
_QUEUE = 16  # pictures
_MOST_BUFFERED_BYTES = 1 << 18
_CODECS: dict[str, Codec] = {"video/H264": "H264", "video/VP8": "VP8"}


class ViewerTrack(MediaStreamTrack):
    """The pictures of a rendition for one viewer: when it is too slow, it gets the next key frame instead.

    Args:
        renditions: The stream's.
        overlay: Whether the objects are drawn.
        results: Takes a frame's results and its RTP time without the sender's offset.

    Attributes:
        last_pts: Time of the picture that was given last, in units of 1/90000 s; 0 before the first.
    """

    kind = "video"

    def __init__(self, renditions: Renditions, overlay: bool, results: Callable[[str, int], None]) -> None:
        super().__init__()
        self._renditions = renditions
        self._overlay = overlay
        self._results = results
        self._arrived = asyncio.Event()
        self._pictures: deque[EncodedPicture] = deque()
        self._packets: deque[av.Packet[Any]] = deque()
        self._needs_key_frame = True
        self._watch: _Watch | None = None
        self._next: _Watch | None = None
        self._pts_shift = 0
        self.last_pts = 0

    @property
    def height(self) -> int:
        """Of the rendition that is watched; 0 when none is."""
        return 0 if self._watch is None else self._watch.rendition.key.height

    def begin(self, codec: Codec, height: int) -> None:
        """Watch from now on.

        Raises:
            CapacityError: The stream has too many subscribers.
        """
        self._watch = _Watch(self._renditions, RenditionKey(codec, height, self._overlay), self._take)

    def switch(self, height: int) -> None:
        """Watch another rendition from its next key frame on."""
        if self._watch is None or self._next is not None or height == self.height:
            return
        key = replace(self._watch.rendition.key, height=height)
        with contextlib.suppress(CapacityError):
            self._next = _Watch(self._renditions, key, self._take)

    def request_key_frame(self) -> None:
        """The viewer cannot go on without one."""
        if self._watch is not None:
            self._watch.rendition.request_key_frame()

    async def recv(self) -> av.Packet[Any]:
        """The next packet; waits for it."""
        while not self._packets:
            if self.readyState != "live":
                raise MediaStreamError
            if self._pictures:
                self._unpack(self._pictures.popleft())
                continue
            self._arrived.clear()
            await self._arrived.wait()
        return self._packets.popleft()

    def stop(self) -> None:
        """Watch no more."""
        super().stop()
        for watch in (self._watch, self._next):
            if watch is not None:
                watch.leave()
        self._watch = self._next = None
        self._arrived.set()

    def _take(self, watch: _Watch, picture: EncodedPicture) -> None:
        """Take a picture; in the event loop's thread."""
        if watch is self._next and picture.key_frame and self._watch is not None:
            self._watch.leave()
            self._watch, self._next = self._next, None
            self._pictures.clear()
            self._needs_key_frame = True
            self._pts_shift = self.last_pts + USUAL_TICKS - picture.pts  # each rendition counts for itself
        if watch is not self._watch:
            return
        if len(self._pictures) >= _QUEUE:
            self._pictures.clear()
            self._needs_key_frame = True
        if self._needs_key_frame and not picture.key_frame:
            watch.rendition.request_key_frame()
            return
        self._needs_key_frame = False
        self._pictures.append(picture)
        self._arrived.set()

    def _unpack(self, picture: EncodedPicture) -> None:
        self.last_pts = picture.pts + self._pts_shift
        for packet in picture.packets:
            own = av.Packet(bytes(packet))  # packets are shared between viewers, whose times differ
            own.pts, own.dts, own.time_base = self.last_pts, self.last_pts, packet.time_base
            self._packets.append(own)
        self._results(picture.results, self.last_pts)


class _Watch:
    """A track's hold on a rendition, whose pictures it brings into the event loop."""

    def __init__(
        self, renditions: Renditions, key: RenditionKey, take: Callable[[_Watch, EncodedPicture], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._renditions = renditions
        self.rendition = renditions.watch(key, self)

    def offer(self, picture: EncodedPicture) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closing
            self._loop.call_soon_threadsafe(self._take, self, picture)

    def leave(self) -> None:
        self._renditions.leave(self.rendition, self)


class Viewer(PeerSession):
    """One WHEP session.

    Args:
        renditions: The stream's.
        overlay: Whether the objects are drawn.
        on_gone: Called once when the viewer has gone, however that came about.
        clock: The machine's own when None.
    """

    def __init__(
        self, renditions: Renditions, *, overlay: bool, on_gone: Callable[[], None], clock: Clock | None = None
    ) -> None:
        super().__init__(on_gone)
        self._clock = clock or SystemClock()
        self._channel: RTCDataChannel | None = None
        self._transceiver: RTCRtpTransceiver | None = None
        self._origin: int | None = None
        self._choice = RenditionChoice(list(BIT_RATES.values()))
        self._track = ViewerTrack(renditions, overlay, self._send_results)
        self._peer.on("datachannel", self._on_channel)

    def _prepare(self) -> None:
        transceiver = next((each for each in self._peer.getTransceivers() if each.kind == "video"), None)
        if transceiver is None or "send" not in (transceiver._offerDirection or ""):  # as seen from here
            raise UsageError("expected an SDP offer to receive video; it has no such section")
        transceiver.sender.replaceTrack(self._track)
        transceiver.direction = "sendonly"
        self._hook(transceiver.sender)
        self._transceiver = transceiver

    def _begin(self) -> None:
        assert self._transceiver is not None
        taken = [_CODECS[each.mimeType] for each in self._transceiver._codecs if each.mimeType in _CODECS]
        if not taken:
            raise UsageError("expected an SDP offer to receive H264 or VP8; it takes neither")
        self._track.begin(taken[0], HEIGHTS[self._choice.index])

    def _end(self) -> None:
        self._track.stop()

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label == RESULTS_CHANNEL:
            self._channel = channel

    def _hook(self, sender: RTCRtpSender) -> None:
        """Listen in on what the sender is told: it has no events for key-frame requests, bandwidth and losses."""
        heed, encode = sender._handle_rtcp_packet, sender._next_encoded_frame

        async def handle_rtcp_packet(packet: Any) -> None:
            self._heed(sender, packet)
            await heed(packet)

        async def next_encoded_frame(codec: Any) -> Any:
            self._note_origin(sender)
            return await encode(codec)

        sender._handle_rtcp_packet = handle_rtcp_packet  # type: ignore[method-assign]
        sender._next_encoded_frame = next_encoded_frame  # type: ignore[method-assign]
        sender._send_keyframe = self._track.request_key_frame  # type: ignore[method-assign]

    def _heed(self, sender: RTCRtpSender, packet: Any) -> None:
        now_s, index = self._clock.monotonic_s(), self._choice.index
        if isinstance(packet, RtcpRrPacket):
            for report in packet.reports:
                if report.ssrc == sender._ssrc:
                    index = self._choice.report(now_s, report.fraction_lost / 256)
        elif isinstance(packet, RtcpPsfbPacket) and packet.fmt == RTCP_PSFB_APP:
            with contextlib.suppress(ValueError):
                bits_per_second, _ = unpack_remb_fci(packet.fci)
                index = self._choice.estimate(now_s, bits_per_second)
        self._track.switch(HEIGHTS[index])

    def _note_origin(self, sender: RTCRtpSender) -> None:
        """The sender adds a number of its own to every time stamp; known once the first packet is out."""
        if self._origin is None and self._track.last_pts:
            sent: int = sender.__dict__["_RTCRtpSender__rtp_timestamp"]
            self._origin = (sent - self._track.last_pts) % (1 << 32)

    def _send_results(self, results: str, pts: int) -> None:
        channel = self._channel
        if channel is None or channel.readyState != "open" or channel.bufferedAmount > _MOST_BUFFERED_BYTES:
            return
        stamp = "null" if self._origin is None else str((self._origin + pts) % (1 << 32))
        channel.send(f'{{"rtp_timestamp":{stamp},{results[1:]}')
