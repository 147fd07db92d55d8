"""What a live stream says of itself, for sinks, metrics and whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sam3_stream.core.records import RateFacts

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


@dataclass(frozen=True, slots=True)
class StreamReport:
    """How a stream is, from its source to its sinks.

    Attributes:
        name: The stream's name.
        state: As in `SourceStatus`; ``failed`` also when something behind the source has failed.
        reason: Why it is not live, in one line without credentials.
        source: How the source is.
        frames_out: How many tracked frames have come out.
        fps_out: Tracked frames per second, over the last seconds.
        age_s: How old the newest result was when it came out, in seconds; None before the first.
        objects: How many objects are present in it.
        resolution: (width, height) in pixels that the model saw; None before the first result.
        restarts: How often tracking had to start anew.
        encode_s: Seconds spent encoding so far, waiting for a turn included.
        track_s: Seconds spent tracking so far.
        queued: Frames that wait, by place: ``source`` and the names of the sinks.
        dropped: Frames that were dropped, by place and reason: (``source``, ``overflow``), (NAME, ``overflow``), …
        sink_errors: What has ended a sink for good.
        states: How many frames have come out by how their masks came about: ``tracked``, ``propagated``, ``held``.
        rate: The setting of rate control; None where the rate is not controlled, and before the first frame.
        rate_changes: How often that setting has changed.
    """

    name: str
    state: StreamState
    reason: str
    source: SourceStatus
    frames_out: int = 0
    fps_out: float = 0.0
    age_s: float | None = None
    objects: int = 0
    resolution: tuple[int, int] | None = None
    restarts: int = 0
    encode_s: float = 0.0
    track_s: float = 0.0
    queued: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[tuple[str, str], int] = field(default_factory=dict)
    sink_errors: tuple[str, ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    rate: RateFacts | None = None
    rate_changes: int = 0
