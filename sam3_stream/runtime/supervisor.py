"""Starts processes, starts those that die again, and gives up on one that dies too often.

A process ends in one of three ways: with 0 it has done its part; with the exit code of an error that it has reported
itself, starting it again would bring the same; anything else, a signal above all, is a death.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import RunError

REPORTED_ERRORS = (1, 2)
_POLL_S = 0.02
_BACKOFF_S = 0.1
_BACKOFF_MAX_S = 5.0
_QUIET_S = 10.0


@dataclass
class _Child:
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    deaths_s: deque[float] = field(default_factory=deque)
    start_at_s: float = 0.0
    exit_code: int | None = None
    restarts: int = 0


class Supervisor:
    """Runs one process a group.

    A child's standard input is a pipe whose other end only this process holds: it closes when this process dies, by
    whatever means.

    Args:
        commands: The command line of each group, in flow order: the last is the one that says when all is done.
        max_restarts: Give up when a group dies more often than this
        restart_window_s: within so many seconds.
        on_restart: Told the group's name and how it died, before it is started again.
        clock: Tells the time.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        max_restarts: int = 5,
        restart_window_s: float = 60.0,
        on_restart: Callable[[str, str], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._children = {name: _Child(command) for name, command in commands.items()}
        self._max_restarts = max_restarts
        self._restart_window_s = restart_window_s
        self._on_restart = on_restart
        self._clock = clock or SystemClock()
        self._leaving_s: float | None = None
        self._killed = False

    @property
    def restarts(self) -> dict[str, int]:
        """How often each group has been started again."""
        return {name: child.restarts for name, child in self._children.items()}

    def pid(self, name: str) -> int | None:
        """Process id of a group; None while it is down."""
        process = self._children[name].process
        return None if process is None else process.pid

    def run(self) -> int:
        """Return when all is done: the first exit code that is not 0, in flow order, or 0.

        Raises:
            RunError: A group died too often.
        """
        try:
            while not self._all_ended():
                for name, child in self._children.items():
                    self._look_after(name, child)
                self._clock.sleep(_POLL_S)
        finally:
            self.kill()
        return next((child.exit_code for child in self._children.values() if child.exit_code), 0)

    def signal(self, number: int, name: str | None = None) -> None:
        """Send a signal to one group, or to all."""
        for each, child in self._children.items():
            if name in (None, each) and child.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.send_signal(number)

    def kill(self) -> None:
        """End everything at once, and have `run` return; from signal handlers and other threads, too."""
        self._killed = True
        for child in self._children.values():
            process = child.process
            if process is not None:
                process.kill()
                process.wait()
                _let_go(process)
            child.process = None
            child.exit_code = child.exit_code or 0

    def _all_ended(self) -> bool:
        """Whether all have ended, or have had time to, after the last in the flow or one that failed did."""
        children = list(self._children.values())
        if self._killed or all(child.exit_code is not None for child in children):
            return True
        if self._leaving_s is None and (children[-1].exit_code is not None or any(c.exit_code for c in children)):
            self._leaving_s = self._clock.monotonic_s()
        return self._leaving_s is not None and self._clock.monotonic_s() - self._leaving_s > _QUIET_S

    def _look_after(self, name: str, child: _Child) -> None:
        now_s = self._clock.monotonic_s()
        process = child.process
        if process is None:
            if child.exit_code is None and now_s >= child.start_at_s:
                child.process = subprocess.Popen(child.command, stdin=subprocess.PIPE, start_new_session=True)
            return
        exit_code = process.poll()
        if exit_code is None or self._killed:
            return
        _let_go(process)
        child.process = None
        if exit_code == 0 or exit_code in REPORTED_ERRORS:
            child.exit_code = exit_code
        else:
            self._bury(name, child, exit_code, now_s)

    def _bury(self, name: str, child: _Child, exit_code: int, now_s: float) -> None:
        """Note a death, and when to start again."""
        cause = f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        while child.deaths_s and now_s - child.deaths_s[0] > self._restart_window_s:
            child.deaths_s.popleft()
        child.deaths_s.append(now_s)
        if len(child.deaths_s) > self._max_restarts:
            raise RunError(
                f"the process group {name!r} died {len(child.deaths_s)} times within {self._restart_window_s:g} s, "
                f"the last time by {cause}; giving up"
            )
        child.start_at_s = now_s + min(_BACKOFF_MAX_S, _BACKOFF_S * 2 ** (len(child.deaths_s) - 1))
        child.restarts += 1
        if self._on_restart is not None:
            self._on_restart(name, cause)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Close our end of a child's standard input."""
    if process.stdin is not None:
        process.stdin.close()
