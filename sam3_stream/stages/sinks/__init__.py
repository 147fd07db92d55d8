"""Tracked frames to the outside: videos, masks, pictures."""

from sam3_stream.stages.sinks.masks import MasksSink
from sam3_stream.stages.sinks.overlay import OverlaySink
from sam3_stream.stages.sinks.protocol import Sink

__all__ = ["MasksSink", "OverlaySink", "Sink"]
