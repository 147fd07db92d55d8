"""Prometheus metrics of live streams, read from the streams whenever they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sam3_stream.core.records import RateFacts
from sam3_stream.core.stream_status import STREAM_STATES, StreamReport

_PREFIX = "sam3_stream_"


def make_registry(reports: Callable[[], Sequence[StreamReport]], encoder_queue: Callable[[], int]) -> CollectorRegistry:
    """A registry with the metrics of the streams, the shared model and the process.

    Args:
        reports: Gives the state of every stream.
        encoder_queue: Gives the number of frames that wait for the shared encoder.
    """
    registry = CollectorRegistry()
    registry.register(_StreamCollector(reports, encoder_queue))
    ProcessCollector(registry=registry)
    return registry


class _StreamCollector(Collector):
    def __init__(self, reports: Callable[[], Sequence[StreamReport]], encoder_queue: Callable[[], int]) -> None:
        self._reports = reports
        self._encoder_queue = encoder_queue

    def collect(self) -> Iterable[Metric]:
        reports = self._reports()
        yield _states(reports)
        gauges: list[tuple[str, str, Callable[[StreamReport], float | None]]] = [
            ("fps_in", "Pictures decoded per second.", lambda report: report.source.fps),
            ("fps_out", "Tracked frames per second.", lambda report: report.fps_out),
            ("age_seconds", "How old the newest result was when it came out.", lambda report: report.age_s),
            ("objects", "Objects present in the newest result.", lambda report: report.objects),
            ("model_width_pixels", "Width that the model saw.", lambda report: (report.resolution or (0, 0))[0]),
            ("model_height_pixels", "Height that the model saw.", lambda report: (report.resolution or (0, 0))[1]),
            ("hanging_connections", "Given up on, not yet let go of.", lambda report: report.source.hanging),
        ]
        gauges += [
            ("rate_model_share", "Share of the frames on which the model runs.", lambda report: _share(report.rate)),
            ("rate_reachable", "Whether the target can be held.", lambda report: _reachable(report.rate)),
        ]
        for name, text, value in gauges:
            yield _by_stream(GaugeMetricFamily(_PREFIX + name, text, labels=["stream"]), reports, value)
        counters: list[tuple[str, str, Callable[[StreamReport], float]]] = [
            ("frames_in", "Pictures decoded.", lambda report: report.source.decoded),
            ("frames_out", "Tracked frames.", lambda report: report.frames_out),
            ("corrupt_pictures", "Pictures flagged as damaged.", lambda report: report.source.corrupt),
            ("reconnects", "New connections after the first.", lambda report: max(0, report.source.connections - 1)),
            ("rate_changes", "Changes of the setting of rate control.", lambda report: report.rate_changes),
            ("session_restarts", "Times that tracking started anew.", lambda report: report.restarts),
        ]
        for name, text, count in counters:
            yield _by_stream(CounterMetricFamily(_PREFIX + name, text, labels=["stream"]), reports, count)
        yield _drops(reports)
        yield _frame_states(reports)
        yield _stage_times(reports)
        yield self._queues(reports)
        yield from _device_memory()

    def _queues(self, reports: Sequence[StreamReport]) -> Metric:
        metric = GaugeMetricFamily(_PREFIX + "queued_frames", "Frames that wait.", labels=["stream", "place"])
        metric.add_metric(["", "encoder"], self._encoder_queue())
        for report in reports:
            for place, count in report.queued.items():
                metric.add_metric([report.name, place], count)
        return metric


def _states(reports: Sequence[StreamReport]) -> Metric:
    metric = GaugeMetricFamily(_PREFIX + "state", "1 for the state that the stream is in.", labels=["stream", "state"])
    for report in reports:
        for state in STREAM_STATES:
            metric.add_metric([report.name, state], float(report.state == state))
    return metric


def _share(rate: RateFacts | None) -> float | None:
    return None if rate is None else rate.tracked / rate.of


def _reachable(rate: RateFacts | None) -> float | None:
    return None if rate is None else float(rate.reachable)


def _frame_states(reports: Sequence[StreamReport]) -> Metric:
    text = "Frames by how their masks came about."
    metric = CounterMetricFamily(_PREFIX + "frame_states", text, labels=["stream", "state"])
    for report in reports:
        for state, count in report.states.items():
            metric.add_metric([report.name, state], count)
    return metric


def _drops(reports: Sequence[StreamReport]) -> Metric:
    labels = ["stream", "place", "reason"]
    metric = CounterMetricFamily(_PREFIX + "dropped_frames", "Frames that were not passed on.", labels=labels)
    for report in reports:
        for (place, reason), count in report.dropped.items():
            metric.add_metric([report.name, place, reason], count)
    return metric


def _stage_times(reports: Sequence[StreamReport]) -> Metric:
    text = "Time spent in a stage; the encoder's includes waiting for a turn."
    metric = CounterMetricFamily(_PREFIX + "stage_seconds", text, labels=["stream", "stage"])
    for report in reports:
        metric.add_metric([report.name, "encoder"], report.encode_s)
        metric.add_metric([report.name, "memory_tracker"], report.track_s)
    return metric


def _device_memory() -> Iterable[Metric]:
    """What the model holds on a GPU. On the CPU, `process_resident_memory_bytes` says what the process holds."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        yield GaugeMetricFamily(
            _PREFIX + "device_memory_bytes", "GPU memory in use.", value=torch.cuda.memory_allocated()
        )


def _by_stream(
    metric: GaugeMetricFamily | CounterMetricFamily,
    reports: Sequence[StreamReport],
    value: Callable[[StreamReport], float | None],
) -> Metric:
    for report in reports:
        number = value(report)
        if number is not None:
            metric.add_metric([report.name], number)
    return metric
