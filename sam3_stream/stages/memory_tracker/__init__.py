"""EncodedFrame -> TrackedFrame."""

from sam3_stream.stages.memory_tracker.live_tracker import LiveTracker
from sam3_stream.stages.memory_tracker.memory_tracker import MemoryTracker
from sam3_stream.stages.memory_tracker.rate_controlled_tracker import RateControlledTracker
from sam3_stream.stages.memory_tracker.rate_gate import RateGate

__all__ = ["LiveTracker", "MemoryTracker", "RateControlledTracker", "RateGate"]
