"""One stream at one size and in one codec, encoded once for all who watch it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import av

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.records import TrackedFrame
from sam3_stream.core.results_message import results_message
from sam3_stream.runtime.channel import Cancelled, Channel
from sam3_stream.transport.webrtc.video_encoder import RTP_TIME_BASE, Codec, VideoEncoder

_log = logging.getLogger(__name__)

_KEY_FRAME_SPACING_S = 0.4  # requests that come closer together get one key frame
_LONGEST_GAP_TICKS = 5 * RTP_TIME_BASE.denominator
USUAL_TICKS = 3000


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPicture:
    """A picture on its way to viewers.

    Attributes:
        packets: What the encoder gave for it.
        key_frame: Whether it builds on no other.
        pts: Its time, in units of 1/90000 s.
        results: What is known of the frame, as JSON of an object.
    """

    packets: tuple[av.Packet[Any], ...]
    key_frame: bool
    pts: int
    results: str


class Watcher(Protocol):
    """Who gets the pictures of a rendition."""

    def offer(self, picture: EncodedPicture) -> None:
        """Take a picture; from the rendition's thread, must not wait."""


@dataclass(frozen=True, slots=True)
class RenditionKey:
    """Which of a stream's renditions.

    Attributes:
        codec: Of the video.
        height: In pixels at most; smaller pictures stay as they are.
        overlay: Whether the objects are drawn.
    """

    codec: Codec
    height: int
    overlay: bool = True


BIT_RATES = {720: 2_500_000, 360: 900_000, 180: 300_000}
HEIGHTS = tuple(BIT_RATES)

Render = Callable[[TrackedFrame, int, bool], av.VideoFrame]


class Rendition:
    """Draws and encodes in a thread of its own, from the first watcher to the last.

    Args:
        key: What to encode.
        subscription: The stream's frames; cancelled at the end.
        render: Gives a frame as a yuv420p picture of even sides, at most so many pixels high, with the objects drawn or
            not.
        clock: The machine's own when None.
    """

    def __init__(
        self, key: RenditionKey, subscription: Channel[TrackedFrame], render: Render, clock: Clock | None = None
    ) -> None:
        self.key = key
        self._subscription = subscription
        self._render = render
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._watchers: list[Watcher] = []
        self._wants_key_frame = True
        self._key_frame_s = float("-inf")
        self._encoder: VideoEncoder | None = None
        self._source_pts: int | None = None
        self._pts = 0
        self._thread = threading.Thread(target=self._run, name=f"sam3_stream-rendition-{key.height}", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""
        return not self._thread.is_alive()

    def add(self, watcher: Watcher) -> None:
        """Give somebody the pictures from the next key frame on, which comes soon."""
        with self._lock:
            self._watchers.append(watcher)
        self.request_key_frame()

    def remove(self, watcher: Watcher) -> int:
        """Give somebody no more pictures; how many watch still."""
        with self._lock:
            self._watchers = [each for each in self._watchers if each is not watcher]
            return len(self._watchers)

    def request_key_frame(self) -> None:
        """Have one of the next frames be a key frame."""
        self._wants_key_frame = True

    def close(self) -> None:
        """Stop the thread. Does not wait for it."""
        self._subscription.cancel()

    def _run(self) -> None:
        try:
            for tracked in self._subscription:
                self._pass_on(tracked)
        except Cancelled:
            pass
        except Exception:
            _log.exception("the rendition %s of a stream has failed", self.key)
            self._subscription.cancel()

    def _pass_on(self, tracked: TrackedFrame) -> None:
        picture = self._render(tracked, self.key.height, self.key.overlay)
        size = picture.width, picture.height
        if self._encoder is None or self._encoder.size != size:
            self._encoder = VideoEncoder(self.key.codec, *size, BIT_RATES[self.key.height])
            self._wants_key_frame = True
        now_s = self._clock.monotonic_s()
        key_frame = self._wants_key_frame and now_s - self._key_frame_s >= _KEY_FRAME_SPACING_S
        if key_frame:
            self._wants_key_frame, self._key_frame_s = False, now_s
        pts = self._next_pts(tracked)
        packets = tuple(self._encoder.encode(picture, pts, key_frame=key_frame))
        if not packets:
            return
        encoded = EncodedPicture(packets, any(each.is_keyframe for each in packets), pts, self._results(tracked))
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.offer(encoded)

    def _next_pts(self, tracked: TrackedFrame) -> int:
        """Stream time in the units of RTP, which goes on when the stream is restarted."""
        frame = tracked.frame
        source_pts = int(frame.pts * frame.time_base / RTP_TIME_BASE)
        ticks = USUAL_TICKS if self._source_pts is None else source_pts - self._source_pts
        self._source_pts = source_pts
        self._pts += ticks if 0 < ticks < _LONGEST_GAP_TICKS else USUAL_TICKS
        return self._pts

    def _results(self, tracked: TrackedFrame) -> str:
        message: dict[str, Any] = results_message(tracked)
        capture_s = tracked.frame.capture_time_s
        if capture_s is not None:
            message["age_ms"] = round(1000 * max(0.0, self._clock.wall_s() - capture_s), 1)
        return json.dumps(message, separators=(",", ":"))


class Renditions:
    """The renditions of one stream that somebody watches.

    Args:
        subscribe: Begins a subscription to the stream's frames.
        render: See `Rendition`.
    """

    def __init__(self, subscribe: Callable[[], Channel[TrackedFrame]], render: Render) -> None:
        self._subscribe = subscribe
        self._render = render
        self._lock = threading.Lock()
        self._running: dict[RenditionKey, Rendition] = {}

    def watch(self, key: RenditionKey, watcher: Watcher) -> Rendition:
        """Give somebody a rendition's pictures, which is begun if need be.

        Raises:
            CapacityError: The stream has too many subscribers.
        """
        with self._lock:
            rendition = self._running.get(key)
            if rendition is None or rendition.ended:
                rendition = self._running[key] = Rendition(key, self._subscribe(), self._render)
            rendition.add(watcher)
            return rendition

    def leave(self, rendition: Rendition, watcher: Watcher) -> None:
        """Give somebody no more; whoever is the last ends the rendition."""
        with self._lock:
            if rendition.remove(watcher) == 0:
                rendition.close()
                if self._running.get(rendition.key) is rendition:
                    del self._running[rendition.key]
