"""Who is started again, who is not, and when a supervisor gives up."""

from __future__ import annotations

import signal
import sys
import threading
import time

import pytest

from sam3_stream.core.errors import RunError
from sam3_stream.runtime.supervisor import Supervisor


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


DONE = python("")
WAIT = python("import sys; sys.stdin.read()")


def dies_until(path, times: int, how: str) -> list[str]:
    """A process that notes that it ran, dies, and after so many times ends well."""
    return python(
        f"import os, signal, sys; f = open({str(path)!r}, 'a'); f.write('x'); f.close()\n"
        f"if os.path.getsize({str(path)!r}) <= {times}: {how}"
    )


def test_all_done_is_zero():
    assert Supervisor({"a": DONE, "b": DONE}).run() == 0


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(75)", "os._exit(70)"])
def test_who_dies_is_started_again(tmp_path, how):
    told = []
    supervisor = Supervisor(
        {"a": dies_until(tmp_path / "ran", 2, how), "b": python("import time; time.sleep(1)")},
        on_restart=lambda name, cause: told.append((name, cause)),
    )
    assert supervisor.run() == 0
    assert (tmp_path / "ran").read_text() == "xxx"
    assert supervisor.restarts == {"a": 2, "b": 0}
    assert [name for name, _ in told] == ["a", "a"]


def test_who_reported_an_error_is_not_started_again_and_its_exit_code_is_ours(tmp_path):
    supervisor = Supervisor({"a": dies_until(tmp_path / "ran", 9, "sys.exit(2)"), "b": DONE})
    assert supervisor.run() == 2
    assert (tmp_path / "ran").read_text() == "x"


def test_who_dies_too_often_is_given_up_and_the_others_ended(tmp_path):
    supervisor = Supervisor({"a": dies_until(tmp_path / "ran", 99, "os._exit(9)"), "b": WAIT}, max_restarts=2)
    with pytest.raises(RunError, match="'a' died 3 times within 60 s, the last time by exit code 9; giving up"):
        supervisor.run()
    assert (tmp_path / "ran").read_text() == "xxx"
    assert supervisor.pid("b") is None


def test_deaths_long_ago_are_forgotten(tmp_path):
    supervisor = Supervisor(
        {"a": dies_until(tmp_path / "ran", 4, "os._exit(9)"), "b": python("import time; time.sleep(2)")},
        max_restarts=1,
        restart_window_s=0.01,
    )
    assert supervisor.run() == 0


def test_a_signal_reaches_one_group_only():
    wait = python("import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); time.sleep(60)")
    supervisor = Supervisor({"a": wait, "b": wait})
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    while supervisor.pid("a") is None or supervisor.pid("b") is None:
        time.sleep(0.01)
    time.sleep(1)
    supervisor.signal(signal.SIGTERM, "a")
    deadline_s = time.monotonic() + 10
    while supervisor.pid("a") is not None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert supervisor.pid("a") is None
    assert supervisor.pid("b") is not None
    supervisor.signal(signal.SIGTERM)
    thread.join(20)
    assert not thread.is_alive()
