"""Config -> the streams of the live preview, which can be talked to while they run and go on after a restart."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from sam3_stream.build_live import LiveService, LiveStream
from sam3_stream.config.live import StreamConfig
from sam3_stream.config.preview import PreviewConfig, PreviewStreamConfig
from sam3_stream.core.errors import NotFoundError, Sam3StreamError, UsageError
from sam3_stream.core.object_ids import ObjectIds
from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.prompts import Prompt
from sam3_stream.core.records import EncodedFrame, Frame, ImageArray, TrackedObject
from sam3_stream.models.loading import load_model
from sam3_stream.models.protocols import VideoModel
from sam3_stream.preview_stream import PreviewStream
from sam3_stream.stages.memory_tracker.live_state import LiveState
from sam3_stream.stages.memory_tracker.prompt_schedule import PromptSchedule

_log = logging.getLogger(__name__)

_RECENT_FRAMES = 24  # a second of them
_PICTURES_KEPT = 4


class PreviewService(LiveService):
    """The streams of the preview, and pictures to be segmented, with one model.

    Args:
        config: The streams, the model, where state is kept.
        model: Loaded already; loaded as the config says when None. Closed with the service either way.

    Raises:
        UsageError: The model, a prompt or an output cannot be used.
    """

    def __init__(self, config: PreviewConfig, model: VideoModel | None = None) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if config.state_folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="sam3_stream-preview-")
        self._folder = Path(self._temporary.name if self._temporary is not None else config.state_folder or ".")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._from_config = {stream.name for stream in config.streams}
        self._changing = threading.RLock()
        self._preview: dict[str, PreviewStream] = {}
        self._encoded: OrderedDict[str, EncodedFrame] = OrderedDict()
        self.model_config = config.model
        self._models = {each.name: each for each in (*config.other_models, config.model)}
        super().__init__(config, model)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that may be chosen."""
        return tuple(self._models)

    def choose_model(self, name: str, options: Mapping[str, Any]) -> None:
        """Track with another model, or with other options of it, until the service ends.

        All streams are restarted. With another model their objects begin anew.

        Args:
            name: One of `model_names`.
            options: Replace those of the model's config.

        Raises:
            NotFoundError: The model is none of `model_names`.
            UsageError: It does not take these options, or cannot be had; the streams go on as they were.
        """
        if name not in self._models:
            raise NotFoundError(f"there is no model {name!r} to choose here; there are: {', '.join(self._models)}")
        with self._changing:
            chosen = self._models[name].model_copy(update=dict(options))
            model = load_model(chosen.name, device=chosen.device, **chosen.options)
            for stream in self.streams:
                self._end(stream.name)
            before, batcher = self.model, self._batcher
            self._use(model)
            self._models[name] = self.model_config = chosen
            self._encoded.clear()
            for stream in self.streams:
                with contextlib.suppress(Sam3StreamError):  # it says itself why it cannot go on
                    self.add(stream.config)
            batcher.close()
            before.close()

    @property
    def streams(self) -> tuple[PreviewStream, ...]:
        """The streams, in the order in which they were added."""
        return tuple(self._preview.values())

    def preview_stream(self, name: str) -> PreviewStream:
        """The stream of this name.

        Raises:
            NotFoundError: There is none.
        """
        stream = self._preview.get(name)
        if stream is None:
            known = ", ".join(self._preview) or "none"
            raise NotFoundError(f"there is no stream {name!r}; there are: {known}")
        return stream

    def start(self) -> None:
        """Start the streams of the config, and those that were added before the last restart."""
        super().start()
        for config in self._kept_configs():
            if config.name in self._preview:
                continue
            try:
                self.add_stream(config)
            except Sam3StreamError as error:
                _log.warning("stream %s, which was added before, cannot be had: %s", config.name, error)

    def add_stream(self, config: PreviewStreamConfig) -> PreviewStream:
        """Start another stream, and again after a restart of the service.

        Raises:
            UsageError: There is one of this name, or it cannot be opened as given.
        """
        with self._changing:
            if config.name in self._preview:
                raise UsageError(f"there is a stream {config.name!r} already; remove it first, or take another name")
            try:
                self.add(config)
            except BaseException:
                self._preview.pop(config.name, None)
                raise
            self._keep_configs()
            return self._preview[config.name]

    def remove_stream(self, name: str) -> None:
        """Stop a stream and forget it, and what was said of it.

        Raises:
            NotFoundError: There is none.
        """
        with self._changing:
            stream = self.preview_stream(name)
            self._end(name)
            del self._preview[name]
            self._state_path(name).unlink(missing_ok=True)
            self._keep_configs()
        stream.broadcast.end()

    def restart_stream(self, name: str) -> PreviewStream:
        """Stop a stream and start it again; its objects keep their ids, and its viewers stay.

        Raises:
            NotFoundError: There is none of this name.
            UsageError: It cannot be opened any more; it stays ended until it is restarted again or removed.
        """
        with self._changing:
            stream = self.preview_stream(name)
            self._end(name)
            self.add(stream.config)
            return stream

    def set_target_fps(self, name: str, target_fps: float | None) -> PreviewStream:
        """Hold another rate, or none; the stream is restarted for it.

        Raises:
            NotFoundError: There is no stream of this name.
        """
        with self._changing:
            stream = self.preview_stream(name)
            stream.config = stream.config.model_copy(update={"target_fps": target_fps})
            self._keep_configs()
            return self.restart_stream(name)

    def segment(self, image: ImageArray, prompts: Sequence[Prompt]) -> list[TrackedObject]:
        """What the prompts say on one picture. Encoded once, however often it is asked for in a row.

        Args:
            image: uint8 (height, width, 3), RGB.
            prompts: In pixels of the picture.

        Raises:
            PromptError: A prompt does not fit the picture or the model.
        """
        ids = ObjectIds()
        for prompt in prompts:
            self.model.check_prompt(prompt)
            prompt.check_size(image.shape[1], image.shape[0])
        schedule = PromptSchedule(prompts, ids)
        key = hashlib.sha256(repr(image.shape).encode() + image.tobytes()).hexdigest()
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = self._encode(Frame("segment", 0, 0, Fraction(1), ArrayPicture(image)))[0]
            with self._changing:
                self._encoded[key] = encoded
                while len(self._encoded) > _PICTURES_KEPT:
                    self._encoded.popitem(last=False)
        with contextlib.closing(self.model.open_session(ids.new)) as session:
            return list(session.step(encoded, schedule.due(float("inf"))).objects)

    def close(self) -> None:
        """Stop, wait for the outputs, keep the state, free the model."""
        super().close()
        for stream in self.streams:
            stream.broadcast.end()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _end(self, name: str) -> None:
        with contextlib.suppress(UsageError):  # it has ended before when it could not be restarted
            self.remove(name)

    def _build(self, config: StreamConfig | PreviewStreamConfig) -> LiveStream:
        assert isinstance(config, PreviewStreamConfig)
        stream = self._preview.setdefault(config.name, PreviewStream(config))
        live = LiveStream(
            config,
            self.model,
            lambda frame: self._encode(frame)[0],
            extra_sinks=(stream.broadcast,),
            encode_at=self._encode,
            shared=self._shared,
            state=LiveState(self._state_path(config.name), self.model.name),
            recent_frames=_RECENT_FRAMES,
        )
        stream.live = live
        return live

    def _state_path(self, name: str) -> Path:
        return self._folder / f"stream-{name}.npz"

    @property
    def _configs_path(self) -> Path:
        return self._folder / "streams.json"

    def _keep_configs(self) -> None:
        """Note the streams that the config does not know; their addresses may hold passwords."""
        kept = [each.config for each in self.streams if each.name not in self._from_config]
        growing = self._configs_path.with_suffix(".part")
        growing.touch(mode=0o600)
        growing.write_text(json.dumps([config.model_dump(mode="json", exclude_unset=True) for config in kept]))
        growing.replace(self._configs_path)

    def _kept_configs(self) -> list[PreviewStreamConfig]:
        try:
            kept = json.loads(self._configs_path.read_text())
            return [PreviewStreamConfig.model_validate(each) for each in kept]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            _log.warning("the streams that were added before cannot be read from %s: %s", self._configs_path, error)
            return []
