"""Source, stages and sinks, joined by bounded channels, one thread each.

::

    source ─▶ stage ─▶ … ─┬▶ sink
                          ├▶ sink
                          └▶ whoever iterates the pipeline

A sink that fails is finalised as far as it can be and left out; the others go on, and the error is raised at the end.
When the last sink has failed the pipeline stops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol

from sam3_stream.core.errors import Sam3StreamError
from sam3_stream.core.records import Frame, RunHeader, StreamInfo, TrackedFrame
from sam3_stream.runtime.channel import Cancelled, Channel, OverflowPolicy
from sam3_stream.runtime.fan_out import FanOut
from sam3_stream.runtime.worker import Stage, Worker, feed


class Source(Protocol):
    """What yields frames: a decoder."""

    @property
    def info(self) -> StreamInfo:
        """Facts of the stream that sinks need before the first frame."""

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames in order."""

    def close(self) -> None:
        """Let go of the file or connection. Safe to call twice."""


class Sink(Protocol):
    """What takes tracked frames out of the pipeline."""

    @property
    def name(self) -> str:
        """Name for errors, thread names and metrics."""

    def open(self, info: StreamInfo, header: RunHeader) -> None:
        """Prepare to write; called once, before the first frame."""

    def write(self, tracked: TrackedFrame) -> None:
        """Write one frame."""

    def close(self) -> None:
        """Finalise. Safe after a failed write, and to call twice."""


class Pipeline:
    """Runs a source through stages into sinks.

    Iterate it to get every `TrackedFrame` as well, or call `run` when the sinks are all you want::

        with Pipeline(video, [encoder, tracker], sinks=[overlay], header=header) as pipeline:
            for tracked in pipeline:
                print(tracked.frame.time_s, len(tracked.present))

    Args:
        source: Iterated once, in a thread of its own. The pipeline closes it.
        stages: In flow order; the last one puts out `TrackedFrame`s.
        header: Handed to `Sink.open` beside ``source.info``: what made the results.
        sinks: Each gets every tracked frame through a channel and a thread of its own.
        queue_size: Capacity of every channel, in records.
        policy: Overflow policy of the channels before the last stage: ``block`` for files (every frame goes
            through), ``latest`` for live sources (stay close to now, count what is dropped). Unless it is ``block``,
            sinks that lag behind lose their oldest frames instead of holding up the others.
        on_demand: The first stage takes frames from the source itself, in its own thread, so that none waits between
            them: a live source then gives its newest. Such a source may be closed from any thread, and `stop` does.
    """

    def __init__(
        self,
        source: Source,
        stages: Sequence[Stage],
        *,
        header: RunHeader,
        sinks: Sequence[Sink] = (),
        queue_size: int = 4,
        policy: OverflowPolicy = "block",
        on_demand: bool = False,
    ) -> None:
        self._source = source
        self._sinks = tuple(sinks)
        self._header = header
        self._queue_size = queue_size
        self._sink_policy: OverflowPolicy = "block" if policy == "block" else "drop_oldest"
        self._on_demand = on_demand
        self._stop = threading.Event()
        self._started = False
        # The last stage puts into the sinks' channels itself: a thread between would cost a twentieth of decoding.
        self._tracked: FanOut[TrackedFrame] = FanOut(on_last_sink_gone=self.stop)
        self._workers: list[Worker] = []
        self.channels: list[Channel[Any]] = []
        self._wire(stages, policy)

    @property
    def errors(self) -> tuple[BaseException, ...]:
        """Everything that has gone wrong so far, in flow order."""
        return tuple(worker.error for worker in self._workers if worker.error is not None)

    def start(self) -> None:
        """Open the sinks and start every thread.

        Raises:
            OutputError: A sink cannot be opened; the ones opened before it are closed again.
        """
        self._check_not_started()
        self._started = True
        self._open_sinks()
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """Take no more frames from the source; what is under way goes through and the outputs are finished."""
        self._stop.set()
        if self._on_demand:
            self._source.close()

    def cancel(self) -> None:
        """Drop what is under way. The outputs are finished with what they have been given."""
        self.stop()
        for channel in self.channels:
            channel.cancel()
        self._tracked.cancel()

    def run(self) -> None:
        """Start, and return when every output is finished.

        Raises:
            Sam3StreamError: The first error in flow order; `errors` has them all.
        """
        self.start()
        self._finish()

    def __iter__(self) -> Generator[TrackedFrame, None, None]:
        """Start, and yield every tracked frame; leaving the loop early stops the pipeline as `stop` does."""
        self._check_not_started()
        outlet = self._add_outlet("iteration", sink=False)
        self.start()
        try:
            yield from _until_error(outlet)
        except BaseException as error:  # leaving the loop, or Ctrl-C while waiting: nobody takes frames any more
            self.stop()
            outlet.cancel()
            if not isinstance(error, GeneratorExit):
                raise
        finally:
            self._finish()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.cancel()
            self._join()  # the sinks finish their files
        self._source.close()

    def _wire(self, stages: Sequence[Stage], policy: OverflowPolicy) -> None:
        inbox: Any = self._source
        if not self._on_demand:
            inbox = self._tracked if not stages else self._channel("source", policy)
            self._workers.append(Worker("source", _source_loop(self._source, inbox, self._stop), outbox=inbox))
        for position, stage in enumerate(stages):
            is_last = position == len(stages) - 1
            outbox: Any = self._tracked if is_last else self._channel(stage.name, policy)
            self._workers.append(Worker(stage.name, _stage_loop(stage, inbox, outbox), _channel_or_none(inbox), outbox))
            inbox = outbox
        for sink in self._sinks:
            outlet = self._add_outlet(sink.name, sink=True)
            self._workers.append(Worker(sink.name, _sink_loop(sink, outlet), inbox=outlet))

    def _channel(self, name: str, policy: OverflowPolicy) -> Channel[Any]:
        channel: Channel[Any] = Channel(self._queue_size, policy, name)
        self.channels.append(channel)
        return channel

    def _add_outlet(self, name: str, *, sink: bool) -> Channel[TrackedFrame]:
        outlet: Channel[TrackedFrame] = self._channel(name, self._sink_policy)
        self._tracked.add(outlet, sink=sink)
        return outlet

    def _open_sinks(self) -> None:
        opened: list[Sink] = []
        try:
            for sink in self._sinks:
                sink.open(self._source.info, self._header)
                opened.append(sink)
        except BaseException:
            for sink in opened:
                sink.close()
            self._source.close()
            raise

    def _check_not_started(self) -> None:
        if self._started:
            raise RuntimeError("this pipeline has been started already; build another one")

    def _join(self) -> None:
        for worker in self._workers:
            worker.join()

    def _finish(self) -> None:
        self._join()
        self._source.close()
        if self.errors:
            raise self.errors[0]


def _source_loop(source: Source, outbox: Channel[Any], stop: threading.Event) -> Callable[[], None]:
    return lambda: feed(source, outbox, stop)


def _stage_loop(stage: Stage, inbox: Any, outbox: Channel[Any]) -> Callable[[], None]:
    return lambda: stage.run(inbox, outbox)


def _sink_loop(sink: Sink, inbox: Channel[TrackedFrame]) -> Callable[[], None]:
    def write_all() -> None:
        try:
            for tracked in inbox:
                sink.write(tracked)
        finally:
            sink.close()

    return write_all


def _channel_or_none(inbox: object) -> Channel[Any] | None:
    return inbox if isinstance(inbox, Channel) else None


def _until_error(items: Iterable[TrackedFrame]) -> Generator[TrackedFrame, None, None]:
    """Yield until the end, an error or cancellation; the pipeline raises the error itself when all has ended."""
    try:
        yield from items
    except (Cancelled, Sam3StreamError):
        return
