"""One process group in a process of its own: ``python -m sam3_stream.cli.group_process CONFIG.json GROUP [--quiet]``.

Started by the supervisor, and ends with it: standard input closes when the supervisor dies.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from rich.console import Console

from sam3_stream.cli.progress import show_progress
from sam3_stream.config.models import JobConfig
from sam3_stream.core.errors import Sam3StreamError
from sam3_stream.process_groups import ProcessGroup
from sam3_stream.transport.endpoint import end_sockets

LEFT = 75  # EX_TEMPFAIL: start me again


def main() -> int:
    """Run the group; the exit code says whether to start it again, as `runtime.supervisor` understands it."""
    config = JobConfig.model_validate_json(Path(sys.argv[1]).read_text())
    name, quiet = sys.argv[2], "--quiet" in sys.argv[3:]
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    try:
        group = ProcessGroup(config, name)
    except Sam3StreamError as error:
        _complain(name, error)
        return error.exit_code
    signal.signal(signal.SIGTERM, lambda *_: group.stop() if "decoder" in group.stages else os._exit(LEFT))
    console = Console(stderr=True)
    errors: list[BaseException] = []
    try:
        errors += group.run(
            lambda frames, total: show_progress(frames, title="tracking", total=total, console=console, quiet=quiet)
        )
    except Sam3StreamError as error:
        errors.append(error)
    finally:
        group.close()
        end_sockets()
    for each in errors:
        _complain(name, each)
    return int(getattr(errors[0], "exit_code", 1)) if errors else 0


def _complain(name: str, error: BaseException) -> None:
    sys.stderr.write(f"sam3-stream: error: {name}: {' '.join(str(error).split())}\n")


def _end_with_supervisor() -> None:
    while os.read(0, 1024):
        pass
    os._exit(LEFT)


if __name__ == "__main__":
    sys.exit(main())
