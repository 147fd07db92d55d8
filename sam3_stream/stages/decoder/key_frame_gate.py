"""Keeps pictures that build on damaged ones out of the tracker's memory."""

from __future__ import annotations


class KeyFrameGate:
    """Passes pictures on from a key frame up to the next damage.

    Lost packets damage one picture and smear all that build on it, and the decoder flags the first of them only. A
    stream that sends no key frames (intra refresh) is let through again after `max_wait_s`.

    Args:
        enabled: When False, everything passes.
        max_wait_s: How long to wait for a key frame at most, in seconds.
    """

    def __init__(self, enabled: bool, max_wait_s: float = 10.0) -> None:
        self._enabled = enabled
        self._max_wait_s = max_wait_s
        self._is_waiting = enabled
        self._waiting_since_s: float | None = None

    def damaged(self) -> None:
        """Say that a picture is missing."""
        if self._enabled and not self._is_waiting:
            self._is_waiting, self._waiting_since_s = True, None

    def admits(self, *, key_frame: bool, corrupt: bool, now_s: float) -> bool:
        """Whether the next picture may pass.

        Args:
            key_frame: Whether it builds on no other.
            corrupt: Whether the decoder flagged it as damaged or concealed.
            now_s: Now, on a monotonic clock.
        """
        if not self._enabled:
            return True
        if corrupt:
            self.damaged()
        elif key_frame:
            self._is_waiting, self._waiting_since_s = False, None
        if not self._is_waiting:
            return True
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if now_s - self._waiting_since_s < self._max_wait_s:
            return False
        self._is_waiting = False
        return True
