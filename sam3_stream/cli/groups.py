"""Runs a job's local process groups from the command line, under a supervisor."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from sam3_stream.cli.progress import say
from sam3_stream.config.models import JobConfig
from sam3_stream.core.errors import ConfigError, RunError
from sam3_stream.process_groups import prepare, run_folder
from sam3_stream.runtime.supervisor import Supervisor


def run_groups(config: JobConfig, only: str | None, *, console: Console, quiet: bool) -> int:
    """Run the groups of a job, or one of them, each in a process of its own.

    Ctrl-C and SIGTERM have the decoder take no more frames, and everything finished; a second one kills all.

    Returns:
        The exit code; the groups have said why themselves.

    Raises:
        UsageError: The job cannot be done as it was given.
        RunError: A group died too often, or we were told to stop.
    """
    processes = config.processes
    names = processes.groups if only is None else (only,)
    if only is not None and only not in processes.groups:
        raise ConfigError(f"there is no group {only!r}; the config's groups are {', '.join(processes.groups)}")
    for name in names:
        prepare(config, name)
    folder = run_folder(config)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stored = folder / f"{'-'.join(names)}.json"
    stored.touch(mode=0o600)
    stored.write_text(config.model_dump_json(exclude_unset=True))
    command = [sys.executable, "-m", "sam3_stream.cli.group_process", str(stored)]

    def tell(name: str, cause: str) -> None:
        say(console, f"the process group {name!r} died ({cause}) and is started again")

    supervisor = Supervisor(
        {name: [*command, name, *(["--quiet"] if quiet else [])] for name in names},
        max_restarts=processes.max_restarts,
        restart_window_s=processes.restart_window_s,
        on_restart=tell,
    )
    with _passing_on_signals(supervisor, processes.decoder) as received:
        exit_code = supervisor.run()
    if received:
        raise RunError(f"stopped by {received[0]}; the outputs hold what came before")
    if exit_code == 0 and only is None:
        shutil.rmtree(folder, ignore_errors=True)  # nothing is left to be started again
    if exit_code == 0 and not quiet and processes.sinks in names:
        for sink in config.file_sinks:
            say(console, f"wrote {sink.path}")
    return exit_code


@contextmanager
def _passing_on_signals(supervisor: Supervisor, decoder: str) -> Iterator[list[str]]:
    received: list[str] = []

    def handle(number: int, _: FrameType | None) -> None:
        received.append(signal.Signals(number).name)
        if len(received) > 1 or decoder not in supervisor.restarts:
            supervisor.kill()
        else:
            supervisor.signal(signal.SIGTERM, decoder)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
