"""One stream of the live preview, which can be talked to while it runs and stays the same through restarts."""

from __future__ import annotations

from concurrent.futures import Future

from sam3_stream.build_live import LiveStream
from sam3_stream.config.preview import PreviewStreamConfig
from sam3_stream.core.errors import NotFoundError, UsageError
from sam3_stream.core.prompts import Prompt, PromptEffect
from sam3_stream.core.records import TrackedFrame, TrackedObject
from sam3_stream.core.stream_status import StreamReport
from sam3_stream.stages.decoder.pushed import PushedDecoder
from sam3_stream.stages.memory_tracker.prompt_schedule import GivenPrompts
from sam3_stream.stages.sinks.broadcast import BroadcastSink, Subscription


class PreviewStream:
    """One stream as the preview's server sees it. It stays the same through restarts. From any thread.

    Attributes:
        config: What it was made from.
        broadcast: Its results.
    """

    def __init__(self, config: PreviewStreamConfig) -> None:
        self.config = config
        self.broadcast = BroadcastSink()
        self.live: LiveStream | None = None

    @property
    def name(self) -> str:
        """Unique among the streams."""
        return self.config.name

    @property
    def latest(self) -> TrackedFrame | None:
        """The newest result; None before the first."""
        return self.broadcast.latest

    @property
    def pushed(self) -> PushedDecoder | None:
        """Where pictures are handed in; None where the stream has another source."""
        return self._live.pushed

    @property
    def prompts(self) -> tuple[GivenPrompts, ...]:
        """What has been said and still holds."""
        return self._live.tracker.given

    def subscribe(self, capacity: int = 2) -> Subscription:
        """See `BroadcastSink.subscribe`."""
        return self.broadcast.subscribe(capacity)

    def report(self) -> StreamReport:
        """How the stream is."""
        return self._live.report()

    def add_prompt(
        self, prompt: Prompt, *, object_id: int | None = None, seen: int | None = None
    ) -> Future[PromptEffect]:
        """See `MemoryTracker.add`."""
        return self._live.tracker.add(prompt, object_id=object_id, seen=seen)

    def replace_prompt(self, prompt_id: str, prompt: Prompt, *, seen: int | None = None) -> Future[PromptEffect]:
        """Put a prompt in the place of another; see `MemoryTracker.add`."""
        return self._live.tracker.add(prompt, replaces=prompt_id, seen=seen)

    def remove_prompt(self, prompt_id: str) -> Future[int]:
        """See `MemoryTracker.remove_prompt`."""
        return self._live.tracker.remove_prompt(prompt_id)

    def remove_object(self, object_id: int) -> Future[int]:
        """See `MemoryTracker.remove`.

        Raises:
            NotFoundError: There is no such object.
        """
        self.object(object_id)
        return self._live.tracker.remove(object_id)

    def rename(self, object_id: int, label: str) -> Future[int]:
        """See `MemoryTracker.rename`.

        Raises:
            NotFoundError: There is no such object.
        """
        self.object(object_id)
        return self._live.tracker.rename(object_id, label)

    def object(self, object_id: int) -> TrackedObject:
        """An object of the newest result.

        Raises:
            NotFoundError: There is none of this id.
        """
        for each in self.latest.objects if self.latest is not None else ():
            if each.object_id == object_id:
                return each
        raise NotFoundError(f"the stream {self.name!r} has no object {object_id}; it may have been removed")

    @property
    def _live(self) -> LiveStream:
        if self.live is None:
            raise UsageError(f"the stream {self.name!r} is being restarted; try again")
        return self.live
