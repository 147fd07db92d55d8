"""The memory encoder: what is remembered of a picture and the masks found on it."""

from __future__ import annotations

import torch
from torch.nn import functional

from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.network import TrackerNetwork
from sam3_stream.models.sam3.positions import PositionTables


class MemoryEncoder:
    """Encodes memories for a batch of objects on one picture."""

    def __init__(self, network: TrackerNetwork) -> None:
        self._network = network

    def encode(
        self,
        features: Sam3Features,
        masks_n1hw: torch.Tensor,
        scores_n: torch.Tensor,
        tables: PositionTables,
        *,
        binarize: bool,
    ) -> torch.Tensor:
        """Encode one memory an object.

        Args:
            features: The picture's features.
            masks_n1hw: Mask logits at any size.
            scores_n: Presence logits; at 0 or below the memory says that the object is hidden.
            tables: Positional tables of the picture's resolution.
            binarize: Whether the masks are taken as 0 and 1, as on frames with prompts, or as probabilities.

        Returns:
            (n, grid*grid, memory_channels).
        """
        tracker, config = self._network.tracker, self._network.config
        encoder, dtype = tracker.memory_encoder, self._network.stream_dtype
        size = (tables.memory_mask_grid, tables.memory_mask_grid)
        if masks_n1hw.shape[2:] != size:
            masks_n1hw = functional.interpolate(
                masks_n1hw.float(), size=size, mode="bilinear", align_corners=False, antialias=True
            ).to(dtype)
        masks = (masks_n1hw > 0).to(dtype) if binarize else masks_n1hw.sigmoid()
        masks = masks * config.sigmoid_scale_for_mem_enc + config.sigmoid_bias_for_mem_enc
        fused = encoder.feature_projection(features.embedding_1chw) + encoder.mask_downsampler(masks)
        memories_nchw: torch.Tensor = encoder.projection(encoder.memory_fuser(fused)).to(dtype)
        hidden_embedding = tracker.occlusion_spatial_embedding_parameter
        if hidden_embedding is not None:
            hidden = (scores_n <= 0).to(dtype)[:, None, None, None]
            memories_nchw = memories_nchw + hidden * hidden_embedding[..., None, None]
        return memories_nchw.flatten(2).transpose(1, 2)
