"""What a live stream says of itself, for sinks, metrics and whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

StreamState = Literal["connecting", "live", "stalled", "reconnecting", "ended", "failed"]
STREAM_STATES: tuple[StreamState, ...] = ("connecting", "live", "stalled", "reconnecting", "ended", "failed")


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How a live source is.

    Attributes:
        state: ``connecting`` until the first picture ever; ``live``; ``stalled`` while nothing comes over an open
            connection; ``reconnecting``; ``ended`` when it was stopped or came to its end; ``failed`` for good.
        reason: Why it is not live, in one line without credentials; empty when it is.
        connections: How many connections have shown a picture.
        decoded: How many pictures have been decoded.
        corrupt: How many of them the decoder flagged as damaged or concealed.
        dropped: Pictures that were not passed on, by reason: ``overflow`` (the pipeline was busy and a newer one came),
            ``undecodable``, ``no_key_frame`` (damaged, or built on a damaged one).
        fps: Pictures per second that come in, over the last seconds.
        hanging: Connections given up on that FFmpeg has not let go of yet.
    """

    state: StreamState
    reason: str = ""
    connections: int = 0
    decoded: int = 0
    corrupt: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    fps: float = 0.0
    hanging: int = 0
