"""Config -> live streams that share one model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from sam3_stream.build import prompt_of
from sam3_stream.config.live import (
    LiveJobConfig,
    LiveSinkConfig,
    LiveSourceConfig,
    PushConfig,
    SegmentsConfig,
    StreamConfig,
)
from sam3_stream.config.models import ZeroMqConfig
from sam3_stream.config.preview import LoopedFileConfig, PreviewConfig, PreviewStreamConfig, WhipSourceConfig
from sam3_stream.core.clock import SystemClock
from sam3_stream.core.errors import Sam3StreamError, SinkError, StreamError
from sam3_stream.core.masks_format import run_header
from sam3_stream.core.records import EncodedFrame, Frame
from sam3_stream.core.stream_status import SourceStatus, StreamReport
from sam3_stream.models.loading import load_model
from sam3_stream.models.protocols import Resolution, VideoModel
from sam3_stream.runtime.fair_batcher import FairBatcher
from sam3_stream.runtime.pipeline import Pipeline
from sam3_stream.runtime.service import StreamService
from sam3_stream.runtime.shared_load import SharedLoad
from sam3_stream.stages.decoder.live import LiveDecoder
from sam3_stream.stages.decoder.looped_file import LoopedFileDecoder
from sam3_stream.stages.decoder.opening_live import display_address
from sam3_stream.stages.decoder.pushed import PushedDecoder
from sam3_stream.stages.memory_tracker import LiveTracker, RateGate
from sam3_stream.stages.memory_tracker.live_state import LiveState
from sam3_stream.stages.memory_tracker.rate_gate import Encode
from sam3_stream.stages.sinks import MasksSink, OverlaySink, PushSink, RedactSink, SegmentsSink, Sink
from sam3_stream.stages.sinks.meter import MeterSink
from sam3_stream.stages.sinks.zeromq import ZeroMqSink

_QUEUE_SIZE = 2

EncodeRequest = tuple[Frame, Resolution | None]


class LiveStream:
    """One stream: decoder, tracker and sinks; runs until it is stopped or fails.

    Args:
        config: What to open, what to track, where the results go.
        model: Shared with other streams.
        encode: Encodes a frame with the model, in turn with other streams.
        extra_sinks: Sinks beside those of the config.
        encode_at: Encodes a frame at a resolution, in turn with others, for rate control; `model` does when None.
        shared: What the streams that share the model know of each other.
        state: Where the objects and what was said of them are kept over restarts.
        recent_frames: How many frames are kept for prompts on a frame that the user has seen; 0 for none.

    Raises:
        UsageError: A prompt, an output or the model cannot be used.
    """

    def __init__(
        self,
        config: StreamConfig | PreviewStreamConfig,
        model: VideoModel,
        encode: Callable[[Frame], EncodedFrame],
        extra_sinks: tuple[Sink, ...] = (),
        encode_at: Encode | None = None,
        shared: SharedLoad | None = None,
        state: LiveState | None = None,
        recent_frames: int = 0,
    ) -> None:
        self.name = config.name
        prompts = [prompt_of(each) for each in config.prompts]
        waits = isinstance(config.source, LiveSourceConfig) and config.source.mode == "every_frame"
        self.rate: RateGate | None = None
        if config.target_fps is not None:
            self.rate = RateGate(config, model, encode_at, live=not waits, stream_id=config.name, shared=shared)
        self.tracker = LiveTracker(
            model,
            encode,
            prompts,
            max_gap_s=config.max_gap_s,
            rate=self.rate,
            state=state,
            recent_frames=recent_frames,
            max_objects=config.max_objects,
        )
        self._meter = MeterSink()
        self._sinks = [*(_sink_of(each) for each in config.sinks), *extra_sinks]
        for sink in self._sinks:
            sink.check()
        self._decoder = _decoder_of(config, self._tell_sinks)
        self._pipeline = Pipeline(
            self._decoder,
            [self.tracker],
            header=run_header(source_name(config.source), model.name, prompts),
            sinks=[*self._sinks, self._meter],
            queue_size=_QUEUE_SIZE,
            policy="block" if waits else "latest",
            on_demand=True,
        )
        self._failure: Sam3StreamError | None = None

    def run(self) -> None:
        """Run until the stream ends or is stopped.

        Raises:
            Sam3StreamError: It has failed for good.
        """
        try:
            self._pipeline.run()
        except Sam3StreamError as error:
            if self._decoder.status.state == "ended" and isinstance(error, StreamError | SinkError):
                return  # stopped before its first picture, or without one of its sinks, as the report says
            self._failure = error
            raise

    def stop(self) -> None:
        """Take no more frames; what is under way is finished, and so are the outputs. From any thread."""
        self._pipeline.stop()

    @property
    def pushed(self) -> PushedDecoder | None:
        """Where pictures are handed in; None where the stream has another source."""
        return self._decoder if isinstance(self._decoder, PushedDecoder) else None

    def report(self) -> StreamReport:
        """How the stream is. From any thread."""
        source = self._decoder.status
        channels = {channel.name: channel for channel in self._pipeline.channels if channel.name != "meter"}
        dropped = {("source", reason): count for reason, count in source.dropped.items()}
        dropped |= {(name, "overflow"): channel.dropped for name, channel in channels.items()}
        for sink in self._sinks:
            if isinstance(sink, SegmentsSink | PushSink):
                dropped[sink.name, "unavailable"] = sink.lost_frames
        queued = {name: len(channel) for name, channel in channels.items()}
        if self.rate is not None:
            queued["intake"] = self.rate.waiting
            dropped |= {("rate", reason): count for reason, count in self.rate.dropped.items()}
        failed = self._failure is not None
        return StreamReport(
            name=self.name,
            state="failed" if failed else source.state,
            reason=str(self._failure) if failed else source.reason,
            source=source,
            frames_out=self._meter.frames,
            fps_out=self._meter.fps,
            age_s=self._meter.age_s,
            objects=self._meter.objects,
            resolution=self._meter.resolution,
            restarts=self.tracker.restarts,
            encode_s=self.tracker.encode_s,
            track_s=self.tracker.track_s,
            states=dict(self._meter.states),
            rate=None if self.rate is None else self.rate.facts,
            rate_changes=0 if self.rate is None else self.rate.changes,
            queued=queued,
            dropped=dropped,
            sink_errors=tuple(str(error) for error in self._pipeline.errors if isinstance(error, SinkError)),
        )

    def _tell_sinks(self, status: SourceStatus) -> None:
        for sink in self._sinks:
            if isinstance(sink, SegmentsSink):
                sink.on_status(status)


class LiveService:
    """The streams of a config and the model that they share.

    Args:
        config: The streams, the model, how many frames it encodes at once.
        model: Loaded already; loaded as the config says when None. Closed with the service either way.

    Raises:
        UsageError: The model, a prompt or an output cannot be used.
    """

    def __init__(self, config: LiveJobConfig | PreviewConfig, model: VideoModel | None = None) -> None:
        self._max_batch = config.max_batch
        self._use(model or load_model(config.model.name, device=config.model.device, **config.model.options))
        self._shared = SharedLoad()
        self._service: StreamService[LiveStream] = StreamService()
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            self._first = [self._build(stream) for stream in config.streams]
            on_error.pop_all()

    def start(self) -> None:
        """Start the streams of the config."""
        for stream in self._first:
            self._service.add(stream)

    def add(self, config: StreamConfig | PreviewStreamConfig) -> LiveStream:
        """Start another stream while the others run.

        Raises:
            UsageError: There is one of this name, or a prompt or an output cannot be used.
        """
        stream = self._build(config)
        self._service.add(stream)
        return stream

    def remove(self, name: str) -> None:
        """Stop a stream, finish its outputs and forget it.

        Raises:
            UsageError: There is no stream of this name.
        """
        self._service.remove(name)

    def stream(self, name: str) -> LiveStream:
        """The stream of this name.

        Raises:
            KeyError: There is none.
        """
        return {stream.name: stream for stream in self._service.streams}[name]

    def reports(self) -> list[StreamReport]:
        """How each stream is. From any thread."""
        return [stream.report() for stream in self._service.streams]

    @property
    def encoder_queue(self) -> int:
        """How many frames wait for the shared encoder."""
        return self._batcher.queue_depth

    def stop(self) -> None:
        """Take no more frames anywhere. From any thread."""
        self._service.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every stream has ended and its outputs are finished; True when they have."""
        return self._service.wait(timeout_s)

    def close(self) -> None:
        """Stop, wait for the outputs, free the model."""
        self.stop()
        self.wait()
        self._batcher.close()
        self.model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _build(self, config: StreamConfig | PreviewStreamConfig) -> LiveStream:
        return LiveStream(
            config, self.model, lambda frame: self._encode(frame)[0], encode_at=self._encode, shared=self._shared
        )

    def _use(self, model: VideoModel) -> None:
        """Encode with a model from now on; for streams that are built from now on."""
        self.model = model
        self._batcher: FairBatcher[EncodeRequest, tuple[EncodedFrame, float]] = FairBatcher(
            partial(_encode_batch, model), self._max_batch
        )

    def _encode(self, frame: Frame, resolution: Resolution | None = None) -> tuple[EncodedFrame, float]:
        return self._batcher((frame, resolution))


def _encode_batch(model: VideoModel, requests: Sequence[EncodeRequest]) -> list[tuple[EncodedFrame, float]]:
    """Encode frames for several streams, those of one resolution together; with when the model began with them."""
    clock = SystemClock()
    done: dict[int, tuple[EncodedFrame, float]] = {}
    for resolution in dict.fromkeys(resolution for _, resolution in requests):
        places = [place for place, request in enumerate(requests) if request[1] == resolution]
        began_s = clock.monotonic_s()
        frames = [requests[place][0] for place in places]
        encoded = model.encode(frames) if resolution is None else model.encode(frames, resolution)
        done |= {place: (each, began_s) for place, each in zip(places, encoded, strict=True)}
    return [done[place] for place in range(len(requests))]


def source_name(source: LiveSourceConfig | LoopedFileConfig | WhipSourceConfig) -> str:
    """A source as it may be shown."""
    if isinstance(source, LiveSourceConfig):
        return display_address(source)
    return str(source.path) if isinstance(source, LoopedFileConfig) else "a shared camera"


def _decoder_of(
    config: StreamConfig | PreviewStreamConfig, on_status: Callable[[SourceStatus], None]
) -> LiveDecoder | LoopedFileDecoder | PushedDecoder:
    source = config.source
    if isinstance(source, LoopedFileConfig):
        forth_and_back = source.loop == "forth_and_back"
        return LoopedFileDecoder(source.path, config.name, forth_and_back=forth_and_back, on_status=on_status)
    if isinstance(source, WhipSourceConfig):
        return PushedDecoder(config.name, on_status=on_status)
    return LiveDecoder(source, config.name, on_status=on_status)


_FILE_SINKS: dict[str, tuple[str, Callable[[Path], Sink]]] = {
    "overlay": (".mp4", partial(OverlaySink, start_s=0.0)),  # each file begins at zero
    "redact": (".mp4", partial(RedactSink, start_s=0.0)),
    "masks": (".jsonl", MasksSink),
}


def _sink_of(config: LiveSinkConfig) -> Sink:
    if isinstance(config, PushConfig):
        return PushSink(config.url, kbps=config.kbps)
    if isinstance(config, ZeroMqConfig):
        return ZeroMqSink(config.address, keys=config.keys, masks=config.masks)
    assert isinstance(config, SegmentsConfig)
    suffix, open_file = _FILE_SINKS[config.content]
    return SegmentsSink(
        config.folder,
        suffix,
        open_file,
        name=f"{config.content} segments",
        segment_seconds=config.segment_seconds,
        keep=config.keep,
        max_bytes=config.max_bytes,
        min_free_bytes=config.min_free_bytes,
    )
