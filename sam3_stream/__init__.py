"""Live video in, tracked masks out, at the frame rate you asked for."""

__version__ = "0.1.0"
