"""At what time of an output a frame of the input is shown."""

from __future__ import annotations

from fractions import Fraction

from sam3_stream.core.records import Frame, StreamInfo

MAX_START_S = 10
_USUAL_RATE = Fraction(25)


class Timeline:
    """Places frames in a video, in the input's own time base.

    Time stamps stay those of the input as long as it starts within its first 10 seconds. A later start (a window of the
    input, a live source) would be a long wait in a player, so such a video begins at its first frame.

    Args:
        info: What is known of the stream.
        is_window: Whether the frames are a window of the input, with a start of its own.

    Attributes:
        rate: Frames per second, as the input names them or as is usual.
        step: About the distance between two frames, in units of the time base.
        origin: The time stamp of the input that is 0 in the video.
        end: When the last frame so far ends, in the video.
        frames: How many frames have been placed.
    """

    def __init__(self, info: StreamInfo, *, is_window: bool) -> None:
        self.rate = info.average_rate or _USUAL_RATE
        self.step = max(1, round(1 / self.rate / info.time_base))
        self.origin = 0
        self.end = 0
        self.frames = 0
        self._is_window = is_window
        self._last = -1

    def place(self, frame: Frame) -> int:
        """The frame's time stamp in the video: its own, made to increase where the input's does not."""
        if self.frames == 0 and (self._is_window or not 0 <= frame.pts * frame.time_base <= MAX_START_S):
            self.origin = frame.pts
        elif frame.discontinuity and frame.pts - self.origin <= self._last:
            self.origin = frame.pts - self._last - self.step
        self._last = max(frame.pts - self.origin, self._last + 1)
        self.end = self._last + self.step
        self.frames += 1
        return self._last
