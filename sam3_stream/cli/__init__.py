"""The `sam3-stream` command."""

from sam3_stream.cli.commands import main

__all__ = ["main"]
