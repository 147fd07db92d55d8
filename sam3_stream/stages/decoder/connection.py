"""One connection to a live source: a thread that reads and decodes until it breaks or is abandoned."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from fractions import Fraction

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from sam3_stream.config.live import LiveSourceConfig
from sam3_stream.core.clock import Clock
from sam3_stream.core.errors import InputError, StreamError
from sam3_stream.core.span_rate import SpanRate
from sam3_stream.core.urls import redact_credentials
from sam3_stream.runtime.channel import Cancelled, Channel, OverflowPolicy
from sam3_stream.stages.decoder.key_frame_gate import KeyFrameGate
from sam3_stream.stages.decoder.opening import choose_video_stream
from sam3_stream.stages.decoder.opening_live import display_address, open_live
from sam3_stream.stages.decoder.orientation import Orientation
from sam3_stream.stages.decoder.stream_clock import StreamClock, StreamTime

_EVERY_FRAME_QUEUE = 4
_UNDECODABLE_LIMIT = 100
# How far a camera's clock may be off for its time of capture to be believed, in seconds.
_PLAUSIBLE_S = 10.0


@dataclass(frozen=True, slots=True)
class LivePicture:
    """A decoded picture and its times.

    Attributes:
        image: The decoder's frame.
        number: Counts the decoded pictures of the stream, over all connections.
        time: Stream time.
        capture_time_s: Wall time of capture: the camera's own where it sends one that can be true, else of arrival.
        key_frame: Whether it builds on no other.
        orientation: Which way up it is displayed.
    """

    image: av.VideoFrame
    number: int
    time: StreamTime
    capture_time_s: float
    key_frame: bool
    orientation: Orientation


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a connection has ended.

    Words and no exception: that would hold on to what its stack held, a picture and with it the decoder's whole pool of
    them, in a cycle with the connection that the garbage collector may not find for minutes.
    """

    message: str
    lasting: bool = False


@dataclass
class SourceTally:
    """What has become of a stream's pictures, over all connections."""

    connections: int = 0
    decoded: int = 0
    corrupt: int = 0
    undecodable: int = 0
    no_key_frame: int = 0
    overflow: int = 0
    rate: SpanRate = field(default_factory=SpanRate)


class Connection:
    """Reads a live source in a thread of its own and puts decoded pictures into a channel.

    The thread never waits for whoever takes the pictures (`mode: latest`), so that the camera's packets never queue up.
    When reading ends, the channel is closed and `failure` says why. FFmpeg may hang where no time-out reaches it: then
    `abandon` leaves the thread to itself, and it ends as soon as FFmpeg returns.

    Args:
        config: What to open, and how.
        stream_clock: The stream's; goes on from one connection to the next.
        tally: The stream's; added to.
        clock: For deadlines and arrival times.
    """

    def __init__(self, config: LiveSourceConfig, stream_clock: StreamClock, tally: SourceTally, clock: Clock) -> None:
        policy: OverflowPolicy = "latest" if config.mode == "latest" else "block"
        self.pictures: Channel[LivePicture] = Channel(_EVERY_FRAME_QUEUE, policy, "source")
        self.started_s = clock.monotonic_s()
        self.opened = threading.Event()
        self.failure: Failure | None = None
        self.last_packet_s = self.last_picture_s = clock.monotonic_s()
        self._config = config
        self._stream_clock = stream_clock
        self._tally = tally
        self._clock = clock
        self._gate = KeyFrameGate(config.wait_for_key_frame)
        self._capture_offset_s: float | None = None
        self._rotation: int | None = None
        self._orientation = Orientation()
        self._thread = threading.Thread(target=self._run, name="sam3_stream-connection", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def abandon(self) -> None:
        """Take nothing more from this connection. Does not wait: FFmpeg may not return for a while."""
        self.pictures.cancel()

    def join(self, timeout_s: float) -> None:
        """Give the thread this long to end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            with open_live(self._config) as container:
                self.last_packet_s = self.last_picture_s = self._clock.monotonic_s()
                self.opened.set()
                self._read(container)
        except Cancelled:
            return
        except StreamError as error:
            self.failure = Failure(str(error), error.lasting)
        except InputError as error:
            self.failure = Failure(str(error), lasting=True)
        except (av.FFmpegError, OSError) as error:
            name, why = display_address(self._config), error.strerror or type(error).__name__
            self.failure = Failure(f"{name}: the connection broke off ({why})")
        except BaseException as error:  # a bug must end the stream with a message, not leave it waiting
            why = redact_credentials(f"{type(error).__name__}: {error}")
            self.failure = Failure(f"{display_address(self._config)}: reading failed ({why})")
        self.pictures.close()

    def _read(self, container: InputContainer) -> None:
        stream = choose_video_stream(container, display_address(self._config))
        stream.thread_type = "SLICE"  # frame threading holds pictures back
        undecodable = 0
        time_base = stream.time_base or Fraction(1, 90_000)
        for packet in container.demux(stream):
            if self.pictures.cancelled:
                return
            self.last_packet_s = self._clock.monotonic_s()
            self._note_capture_time(packet, time_base)
            try:
                images = packet.decode()
            except av.FFmpegError:
                self._tally.undecodable += 1
                self._gate.damaged()
                undecodable += 1
                if undecodable == _UNDECODABLE_LIMIT:
                    raise StreamError(
                        f"{display_address(self._config)}: {undecodable} packets in a row could not be decoded"
                    ) from None
                continue
            for image in images:
                undecodable = 0
                self._pass_on(image, time_base)

    def _pass_on(self, image: av.VideoFrame, time_base: Fraction) -> None:
        now_s = self._clock.monotonic_s()
        time = self._stream_clock(image.pts, time_base, now_s)
        number = self._tally.decoded
        self._tally.decoded += 1
        self._tally.corrupt += image.is_corrupt
        self._tally.rate.count(now_s)
        self.last_picture_s = now_s
        key_frame = bool(image.key_frame)
        if self._gate.admits(key_frame=key_frame, corrupt=image.is_corrupt, now_s=now_s):
            self.pictures.put(self._picture(image, number, time, time_base))
        else:
            self._tally.no_key_frame += 1

    def _picture(self, image: av.VideoFrame, number: int, time: StreamTime, time_base: Fraction) -> LivePicture:
        # PyAV's side data and its frame hold each other until the garbage collector comes, and with the frame the
        # decoder's whole pool of them; so it is looked at once, and again only when the rotation changes.
        if image.rotation != self._rotation:
            self._rotation, self._orientation = image.rotation, Orientation.of(image)
        capture_time_s = self._capture_time_s(image, time_base)
        return LivePicture(image, number, time, capture_time_s, bool(image.key_frame), self._orientation)

    def _note_capture_time(self, packet: av.Packet[VideoStream], time_base: Fraction) -> None:
        """Take the distance between the stream's stamps and the camera's wall time, from an RTCP sender report."""
        if packet.pts is None or not packet.has_sidedata("prft"):
            return
        wall_us = int.from_bytes(bytes(packet.get_sidedata("prft"))[:8], sys.byteorder, signed=True)
        self._capture_offset_s = wall_us / 1e6 - packet.pts * time_base.numerator / time_base.denominator

    def _capture_time_s(self, image: av.VideoFrame, time_base: Fraction) -> float:
        arrival_s = self._clock.wall_s()
        if self._capture_offset_s is None or image.pts is None:
            return arrival_s
        capture_s = self._capture_offset_s + image.pts * time_base.numerator / time_base.denominator
        return capture_s if abs(arrival_s - capture_s) <= _PLAUSIBLE_S else arrival_s
