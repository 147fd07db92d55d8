"""What the streams of one process tell each other, so that they share a machine fairly."""

from __future__ import annotations


class SharedLoad:
    """How busy each stream keeps what they share: the encoder, the device.

    A stream that measures only its own waiting cannot see whom it makes wait. Here it can; and none has to leave the
    others more than their fair share.
    """

    def __init__(self) -> None:
        self._business: dict[str, float] = {}

    def post(self, stream_id: str, business: float) -> None:
        """Say which share of the time a stream works at its present setting."""
        self._business[stream_id] = business

    def leave(self, stream_id: str) -> None:
        """Forget a stream that has ended."""
        self._business.pop(stream_id, None)

    def taken_by_others(self, stream_id: str) -> float:
        """Share of the time that a stream has to leave to the others."""
        others = [business for other, business in list(self._business.items()) if other != stream_id]
        return min(sum(others), len(others) / (len(others) + 1))
