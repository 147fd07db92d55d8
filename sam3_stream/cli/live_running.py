"""Runs live streams from the command line: their state from time to time, signals, health endpoint."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from rich.console import Console

from sam3_stream.build_live import LiveService
from sam3_stream.cli.signals import stopping_on_signals
from sam3_stream.config.live import LiveJobConfig
from sam3_stream.core.errors import ConfigError, RunError
from sam3_stream.core.stream_status import StreamReport
from sam3_stream.stages.memory_tracker import rate_gate

_LINE_INTERVAL_S = 5.0


def run_live(config: LiveJobConfig, *, console: Console, quiet: bool) -> Sequence[BaseException]:
    """Run live streams until Ctrl-C or SIGTERM, or until every stream has ended.

    Stopping takes no more frames and finishes the outputs.

    Returns:
        Why streams have failed for good; empty when none has.

    Raises:
        UsageError: The streams cannot be run as they were given; nothing has been written.
    """
    if not quiet:
        logging.basicConfig(format="%(message)s", level=logging.WARNING)
        logging.getLogger(rate_gate.__name__).setLevel(logging.INFO)
    with (
        LiveService(config) as service,
        _health(config, service, console, quiet),
        stopping_on_signals(lambda *_: service.stop()),
    ):
        service.start()
        while not service.wait(_LINE_INTERVAL_S):
            if not quiet:
                for report in service.reports():
                    console.print(_line(report), highlight=False, soft_wrap=True)
        failed = [report for report in service.reports() if report.state == "failed"]
    return [RunError(f"stream {report.name} has failed: {report.reason}") for report in failed]


def _line(report: StreamReport) -> str:
    if report.state != "live":
        return f"{report.name}: {report.state}"
    age = "--" if report.age_s is None else f"{report.age_s * 1000:.0f} ms"
    dropped = sum(report.dropped.values())
    return (
        f"{report.name}: live, {report.source.fps:.1f} fps in, {report.fps_out:.1f} fps out, age {age}, "
        f"{report.objects} object{'' if report.objects == 1 else 's'}, {dropped} dropped"
        f"{'' if report.rate is None else f', {report.rate}'}"
    )


@contextlib.contextmanager
def _health(config: LiveJobConfig, service: LiveService, console: Console, quiet: bool) -> Iterator[None]:
    if config.health is None:
        yield
        return
    try:
        from sam3_stream.server.health import HealthServer, health_app
    except ImportError as error:
        raise ConfigError("health needs more packages: pip install 'sam3-stream[server]'") from error
    app = health_app(service.reports, lambda: service.encoder_queue)
    with HealthServer(app, config.health.host, config.health.port) as server:
        if not quiet:
            console.print(f"health and metrics: http://{config.health.host}:{server.port}", highlight=False)
        yield
