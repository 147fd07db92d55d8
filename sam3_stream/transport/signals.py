"""What the two ends of an edge say to each other beside records: wants, ends, errors, heartbeats."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import msgspec

from sam3_stream.core import errors
from sam3_stream.core.records import RunHeader, StreamInfo
from sam3_stream.transport.wire_format import (
    FrameHeader,
    Header,
    MalformedMessageError,
    TrackedHeader,
    decoder_for,
)

TOPIC = ""


class Want(Header, kw_only=True, frozen=True, tag="want"):
    """The receiver's whole state: said at the start, whenever it changes, and a few times each heartbeat interval.

    Losing one does no harm, hearing one twice neither.

    Attributes:
        receiver: Random name of the receiver's process.
        session: Counts how often this receiver began to read anew.
        next: Number of the first message it has not got: where to begin, or to go on after a broken connection.
        consumed: It is done with every message before this number; their bytes are free to be sent again.
        window_bytes: So many bytes may be under way, and
        window_messages: so many messages.
        sent_s: The receiver's wall clock when it said so.
        state: ``open``, or ``done``: it wants nothing more, because it has all or because it gave up.
    """

    receiver: str
    session: int
    next: int
    consumed: int
    window_bytes: int
    window_messages: int
    sent_s: float
    state: Literal["open", "done"] = "open"


class Heartbeat(Header, kw_only=True, frozen=True, tag="heartbeat"):
    """The sender's answer to every want; by the three times the receiver knows how far the clocks are apart.

    Attributes:
        want_sent_s: `sent_s` of the want, on the receiver's clock.
        want_received_s: When it came, on the sender's clock.
        sent_s: When this was sent, on the sender's clock.
    """

    want_sent_s: float
    want_received_s: float
    sent_s: float


class StreamLayout(msgspec.Struct, kw_only=True, frozen=True):
    """`StreamInfo` in a header; fractions are [numerator, denominator]."""

    width: int
    height: int
    time_base: list[int]
    average_rate: list[int] | None = None
    frame_count: int | None = None
    duration_s: float | None = None
    rotation: int = 0
    sample_aspect_ratio: list[int] | None = None
    has_audio: bool = False

    @classmethod
    def of(cls, info: StreamInfo) -> StreamLayout:
        """The layout of a stream's facts."""
        return cls(
            width=info.width,
            height=info.height,
            time_base=_pair(info.time_base) or [],
            average_rate=_pair(info.average_rate),
            frame_count=info.frame_count,
            duration_s=info.duration_s,
            rotation=info.rotation,
            sample_aspect_ratio=_pair(info.sample_aspect_ratio),
            has_audio=info.has_audio,
        )

    def to_info(self) -> StreamInfo:
        """The stream's facts.

        Raises:
            MalformedMessageError: They make no sense.
        """
        try:
            return StreamInfo(
                self.width,
                self.height,
                Fraction(*self.time_base),
                _fraction(self.average_rate),
                self.frame_count,
                self.duration_s,
                self.rotation,
                _fraction(self.sample_aspect_ratio),
                self.has_audio,
            )
        except (ValueError, TypeError, ZeroDivisionError) as error:
            raise MalformedMessageError(str(error)) from error


class RunLayout(msgspec.Struct, kw_only=True, frozen=True):
    """`RunHeader` in a header."""

    input: str
    model: str
    prompts: list[dict[str, Any]]


class Open(Header, kw_only=True, frozen=True, tag="open"):
    """Before a session's first record: what stream this is.

    Attributes:
        session: The want's session that this answers.
        stream: Size, time base and so on.
        run: Input, model and prompts.
        live: Whether frames may be missing: the receiver counts gaps instead of asking for what it missed.
    """

    session: int
    stream: StreamLayout
    run: RunLayout
    live: bool = False

    def to_header(self) -> RunHeader:
        """What the run says of itself."""
        return RunHeader(self.run.input, self.run.model, tuple(self.run.prompts))


class End(Header, kw_only=True, frozen=True, tag="end"):
    """The stream is over: there is no message of this number."""

    number: int


class Failure(Header, kw_only=True, frozen=True, tag="error"):
    """The stream broke in the place of this message.

    Attributes:
        number: Number that the next message would have had.
        kind: Name of the error's class in `core.errors`.
        message: What a person is told.
    """

    number: int
    kind: str
    message: str

    @classmethod
    def of(cls, error: BaseException, number: int) -> Failure:
        """The signal of an error."""
        return cls(number=number, kind=type(error).__name__, message=str(error))

    def to_error(self) -> errors.Sam3StreamError:
        """An error of the same kind and words."""
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, errors.Sam3StreamError) and kind is not errors.StageError:
            return kind(self.message)
        return errors.RunError(self.message)


class Cancel(Header, kw_only=True, frozen=True, tag="cancel"):
    """The sender gave up; nothing of this session is of use any more."""

    session: int


class Bye(Header, kw_only=True, frozen=True, tag="bye"):
    """The sender has heard that the receiver is done."""

    session: int


SIGNAL_DECODER = decoder_for(FrameHeader | TrackedHeader | Heartbeat | Open | End | Failure | Cancel | Bye)
WANT_DECODER = decoder_for(Want)


def _pair(value: Fraction | None) -> list[int] | None:
    return None if value is None else [value.numerator, value.denominator]


def _fraction(pair: list[int] | None) -> Fraction | None:
    return None if pair is None else Fraction(*pair)
