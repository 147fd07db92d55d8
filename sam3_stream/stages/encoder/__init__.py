"""Frame -> EncodedFrame."""

from sam3_stream.stages.encoder.image_encoder import ImageEncoder

__all__ = ["ImageEncoder"]
