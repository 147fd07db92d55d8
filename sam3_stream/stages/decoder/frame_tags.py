"""Two tags of a decoded frame that swscale heeds and PyAV hides: where its chroma samples lie, and its fields."""

from __future__ import annotations

import threading
from fractions import Fraction
from functools import cache

import av
import numpy as np

CHROMA_LOCATIONS = ("center", "left", "topleft", "top", "bottomleft", "bottom")
_SIDE = 16
_per_thread = threading.local()


class ChromaLocations:
    """Tells where the chroma samples of a stream's frames lie. It looks again at every key frame."""

    def __init__(self) -> None:
        self._known = ""

    def of(self, frame: av.VideoFrame) -> str:
        """One of `CHROMA_LOCATIONS`."""
        if not self._known or frame.key_frame:
            self._known = _by_pattern().get(_probe(frame), CHROMA_LOCATIONS[0])
        return self._known


class FrameTagger:
    """Gives frames that were made here the tags that they had where they were decoded."""

    def __init__(self) -> None:
        self._graph: tuple[object, av.filter.Graph] | None = None

    @classmethod
    def of_this_thread(cls) -> FrameTagger:
        """This thread's own: one must not be used by two threads at once."""
        if not hasattr(_per_thread, "tagger"):
            _per_thread.tagger = cls()
        tagger: FrameTagger = _per_thread.tagger
        return tagger

    def tag(self, frame: av.VideoFrame, chroma_location: str, interlaced: bool) -> av.VideoFrame:
        """The frame with these tags; its pixels are shared, not copied.

        Raises:
            FFmpegError: There is no such location.
        """
        if chroma_location == CHROMA_LOCATIONS[0] and not interlaced:
            return frame
        key = (frame.width, frame.height, frame.format.name, chroma_location, interlaced)
        if self._graph is None or self._graph[0] != key:
            self._graph = key, _tagging_graph(frame, chroma_location, interlaced)
        graph = self._graph[1]
        graph.push(frame)
        tagged = graph.pull()
        assert isinstance(tagged, av.VideoFrame)
        return tagged


def _tagging_graph(frame: av.VideoFrame, chroma_location: str, interlaced: bool) -> av.filter.Graph:
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, av.time_base)
    )
    field_mode = "tff" if interlaced else "auto"
    tags = graph.add("setparams", f"chroma_location={chroma_location}:field_mode={field_mode}")
    sink = graph.add("buffersink")
    source.link_to(tags)
    tags.link_to(sink)
    graph.configure()
    return graph


def _probe(frame: av.VideoFrame) -> bytes:
    """What becomes of a pattern in a frame with this one's tags when it is converted and enlarged."""
    small = frame.reformat(width=_SIDE, height=_SIDE, format="yuv420p", threads=1)
    for number, plane in enumerate(small.planes):
        rows = plane.buffer_size // plane.line_size
        pixels = np.frombuffer(memoryview(plane), np.uint8).reshape(rows, plane.line_size)
        ramp = np.arange(rows)[:, None] * 13 + np.arange(plane.line_size) * 29
        pixels[:] = 128 if number == 0 else ramp % 200 + 20
    return small.reformat(width=_SIDE * 3 // 2, height=_SIDE * 3 // 2, format="rgb24", threads=1).to_ndarray().tobytes()


@cache
def _by_pattern() -> dict[bytes, str]:
    patterns = {}
    for interlaced in (False, True):
        for location in reversed(CHROMA_LOCATIONS):
            frame = av.VideoFrame(_SIDE, _SIDE, "yuv420p")
            patterns[_probe(FrameTagger().tag(frame, location, interlaced))] = location
    return patterns
