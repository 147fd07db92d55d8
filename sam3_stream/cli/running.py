"""Runs a job from the command line: progress, signals and what to say at the end."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.logging import RichHandler

from sam3_stream.build import Job, Pass
from sam3_stream.cli.progress import show_progress
from sam3_stream.config.models import JobConfig
from sam3_stream.core.errors import PromptNotReachedError, RunError, Sam3StreamError
from sam3_stream.runtime.pipeline import Pipeline
from sam3_stream.stages.memory_tracker import rate_gate


def run_job(config: JobConfig, *, console: Console, quiet: bool) -> Sequence[BaseException]:
    """Run every pass of a job, showing progress.

    Ctrl-C and SIGTERM take no more frames and finish the outputs; a second one drops what is under way.

    Returns:
        What went wrong while frames were flowing, in flow order; empty when all is well.

    Raises:
        UsageError: The job cannot be done as it was given; nothing has been written.
    """
    with Job(config) as job, _changes_shown(console, quiet):
        for each in job.passes():
            errors = _run_pass(each, console, quiet)
            if errors:
                return errors
        job.complete()
    if not quiet:
        if job.rate is not None:
            lost = ", ".join(f"{count} {reason}" for reason, count in job.rate.dropped.items() if count)
            console.print(f"rate: {job.rate.changes} changes, frames lost: {lost or 'none'}", highlight=False)
        for sink in config.file_sinks:
            console.print(f"wrote {sink.path}", highlight=False, soft_wrap=True)
    return ()


def _run_pass(each: Pass, console: Console, quiet: bool) -> Sequence[BaseException]:
    frames = 0
    with each.pipeline as pipeline, _stopping_on_signals(pipeline) as signals:
        try:
            for _ in show_progress(
                pipeline, title=each.title, total=each.expected_frames, console=console, quiet=quiet
            ):
                frames += 1
        except Sam3StreamError:
            if not pipeline.errors:
                raise
    errors = list(pipeline.errors)
    if signals:
        # The frames that a prompt waited for were not reached because we were told to stop.
        errors = [error for error in errors if not isinstance(error, PromptNotReachedError)]
        errors.append(RunError(f"stopped by {signals[0]} after {frames} frames; the outputs hold what came before"))
    return errors


@contextmanager
def _changes_shown(console: Console, quiet: bool) -> Iterator[None]:
    """Show what rate control logs, above the bar if there is one."""
    log = logging.getLogger(rate_gate.__name__)
    handler = RichHandler(console=console, show_time=False, show_level=False, show_path=False, highlighter=None)
    if not quiet:
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
        log.propagate = True


@contextmanager
def _stopping_on_signals(pipeline: Pipeline) -> Iterator[list[str]]:
    """Stop the pipeline on SIGINT and SIGTERM, cancel it on the second; yields the names of those that came."""
    received: list[str] = []

    def handle(number: int, _: FrameType | None) -> None:
        received.append(signal.Signals(number).name)
        pipeline.stop() if len(received) == 1 else pipeline.cancel()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
