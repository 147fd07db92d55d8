"""Config -> wired pipelines. The only module that knows every stage."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from sam3_stream.config.models import (
    BoxConfig,
    ClickConfig,
    ControlConfig,
    CutoutConfig,
    DavisConfig,
    ExemplarsConfig,
    JobConfig,
    MaskConfig,
    MasksConfig,
    OverlayConfig,
    PromptConfig,
    RedactConfig,
    SinkConfig,
    SourceConfig,
    ZeroMqConfig,
)
from sam3_stream.core.errors import OutputError, PromptError
from sam3_stream.core.masks_format import read_masks, run_header
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.prompts import BoxPrompt, ExemplarPrompt, MaskPrompt, PointPrompt, Prompt, TextPrompt
from sam3_stream.core.records import MaskArray, RunHeader, StreamInfo
from sam3_stream.models.loading import load_model
from sam3_stream.models.protocols import VideoModel
from sam3_stream.runtime.pipeline import Pipeline
from sam3_stream.runtime.worker import Stage
from sam3_stream.stages.decoder import FrameSource, open_backward, open_source
from sam3_stream.stages.decoder.realtime import RealtimeSource
from sam3_stream.stages.encoder import ImageEncoder
from sam3_stream.stages.memory_tracker import MemoryTracker, RateControlledTracker, RateGate
from sam3_stream.stages.memory_tracker.backward import BackwardTracker, EarlierMasks
from sam3_stream.stages.memory_tracker.checkpoints import CheckpointStore, ResumePoint
from sam3_stream.stages.memory_tracker.prompt_schedule import PromptSchedule
from sam3_stream.stages.sinks import CutoutSink, DavisSink, MasksSink, OverlaySink, RedactSink, Sink
from sam3_stream.stages.sinks.zeromq import ZeroMqSink
from sam3_stream.transport.control import ControlServer
from sam3_stream.transport.endpoint import Endpoint
from sam3_stream.transport.keys import load_keys


@dataclass(frozen=True)
class Pass:
    """One way through the frames of a job."""

    title: str
    pipeline: Pipeline
    expected_frames: int | None
    writes_outputs: bool = True


class Job:
    """A checked job: everything that can be known to be wrong before the first frame has been looked at.

    Iterate `passes` and run each pipeline to its end before taking the next::

        with Job(config) as job:
            for each in job.passes():
                each.pipeline.run()

    Args:
        config: What to do.

    Raises:
        UsageError: The source, a prompt, an output or the model cannot be used.
    """

    def __init__(self, config: JobConfig) -> None:
        self._config = config
        self._source = open_config_source(config.source)
        try:
            self.info: StreamInfo = self._source.info
            self._prompts = [prompt_of(each) for each in config.prompts]
            check_prompts(self._prompts, config.source, self.info)
            self._sinks = [sink_of(each, config) for each in config.sinks]
            check_outputs(self._sinks, config)
            self._model = _load_checked(config, self._prompts)
            self.rate: RateGate | None = self._rate_gate()
        except BaseException:
            self._source.close()
            raise
        self._control = open_control(config.control)
        self._scratch = tempfile.TemporaryDirectory(prefix="sam3_stream-")

    @property
    def header(self) -> RunHeader:
        """What the outputs say of this job."""
        return run_header(str(self._config.source.path), self._model.name, self._prompts)

    def passes(self) -> Iterator[Pass]:
        """The ways through the frames, in order; each is built when the one before has been run."""
        earlier = None
        if self._config.backward:
            backward_masks = Path(self._scratch.name) / "backward.jsonl"
            yield self._backward_pass(backward_masks)
            earlier = EarlierMasks(backward_masks)
        yield self._forward_pass(earlier)

    def complete(self) -> None:
        """Say that every pass has ended well: nothing is left to resume."""
        store = self._checkpoint_store()
        if store is not None:
            store.discard()

    def close(self) -> None:
        """Let go of the source, the model and temporary files."""
        self._source.close()
        self._model.close()
        if self._control is not None:
            self._control.close()
        self._scratch.cleanup()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _backward_pass(self, masks: Path) -> Pass:
        latest_s = max(prompt.time_s for prompt in self._prompts if not isinstance(prompt, TextPrompt))
        source = open_backward(
            self._config.source.path,
            from_s=latest_s,
            start_s=self._config.source.start_s,
            end_s=self._config.source.end_s,
            max_frames=self._config.source.max_frames,
        )
        stages: list[Stage] = [ImageEncoder(self._model), BackwardTracker(self._model, self._prompts)]
        pipeline = Pipeline(source, stages, header=self.header, sinks=[MasksSink(masks)])
        return Pass("backward", pipeline, None, writes_outputs=False)

    def _forward_pass(self, earlier: EarlierMasks | None) -> Pass:
        store = self._checkpoint_store()
        resume = self._resume_point(store) if store is not None and self._config.resume else None
        tracker = MemoryTracker(self._model, self._prompts, checkpoints=store, resume=resume, earlier=earlier)
        if self._control is not None:
            self._control.controlled = tracker
        encoder = ImageEncoder(self._model, first_sequence=0 if resume is None else resume.checkpoint.first_sequence)
        live = self._config.source.realtime
        stages: list[Stage] = [encoder, tracker]
        if self.rate is not None:
            stages = [RateControlledTracker(tracker, self.rate)]
        pipeline = Pipeline(
            RealtimeSource(self._source) if live else self._source,
            stages,
            header=self.header,
            sinks=self._sinks,
            policy="latest" if live else "block",
            on_demand=live and self.rate is not None,  # the gate has a queue of its own
        )
        return Pass("tracking", pipeline, expected_frames(self._config.source, self.info))

    def _rate_gate(self) -> RateGate | None:
        if self._config.target_fps is None:
            return None
        source = self._config.source
        gate = RateGate(self._config, self._model, live=source.realtime, stream_id=source.path.name)
        gate.check(self.info.width, self.info.height)
        return gate

    def _checkpoint_store(self) -> CheckpointStore | None:
        path = self._masks_path()
        if path is None or (path.exists() and not path.is_file()):
            return None  # what went down a pipe cannot be gone on with
        return CheckpointStore(path)

    def _masks_path(self) -> Path | None:
        return next((each.path for each in self._config.sinks if isinstance(each, MasksConfig)), None)

    def _resume_point(self, store: CheckpointStore) -> ResumePoint | None:
        """Where the killed run was; None when it had not begun.

        Raises:
            OutputError: The masks file is not of a run that was killed.
        """
        path = self._masks_path()
        if path is None or not path.exists() or path.stat().st_size == 0:
            return None
        checkpoint = store.newest(recorded_frames=MasksSink(path, resume=True).next_sequence)
        if checkpoint is None:
            raise OutputError(
                f"there is nothing to resume: {path} is complete already, or its checkpoints "
                f"({path.name}.resume0, .resume1) are gone; --force does it again from the start"
            )
        recorded = itertools.takewhile(lambda row: row.sequence < checkpoint.first_sequence, read_masks(path))
        return ResumePoint(checkpoint, recorded)


def open_control(config: ControlConfig | None) -> ControlServer | None:
    """The control socket that a config names; None when it names none.

    Raises:
        UsageError: It cannot be opened.
    """
    if config is None:
        return None
    keys = None if config.keys is None else load_keys(config.keys)
    return ControlServer(Endpoint(config.address, keys))


def expected_frames(source: SourceConfig, info: StreamInfo) -> int | None:
    """About how many frames there will be; None when the source does not say."""
    expected = info.frame_count
    if (source.start_s is not None or source.end_s is not None) and info.average_rate and info.duration_s:
        end_s = min(info.duration_s, source.end_s or info.duration_s)
        expected = max(0, round((end_s - (source.start_s or 0.0)) * float(info.average_rate)))
    if source.max_frames is not None:
        expected = source.max_frames if expected is None else min(expected, source.max_frames)
    return expected


def open_config_source(config: SourceConfig) -> FrameSource:
    """Open the source that a config names.

    Raises:
        InputError: It cannot be opened, or holds no pictures.
    """
    return open_source(config.path, start_s=config.start_s, end_s=config.end_s, max_frames=config.max_frames)


def check_prompts(prompts: Sequence[Prompt], source: SourceConfig, info: StreamInfo) -> None:
    """Raise `PromptError` unless every prompt lies within the picture and the window, and each object can begin.

    Whether the video is long enough is known only at its end: headers lie.
    """
    for prompt in prompts:
        prompt.check_size(info.width, info.height)
        if source.end_s is not None and prompt.time_s >= source.end_s:
            raise PromptError(f"a prompt is for {prompt.time_s:g} s, but the job ends at {source.end_s:g} s")
        if source.start_s is not None and 0 < prompt.time_s < source.start_s:
            raise PromptError(f"a prompt is for {prompt.time_s:g} s, but the job starts at {source.start_s:g} s")
    PromptSchedule(prompts, ObjectIds()).check()


def check_outputs(sinks: Sequence[Sink], config: JobConfig) -> None:
    """Raise `OutputError` unless every output can be made, and none is another or the input."""
    paths = [each.path.resolve() for each in config.file_sinks]
    for path in paths:
        if paths.count(path) > 1:
            raise OutputError(f"two outputs go to {path}; give each a name of its own")
    for sink in sinks:
        sink.check(config.source.path)


def prompt_of(config: PromptConfig) -> Prompt:
    """The prompt that a config describes; reads the mask's file if it is one.

    Raises:
        PromptError: The prompt makes no sense, or the mask cannot be read.
    """
    common: Any = {"time_s": config.time_s, "name": config.name}
    if isinstance(config, ClickConfig):
        return PointPrompt(x=config.x, y=config.y, positive=config.positive, **common)
    if isinstance(config, BoxConfig):
        return BoxPrompt(x0=config.x0, y0=config.y0, x1=config.x1, y1=config.y1, **common)
    if isinstance(config, MaskConfig):
        return MaskPrompt(mask=read_mask(config.path), **common)
    common |= {"score_threshold": config.score_threshold, "max_objects": config.max_objects}
    if isinstance(config, ExemplarsConfig):
        positive = (True,) * len(config.boxes) if config.positive is None else config.positive
        return ExemplarPrompt(boxes_xyxy=config.boxes, positive=positive, text=config.text, **common)
    return TextPrompt(text=config.text, **common)


def read_mask(path: Path) -> MaskArray:
    """A mask from an image: bool (height, width), True where it is not black, transparent or palette entry 0.

    Raises:
        PromptError: The file cannot be read as an image.
    """
    try:
        with Image.open(path) as image:
            if image.mode == "P":
                return np.asarray(image) > 0
            pixels = np.asarray(image.convert("RGBA"))
    except FileNotFoundError as error:
        raise PromptError(f"the mask {path} does not exist") from error
    except (OSError, ValueError, UnidentifiedImageError) as error:
        raise PromptError(f"the mask {str(path)[:200]} cannot be read as an image; expected a PNG") from error
    return np.asarray(pixels[:, :, :3].any(axis=2) & (pixels[:, :, 3] > 0), dtype=np.bool_)


def _was_begun(job: JobConfig) -> bool:
    """Whether an earlier run of the job left a masks file, and so other outputs that may be replaced."""
    return any(isinstance(each, MasksConfig) and each.path.is_file() for each in job.sinks)


def _load_checked(config: JobConfig, prompts: Sequence[Prompt]) -> VideoModel:
    """Load the model, and let it refuse the prompts that it can never use."""
    model = load_model(config.model.name, device=config.model.device, **config.model.options)
    try:
        for prompt in prompts:
            model.check_prompt(prompt)
    except BaseException:
        model.close()
        raise
    return model


def sink_of(config: SinkConfig, job: JobConfig) -> Sink:
    """The sink that a config names."""
    force = job.force or (job.resume and _was_begun(job))
    # What comes through a pipe comes once: its sound cannot be read beside its pictures.
    audio_from = job.source.path if job.source.path.is_file() else None
    sound: Any = {"audio_from": audio_from, "start_s": job.source.start_s}
    if isinstance(config, ZeroMqConfig):
        return ZeroMqSink(config.address, keys=config.keys, masks=config.masks)
    if isinstance(config, OverlayConfig):
        return OverlaySink(config.path, force=force, show_rate=config.show_rate, **sound)
    if isinstance(config, MasksConfig):
        return MasksSink(config.path, force=job.force, resume=job.resume)
    if isinstance(config, DavisConfig):
        return DavisSink(config.path, force=force)
    if isinstance(config, CutoutConfig):
        return CutoutSink(config.path, force=force)
    assert isinstance(config, RedactConfig)
    return RedactSink(config.path, force=force, **sound)
