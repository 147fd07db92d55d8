"""The `sam3-stream` command."""

import sys


def main() -> None:
    """Run the command line.

    The commands bring codecs and models along, which takes a second or two: Ctrl-C during that time is no bug to show a
    traceback for.
    """
    try:
        from sam3_stream.cli.commands import run_app

        sys.exit(run_app())
    except KeyboardInterrupt:
        sys.stderr.write("sam3-stream: stopped before the first frame\n")
        sys.exit(1)
