"""EncodedFrame -> TrackedFrame."""

from sam3_stream.stages.memory_tracker.memory_tracker import MemoryTracker

__all__ = ["MemoryTracker"]
