"""EncodedFrame -> TrackedFrame."""

from sam3_stream.stages.memory_tracker.live_tracker import LiveTracker
from sam3_stream.stages.memory_tracker.memory_tracker import MemoryTracker

__all__ = ["LiveTracker", "MemoryTracker"]
