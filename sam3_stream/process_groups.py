"""The part of a job that one process group runs: its stages, and an edge to the group before and after it.

A group can always be started again. Whoever is downstream says from which frame on it wants the stream
(`transport.signals.Want`), and the group makes it from there: the decoder by leaving frames out, the tracker from its
last checkpoint, the sinks from what their outputs hold already. So a killed process costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from sam3_stream.build import (
    check_outputs,
    check_prompts,
    expected_frames,
    open_config_source,
    open_control,
    prompt_of,
    sink_of,
)
from sam3_stream.config.models import (
    CutoutConfig,
    DavisConfig,
    JobConfig,
    MasksConfig,
    OverlayConfig,
    RedactConfig,
    SinkConfig,
    ZeroMqConfig,
)
from sam3_stream.config.processes import EDGES, STAGES, EdgeConfig
from sam3_stream.core.errors import ConfigError, Sam3StreamError
from sam3_stream.core.masks_format import run_header
from sam3_stream.core.records import RunHeader, StreamInfo, TrackedFrame
from sam3_stream.models.loading import load_model
from sam3_stream.models.protocols import PortableFeatures, VideoModel
from sam3_stream.runtime.channel import OverflowPolicy
from sam3_stream.runtime.pipeline import Pipeline
from sam3_stream.runtime.section import Section
from sam3_stream.runtime.worker import Stage
from sam3_stream.stages.decoder import FrameSource, open_source
from sam3_stream.stages.decoder.realtime import RealtimeSource
from sam3_stream.stages.decoder.wire_picture import RawPictures
from sam3_stream.stages.encoder import ImageEncoder
from sam3_stream.stages.memory_tracker import MemoryTracker
from sam3_stream.stages.memory_tracker.checkpoints import CheckpointStore, ResumePoint
from sam3_stream.stages.memory_tracker.request_journal import RequestJournal
from sam3_stream.stages.sinks import CutoutSink, DavisSink, MasksSink, OverlaySink, RedactSink
from sam3_stream.stages.sinks.piecewise import PiecewiseSink
from sam3_stream.stages.sinks.protocol import ResumableSink
from sam3_stream.stages.sinks.zeromq import ZeroMqSink
from sam3_stream.transport.control import ControlServer
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.h264 import H264Pictures
from sam3_stream.transport.keys import load_keys
from sam3_stream.transport.pictures import JpegPictures, NoPictures, PictureCodec
from sam3_stream.transport.receiver import ReceiverLink, SocketReceiver
from sam3_stream.transport.records import FeatureCodec, RecordCodec
from sam3_stream.transport.sender import SenderLink

_CHECKPOINTS_KEPT = 3
_CHECKPOINT_INTERVAL, _LIVE_CHECKPOINT_INTERVAL = 100, 10
_ANY = 1 << 62
_LIVE_RESULTS = 32
_FAREWELL_S = 5.0

Watch = Callable[[Iterator[TrackedFrame], int | None], Iterable[TrackedFrame]]


class ProcessGroup:
    """One group of a job.

    Args:
        config: The job; all its groups are given the same.
        name: Name of the group.

    Raises:
        UsageError: The group cannot do its part: an unknown name, an address that is taken, no such model, ….
    """

    def __init__(self, config: JobConfig, name: str) -> None:
        self.stages = config.processes.stages_of(name)
        if not self.stages:
            known = ", ".join(config.processes.groups)
            raise ConfigError(f"no stage is in the group {name!r}; the config's groups are {known}")
        self._config = config
        self._live = config.source.realtime
        self._folder = run_folder(config) / name
        self._model: VideoModel | None = None
        self._receiver: ReceiverLink | None = None
        self._sender: SenderLink | None = None
        self._control: ControlServer | None = None
        self._running: Section | Pipeline | None = None
        self._stopped = False
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def run(self, watch: Watch | None = None) -> Sequence[BaseException]:
        """Do the group's part until everybody downstream is done.

        Args:
            watch: Given the tracked frames and how many are expected, passes them through; for showing progress. Only
                the group with the sinks calls it.

        Returns:
            What went wrong in this group, in flow order. Errors from upstream are not among them.
        """
        errors: Sequence[BaseException] = ()
        while (number := self._next_wanted()) is not None:
            errors = self._run_from(number, watch)
            if self._sender is None:
                break
        if self._receiver is not None:
            self._receiver.say_farewell(_FAREWELL_S)
        return errors

    def stop(self) -> None:
        """Take no more frames and finish what is under way. For the group that decodes; any thread may call it."""
        self._stopped = True
        if self._running is not None:
            self._running.stop()

    def close(self) -> None:
        """Let go of sockets and the model."""
        for link in (self._receiver, self._sender):
            if link is not None:
                link.stop()
        if self._control is not None:
            self._control.close()
        if self._model is not None:
            self._model.close()

    def _connect(self) -> None:
        processes, model = self._config.processes, self._config.model
        if "encoder" in self.stages or "memory_tracker" in self.stages:
            self._model = load_model(model.name, device=model.device, **model.options)
            for prompt in (prompt_of(each) for each in self._config.prompts):
                self._model.check_prompt(prompt)
        if "memory_tracker" in self.stages:
            self._control = open_control(self._config.control)
        first, last = STAGES.index(self.stages[0]), STAGES.index(self.stages[-1])
        if first > 0:
            name, edge = EDGES[first - 1], self._edge(first - 1)
            self._receiver = ReceiverLink(
                self._endpoint(name, edge),
                self._codec(first - 1),
                policy=self._policy(name),
                capacity=_LIVE_RESULTS,
                window_bytes=edge.window_bytes,
                heartbeat_s=processes.heartbeat_s,
                name=name,
            )
        if last < len(EDGES):
            name, edge = EDGES[last], self._edge(last)
            self._sender = SenderLink(
                self._endpoint(name, edge),
                self._codec(last),
                policy=self._policy(name),
                capacity=_LIVE_RESULTS,
                heartbeat_s=processes.heartbeat_s,
                name=name,
            )

    def _policy(self, edge: str) -> OverflowPolicy:
        """A live stream waits for nobody: its newest frame counts, and of its results the newest few."""
        if not self._live:
            return "block"
        return "drop_oldest" if edge == "results" else "latest"

    def _edge(self, index: int) -> EdgeConfig:
        edge: EdgeConfig = getattr(self._config.processes.edges, EDGES[index])
        return edge

    def _endpoint(self, name: str, edge: EdgeConfig) -> Endpoint:
        keys = self._config.processes.keys
        address = edge.address or f"ipc://{run_folder(self._config)}/{name}.sock"
        return Endpoint(address, None if keys is None else load_keys(keys))

    def _codec(self, index: int) -> RecordCodec:
        features, model = None, cast("object", self._model)
        if EDGES[index] == "features":
            if not isinstance(model, PortableFeatures):
                raise ConfigError(
                    f"the features of the model {self._config.model.name} cannot go from one process to another; "
                    "give encoder and memory_tracker the same group"
                )
            features = FeatureCodec(model.features_to_arrays, model.features_from_arrays)
        return RecordCodec(self._pictures(index), features)

    def _pictures(self, index: int) -> PictureCodec:
        edge = self._edge(index)
        # A model may look at pixels again when it tracks; a masks file never does.
        if EDGES[index] == "results" and not any(_looks_at_pixels(each) for each in self._config.sinks):
            return NoPictures()
        if edge.pictures == "h264":
            return H264Pictures(edge.h264_bitrate)
        return JpegPictures(edge.jpeg_quality) if edge.pictures == "jpeg" else RawPictures()

    def _next_wanted(self) -> int | None:
        """Number of the frame to go on with; None when nobody wants any more."""
        if self._sender is not None:
            return self._sender.wait_for_want()
        return min((sink.next_sequence for sink in self._make_sinks()), default=0)

    def _run_from(self, number: int, watch: Watch | None) -> Sequence[BaseException]:
        """Make the stream from a frame on, until it ends or is wanted from another; the errors that are our own."""
        resume = self._resume_point(number)
        first = number
        if "memory_tracker" in self.stages:
            first = 0 if resume is None else resume.checkpoint.first_sequence
        source, info, header = self._open_source(first)
        try:
            if self._sender is None:
                errors = self._run_sinks(source, self._make_stages(info, resume), info, header, watch)
            else:
                outbox = self._sender.begin(number, info, header)
                errors = self._run_section(source, lambda: self._make_stages(info, resume), outbox)
        finally:
            source.close()
        upstream = source.error if isinstance(source, SocketReceiver) else None
        return [error for error in errors if error is not upstream]

    def _run_section(
        self, source: FrameSource | SocketReceiver, make_stages: Callable[[], list[Stage]], outbox: Any
    ) -> Sequence[BaseException]:
        try:
            section = self._running = Section(source, make_stages(), outbox, policy=self._policy(EDGES[0]))
        except Sam3StreamError as error:
            outbox.fail(error)
            return [error]
        outbox.on_abandon = section.cancel
        if outbox.cancelled:  # already: it was wanted from another place while the source was being opened
            return ()
        if self._stopped:
            section.stop()
        section.run()
        return section.errors

    def _run_sinks(
        self,
        source: FrameSource | SocketReceiver,
        stages: list[Stage],
        info: StreamInfo,
        header: RunHeader,
        watch: Watch | None,
    ) -> Sequence[BaseException]:
        pipeline = Pipeline(
            _WithInfo(source, info),
            stages,
            header=header,
            sinks=self._make_sinks(),
            policy=self._policy(EDGES[0] if stages else EDGES[-1]),
        )
        self._running = pipeline
        frames = _until_error(pipeline)
        for _ in frames if watch is None else watch(frames, expected_frames(self._config.source, info)):
            pass
        return pipeline.errors

    def _open_source(self, first: int) -> tuple[FrameSource | SocketReceiver, StreamInfo, RunHeader]:
        if self._receiver is not None:
            receiver = self._receiver.begin(first, keep_sender=True)
            info, header = receiver.wait_for_open()
            return receiver, info, self._header(header)
        window = self._config.source
        decoder = open_source(
            window.path,
            start_s=window.start_s,
            end_s=window.end_s,
            max_frames=window.max_frames,
            first_sequence=first,
        )
        source = RealtimeSource(decoder) if self._live else decoder
        return source, decoder.info, self._header(RunHeader(str(window.path), ""))

    def _header(self, header: RunHeader) -> RunHeader:
        """The run's header, which is known where the model is."""
        if self._model is None:
            return header
        prompts = [prompt_of(each) for each in self._config.prompts]
        return run_header(str(self._config.source.path), self._model.name, prompts)

    def _make_stages(self, info: StreamInfo, resume: ResumePoint | None) -> list[Stage]:
        stages: list[Any] = []
        if self._model is not None and "encoder" in self.stages:
            stages.append(ImageEncoder(self._model))
        if self._model is not None and "memory_tracker" in self.stages:
            prompts = [prompt_of(each) for each in self._config.prompts]
            check_prompts(prompts, self._config.source, info)
            journal = RequestJournal(
                self._folder / "requests", 0 if resume is None else resume.checkpoint.first_sequence
            )
            tracker = MemoryTracker(
                self._model, prompts, checkpoints=self._checkpoints(), resume=resume, journal=journal
            )
            if self._control is not None:
                self._control.controlled = tracker
            stages.append(tracker)
        return stages

    def _checkpoints(self) -> CheckpointStore:
        interval_frames = _LIVE_CHECKPOINT_INTERVAL if self._live else _CHECKPOINT_INTERVAL
        return CheckpointStore(self._folder / "tracker", interval_frames, kept=_CHECKPOINTS_KEPT)

    def _resume_point(self, number: int) -> ResumePoint | None:
        if "memory_tracker" not in self.stages:
            return None
        if number == 0:
            self._checkpoints().discard()
        # A live stream goes on with now: its newest state is the best. A file's must be from before the frame wanted.
        checkpoint = self._checkpoints().newest(_ANY if self._live else number)
        return None if checkpoint is None else ResumePoint(checkpoint)

    def _make_sinks(self) -> list[ResumableSink]:
        return [make_sink(each, index, self._config, self._folder) for index, each in enumerate(self._config.sinks)]


class _WithInfo:
    """A pipeline's source over a group's."""

    def __init__(self, source: FrameSource | SocketReceiver, info: StreamInfo) -> None:
        self.info = info
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return iter(self._source)

    def close(self) -> None:
        """The group closes it, once it has looked at how it ended."""


def _until_error(pipeline: Pipeline) -> Iterator[TrackedFrame]:
    """Every frame; errors are in `Pipeline.errors`, unless the pipeline could not even begin."""
    try:
        yield from pipeline
    except Sam3StreamError:
        if not pipeline.errors:
            raise


def make_sink(config: SinkConfig, index: int, job: JobConfig, folder: Path) -> ResumableSink:
    """A sink that goes on where the outputs of an earlier process end.

    Args:
        config: The output.
        index: Its place among the job's outputs.
        job: The job.
        folder: Where it may keep what it needs for that.
    """
    segments = folder / f"{index}-{config.type}"
    if isinstance(config, ZeroMqConfig):
        return ZeroMqSink(config.address, keys=config.keys, masks=config.masks, position=segments)
    sound: Any = {"audio_from": job.source.path, "start_s": job.source.start_s}
    if isinstance(config, OverlayConfig):
        return PiecewiseSink("overlay", config.path, OverlaySink, segments, force=True, **sound)
    if isinstance(config, RedactConfig):
        return PiecewiseSink("redact", config.path, RedactSink, segments, force=True, **sound)
    if isinstance(config, CutoutConfig) and config.path.suffix.lower() == ".webm":
        return PiecewiseSink("cutout", config.path, CutoutSink, segments, force=True)
    if isinstance(config, CutoutConfig):
        return CutoutSink(config.path, resume=True)
    if isinstance(config, DavisConfig):
        return DavisSink(config.path, resume=True)
    assert isinstance(config, MasksConfig)
    return MasksSink(config.path, resume=True)


def prepare(config: JobConfig, group: str) -> None:
    """Before a group is started for the first time: check what can be checked, and clear away what earlier jobs left.

    Raises:
        UsageError: The source, a prompt or an output cannot be used.
    """
    processes = config.processes
    if "decoder" in processes.stages_of(group):
        source = open_config_source(config.source)
        source.close()
        check_prompts([prompt_of(each) for each in config.prompts], config.source, source.info)
    if config.resume:
        return
    if "sinks" in processes.stages_of(group):
        check_outputs([sink_of(each, config) for each in config.sinks], config)
        for each in config.file_sinks:
            _remove(each.path)
    shutil.rmtree(run_folder(config) / group, ignore_errors=True)


def _remove(output: Path) -> None:
    """Remove an output of an earlier job; of a folder only the numbered pictures."""
    if output.is_file():
        output.unlink()
    for picture in output.glob("*.png"):
        if picture.stem.isdecimal():
            picture.unlink()


def run_folder(config: JobConfig) -> Path:
    """Where the local groups of this job have their sockets and what they need to be started again."""
    if config.processes.directory is not None:
        return config.processes.directory.absolute()
    tree = config.model_dump(mode="json", exclude={"resume", "force"})
    digest = hashlib.sha256(json.dumps([str(Path.cwd()), tree], sort_keys=True).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"sam3_stream-{os.getuid()}-{digest}"


def _looks_at_pixels(config: SinkConfig) -> bool:
    return not isinstance(config, MasksConfig | DavisConfig | ZeroMqConfig)
