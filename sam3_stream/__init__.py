"""Live video in, tracked masks out, at the frame rate you asked for.

What a program needs is here; `pipelines/track_file.py` shows it in use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sam3_stream.build_live import LiveService, LiveStream
    from sam3_stream.client import Client
    from sam3_stream.config.live import LiveJobConfig, LiveSourceConfig
    from sam3_stream.core.errors import Sam3StreamError
    from sam3_stream.core.masks_format import read_masks, run_header
    from sam3_stream.core.prompts import BoxPrompt, MaskPrompt, PointPrompt, TextPrompt
    from sam3_stream.core.records import Frame, RunHeader, TrackedFrame, TrackedObject
    from sam3_stream.models.loading import load_model
    from sam3_stream.runtime.pipeline import Pipeline
    from sam3_stream.stages.decoder import VideoDecoder
    from sam3_stream.stages.decoder.live import LiveDecoder
    from sam3_stream.stages.encoder import ImageEncoder
    from sam3_stream.stages.memory_tracker import LiveTracker, MemoryTracker
    from sam3_stream.stages.sinks import (
        CutoutSink,
        DavisSink,
        MasksSink,
        OverlaySink,
        PushSink,
        RedactSink,
        SegmentsSink,
    )

__version__ = "0.1.0"

_HOMES = {
    "BoxPrompt": "core.prompts",
    "Client": "client",
    "CutoutSink": "stages.sinks",
    "DavisSink": "stages.sinks",
    "Frame": "core.records",
    "ImageEncoder": "stages.encoder",
    "LiveDecoder": "stages.decoder.live",
    "LiveJobConfig": "config.live",
    "LiveService": "build_live",
    "LiveSourceConfig": "config.live",
    "LiveStream": "build_live",
    "LiveTracker": "stages.memory_tracker",
    "MaskPrompt": "core.prompts",
    "MasksSink": "stages.sinks",
    "MemoryTracker": "stages.memory_tracker",
    "OverlaySink": "stages.sinks",
    "Pipeline": "runtime.pipeline",
    "PointPrompt": "core.prompts",
    "PushSink": "stages.sinks",
    "RedactSink": "stages.sinks",
    "RunHeader": "core.records",
    "Sam3StreamError": "core.errors",
    "SegmentsSink": "stages.sinks",
    "TextPrompt": "core.prompts",
    "TrackedFrame": "core.records",
    "TrackedObject": "core.records",
    "VideoDecoder": "stages.decoder",
    "load_model": "models.loading",
    "read_masks": "core.masks_format",
    "run_header": "core.masks_format",
}

__all__ = [
    "BoxPrompt",
    "Client",
    "CutoutSink",
    "DavisSink",
    "Frame",
    "ImageEncoder",
    "LiveDecoder",
    "LiveJobConfig",
    "LiveService",
    "LiveSourceConfig",
    "LiveStream",
    "LiveTracker",
    "MaskPrompt",
    "MasksSink",
    "MemoryTracker",
    "OverlaySink",
    "Pipeline",
    "PointPrompt",
    "PushSink",
    "RedactSink",
    "RunHeader",
    "Sam3StreamError",
    "SegmentsSink",
    "TextPrompt",
    "TrackedFrame",
    "TrackedObject",
    "VideoDecoder",
    "load_model",
    "read_masks",
    "run_header",
]


def __getattr__(name: str) -> Any:
    """Import on first use: a program that only reads masks files need not wait for codecs and models."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
