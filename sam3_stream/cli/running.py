"""Runs a job from the command line: progress, signals and what to say at the end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.logging import RichHandler

from sam3_stream.build import Job, Pass
from sam3_stream.cli.progress import say, show_progress
from sam3_stream.config.models import JobConfig, RedactConfig
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
        _warn_of_frames_unhidden(config, console)
        for each in job.passes():
            errors = _run_pass(each, console, quiet)
            if errors:
                return errors
        job.complete()
    if job.rate is not None:
        lost = ", ".join(f"{count} {reason}" for reason, count in job.rate.dropped.items() if count)
        say(console, f"rate: {job.rate.changes} changes, frames lost: {lost or 'none'}")
    for sink in config.file_sinks:
        say(console, f"wrote {sink.path}")
    return ()


def _warn_of_frames_unhidden(config: JobConfig, console: Console) -> None:
    """Say that frames before a prompt are not redacted, which nobody wants to learn from the published video."""
    redacts = any(isinstance(sink, RedactConfig) for sink in config.sinks)
    begins_s = config.source.start_s or 0.0
    late_s = [prompt.time_s for prompt in config.prompts if prompt.time_s > begins_s]
    if redacts and late_s and not config.backward:
        say(console, f"warning: what a prompt shows first at {min(late_s):g} s is not hidden before; add --backward")


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
        kept = "the outputs hold what came before" if each.writes_outputs else "nothing has been written yet"
        errors.append(RunError(f"stopped by {signals[0]} after {frames} frames; {kept}"))
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
        if len(received) == 1:
            pipeline.stop()
        else:
            # Not here: this thread may be inside one of the channels, holding its lock.
            threading.Thread(target=pipeline.cancel, daemon=True).start()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
