"""Tracked frames to the outside: videos, masks, pictures."""

from sam3_stream.stages.sinks.cutout import CutoutSink
from sam3_stream.stages.sinks.davis import DavisSink
from sam3_stream.stages.sinks.masks import MasksSink
from sam3_stream.stages.sinks.overlay import OverlaySink
from sam3_stream.stages.sinks.protocol import Sink
from sam3_stream.stages.sinks.push import PushSink
from sam3_stream.stages.sinks.redact import RedactSink
from sam3_stream.stages.sinks.segments import SegmentsSink

__all__ = ["CutoutSink", "DavisSink", "MasksSink", "OverlaySink", "PushSink", "RedactSink", "SegmentsSink", "Sink"]
