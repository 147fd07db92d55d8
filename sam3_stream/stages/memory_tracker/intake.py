"""Where frames wait for a tracker that holds a rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sam3_stream.core.clock import Clock
from sam3_stream.core.records import Frame
from sam3_stream.runtime.channel import Channel
from sam3_stream.runtime.worker import Worker


class Intake:
    """Takes frames from a source in a thread of its own, notes when they came, and lets some wait.

    Args:
        inbox: The source, or the channel from it.
        capacity: How many frames may wait. When there are more, a live stream loses the oldest; a file waits.
        live: Whether the source cannot be made to wait.
        admit: Says whether a frame is to wait at all; called in the thread.
        clock: Tells when frames come.

    Attributes:
        arrived_s: When the frame came that was taken last, on the clock's monotonic time.
    """

    def __init__(
        self, inbox: Iterable[Frame], capacity: int, *, live: bool, admit: Callable[[Frame], bool], clock: Clock
    ) -> None:
        self._channel: Channel[tuple[float, Frame]] = Channel(capacity, "drop_oldest" if live else "block", "intake")
        self._inbox = inbox
        self._admit = admit
        self._clock = clock
        self.arrived_s = 0.0

    @property
    def waiting(self) -> int:
        """How many frames wait."""
        return len(self._channel)

    @property
    def dropped(self) -> int:
        """How many frames have been lost because newer ones came."""
        return self._channel.dropped

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames in order; ends, or raises, as the source does."""
        Worker("intake", self._take_in, outbox=self._channel).start()
        try:
            for arrived_s, frame in self._channel:
                self.arrived_s = arrived_s
                yield frame
        finally:
            self._channel.cancel()  # whoever iterates may have given up

    def _take_in(self) -> None:
        for frame in self._inbox:
            if self._admit(frame):
                self._channel.put((self._clock.monotonic_s(), frame))
