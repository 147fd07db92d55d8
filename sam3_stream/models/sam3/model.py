"""The SAM 3 model: weights and image encoder, shared by the sessions of many streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import ConfigError, RunError
from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import ExemplarPrompt, ObjectPrompt, Prompt, TextPrompt
from sam3_stream.core.records import EncodedFrame, Frame
from sam3_stream.models.sam3.concept_options import ConceptOptions
from sam3_stream.models.sam3.config import TrackerOptions, check_resolution
from sam3_stream.models.sam3.detect_interval import DetectInterval
from sam3_stream.models.sam3.detector import Detector
from sam3_stream.models.sam3.engine import Engine
from sam3_stream.models.sam3.holder import EngineHolder
from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.memory_bank import MemoryBank
from sam3_stream.models.sam3.network import TrackerNetwork
from sam3_stream.models.sam3.oom import BatchLimit, free_cached_memory, logger
from sam3_stream.models.sam3.precision import DtypeName, resolve_device, resolve_dtype
from sam3_stream.models.sam3.preprocess import to_pixels
from sam3_stream.models.sam3.prompt_bank import PromptBank, text_weights_hash
from sam3_stream.models.sam3.session import Sam3Session
from sam3_stream.models.sam3.text_encoder import VISUAL_PHRASE, TextEncoder, TextFeatures
from sam3_stream.models.sam3.weights import Checkpoint, locate


def load_sam3(
    weights: str | Path | None = None,
    *,
    device: str = "auto",
    dtype: DtypeName = "auto",
    resolution: int | Sequence[int] | None = None,
    warmup: bool = False,
    idle_unload_s: float | None = None,
    sha256: str | None = None,
    compile_trunk: bool = False,
    options: TrackerOptions | None = None,
    concepts: ConceptOptions | None = None,
    max_objects: int | None = None,
    detect_interval: int | str | None = None,
    association: AssociationConfig | None = None,
    clock: Clock | None = None,
) -> Sam3Model:
    """Open a SAM 3 checkpoint. Files are found and checked now; weights are read at the first frame, or now to warm up.

    Args:
        weights: A folder, a hub id, or None for what SAM3_STREAM_WEIGHTS says, else ``facebook/sam3``.
        device: ``"auto"``, or a PyTorch device such as ``"cuda:1"``.
        dtype: Format of matrix products: ``"auto"``, ``"fp16"``, ``"bf16"``, ``"fp32"`` or ``"fp64"``.
        resolution: Side in pixels of the square picture that the model sees, or several to warm up, of which the first
            is used; the checkpoint's own (1008) when None.
        warmup: Whether to read the weights now and run a dummy step at each resolution.
        idle_unload_s: Free the weights after so many seconds without a frame; they come back with the next.
        sha256: Expected SHA-256 of the weights.
        compile_trunk: Whether the trunk goes through `torch.compile`.
        options: Options of its sessions.
        concepts: Options of phrases and exemplars.
        max_objects: Shorthand for the option of that name.
        detect_interval: Shorthand for the option of phrases of that name: ``4`` for frames, ``"250ms"`` for time.
        association: Shorthand for the option of phrases of that name.
        clock: Time, for `idle_unload_s`.

    Raises:
        ModelError: The weights cannot be loaded; the message says what to do.
        ConfigError: A resolution that does not fit the model, or a detection interval that is none.
    """
    options = options or TrackerOptions()
    if max_objects is not None:
        options = replace(options, max_objects=max_objects)
    concepts = concepts or ConceptOptions()
    if detect_interval is not None:
        concepts = replace(concepts, detect_interval=DetectInterval.parse(detect_interval))
    if association is not None:
        concepts = replace(concepts, association=association)
    checkpoint = Checkpoint(locate(weights), sha256)
    model = Sam3Model(
        checkpoint,
        device=device,
        dtype=dtype,
        resolution=resolution,
        idle_unload_s=idle_unload_s,
        compile_trunk=compile_trunk,
        options=options,
        concepts=concepts,
        clock=clock or SystemClock(),
    )
    if warmup:
        model.warm_up()
    return model


class Sam3Model:
    """A `VideoModel`. Use `load_sam3` to make one.

    Attributes:
        checkpoint: Where the weights come from.
        options: Options of its sessions.
        concept_options: Options of phrases and exemplars in them.
        device: Where it runs.
        dtype: Format of matrix products.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str,
        dtype: DtypeName,
        resolution: int | Sequence[int] | None,
        idle_unload_s: float | None,
        compile_trunk: bool,
        options: TrackerOptions,
        concepts: ConceptOptions,
        clock: Clock,
    ) -> None:
        self.checkpoint = checkpoint
        self.options = options
        self.concept_options = concepts
        self.device = resolve_device(device)
        self.dtype = resolve_dtype(dtype, self.device)
        self._compile_trunk = compile_trunk
        vision = checkpoint.config.detector_config.vision_config
        self._patch_size = int(vision.backbone_config.patch_size)
        self._resolution_step = self._patch_size * int(vision.backbone_config.window_size)
        if resolution is None:
            resolution = int(checkpoint.config.tracker_config.image_size)
        self._resolutions = (resolution,) if isinstance(resolution, int) else tuple(resolution)
        if not self._resolutions:
            raise ConfigError("expected one resolution or more, got none")
        for side in self._resolutions:
            check_resolution(side, self._patch_size)
        self._resolution = self._resolutions[0]
        self._largest = max(self._resolutions)
        self._pictures = BatchLimit("pictures")
        self._encoding = threading.Lock()
        self._text_encoder = TextEncoder(checkpoint, torch.float64 if self.dtype == torch.float64 else torch.float32)
        self._holder = EngineHolder(self._load, clock, idle_unload_s, self._text_encoder.unload)
        self._prompt_bank: PromptBank | None = None
        self._reading = threading.Lock()

    @property
    def name(self) -> str:
        """See `VideoModel.name`."""
        return "sam3"

    @property
    def loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._holder.loaded

    @property
    def resolution(self) -> int:
        """Side in pixels of the square picture that `encode` makes; may be set at any time, tracks go on."""
        return self._resolution

    @resolution.setter
    def resolution(self, side: int) -> None:
        check_resolution(side, self._patch_size)
        self._resolution = side
        self._largest = max(self._largest, side)

    def check_prompt(self, prompt: Prompt) -> None:
        """See `VideoModel.check_prompt`.

        A new phrase is encoded here, in the caller's thread, so that no frame waits for it.

        Raises:
            PromptError: A phrase that is too long.
        """
        if isinstance(prompt, TextPrompt | ExemplarPrompt):
            self.phrases([prompt.text.strip() or VISUAL_PHRASE])

    def phrases(self, texts: Sequence[str]) -> list[TextFeatures]:
        """Text features of phrases: from memory, from the prompt bank on disk, or from the text encoder.

        Raises:
            PromptError: A phrase is empty or too long.
            ModelError: A new phrase needs the text encoder or tokenizer and the checkpoint lacks it.
        """
        with self._reading:
            if self._prompt_bank is None:
                weights_hash = text_weights_hash(self.checkpoint.folder)
                self._prompt_bank = PromptBank(self._text_encoder, weights_hash, self.concept_options.prompt_bank)
            return self._prompt_bank(texts)

    def resolutions(self, width: int, height: int) -> tuple[tuple[int, int], ...]:  # noqa: ARG002 - always square
        """See `VideoModel.resolutions`: the configured ones, or else five sixths, two thirds and half of the first."""
        sides = self._resolutions
        if len(sides) == 1:
            sixths = (sides[0] * share // 6 for share in (6, 5, 4, 3))
            sides = tuple(max(2, side // self._patch_size) * self._patch_size for side in sixths)
        return tuple((side, side) for side in sorted(set(sides), reverse=True))

    @torch.inference_mode()
    def encode(self, frames: Sequence[Frame], resolution: tuple[int, int] | None = None) -> list[EncodedFrame]:
        """See `VideoModel.encode`.

        When the GPU's memory runs out, fewer pictures go into a batch; when not even one fits, the resolution is
        lowered, and none above it is used any more.

        Raises:
            RunError: Out of memory at the lowest resolution.
        """
        with self._encoding:
            while True:
                side = self._resolution if resolution is None else min(resolution[0], self._largest)
                try:
                    return self._encode(frames, side)
                except torch.OutOfMemoryError as error:
                    free_cached_memory()
                    self._lower_resolution(side, error)

    @torch.inference_mode()
    def encode_smaller(self, encoded: EncodedFrame) -> EncodedFrame:
        """The frame encoded again at a lower resolution, which later frames have too: for when a step does not fit.

        Raises:
            RunError: It was the lowest already.
        """
        if self._largest >= encoded.features.resolution:
            self._lower_resolution(encoded.features.resolution, None)
        return self.encode([encoded.frame], (self._largest, self._largest))[0]

    def _encode(self, frames: Sequence[Frame], resolution: int) -> list[EncodedFrame]:
        with self._holder.use() as engine:
            tables = engine.tables(resolution)

            def encode(start: int, stop: int) -> list[Sam3Features]:
                pixels = [to_pixels(frame.picture, resolution, self.device) for frame in frames[start:stop]]
                return engine.encoder.encode(torch.stack(pixels).to(engine.network.stream_dtype), tables)

            features = [one for batch in self._pictures.run(len(frames), encode) for one in batch]
        dtype = str(self.dtype).removeprefix("torch.")
        size = (resolution, resolution)
        return [EncodedFrame(frame, one, size, dtype) for frame, one in zip(frames, features, strict=True)]

    def _lower_resolution(self, resolution: int, cause: BaseException | None) -> None:
        step = self._resolution_step
        lower = (resolution - 1) // step * step
        if lower < step:
            raise RunError(
                f"GPU memory ran out, at the lowest resolution ({resolution} px) too: track fewer objects or streams, "
                "or use a smaller dtype"
            ) from cause
        logger.warning("GPU memory ran out at %d px; going on at %d px", resolution, lower)
        self._largest = lower
        self._resolution = min(self._resolution, lower)

    def open_session(self, new_object_id: Callable[[], int], max_objects: int | None = None) -> Sam3Session:
        """See `VideoModel.open_session`. All memory of the session is set aside here."""
        config = self.checkpoint.config.tracker_config
        grid = self._resolution // self._patch_size
        bank = MemoryBank(
            min(self.options.max_objects, max_objects or self.options.max_objects),
            grid=grid,
            mask_grid=4 * grid,
            memory_channels=config.memory_encoder_output_channels,
            pointer_channels=config.vision_config.fpn_hidden_size,
            conditioning=config.max_cond_frame_num,
            recent=config.num_maskmem - 1,
            pointers=config.max_object_pointers_in_encoder - 1,
            device=self.device,
            dtype=torch.float64 if self.dtype == torch.float64 else torch.float32,
        )
        return Sam3Session(self, bank, new_object_id)

    def warm_up(self) -> None:
        """Read the weights and run a dummy step at every configured resolution, so that the first frame is not slow."""
        wanted = self._resolution
        for side in self._resolutions:
            self._resolution = side
            picture = ArrayPicture(np.full((64, 64, 3), 127, np.uint8))
            session = self.open_session(lambda: 1)
            click = ObjectPrompt(1, "warm-up", "warm-up", np.full((1, 2), 32, np.float32), np.ones(1, np.bool_))
            for number in range(2):
                frame = Frame("warm-up", number, number, Fraction(1, 30), picture)
                session.step(self.encode([frame])[0], [click] if number == 0 else [])
            session.close()
        self._resolution = wanted

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The network for one step; loaded if need be, and kept as long as the context lasts."""
        with self._holder.use() as engine:
            yield engine

    def unload_if_idle(self) -> bool:
        """Unload the weights if no frame has come for `idle_unload_s`; a thread does so by itself as well."""
        return self._holder.unload_if_idle()

    def close(self) -> None:
        """See `VideoModel.close`."""
        self._holder.close()

    def _load(self) -> Engine:
        network = TrackerNetwork.load(self.checkpoint, self.device, self.dtype)
        return Engine(network, self._load_detector, compile_trunk=self._compile_trunk)

    def _load_detector(self) -> Detector:
        return Detector.load(self.checkpoint, self.device, self.dtype)
