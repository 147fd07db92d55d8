"""Positional tables for one resolution.

A checkpoint is made for one picture size; these are the tables it would have had if it were made for another, as
`Sam3TrackerVideoConfig.image_size` would set them: angles counted in patches for memory attention, squeezed to the
trained window for the trunk's global layers, and normalised to the picture for everything else.
"""

from __future__ import annotations

import torch

from sam3_stream.models.sam3.network import TrackerNetwork


class PositionTables:
    """Everything in the network that depends on the size of the picture and on nothing else.

    Args:
        network: The network.
        resolution: Side of the square picture in pixels.

    Attributes:
        resolution: As given.
        grid: Side of the feature grid in patches.
        mask_grid: Side of the decoder's masks, 4 a patch.
        memory_mask_grid: Side of the masks that the memory encoder takes, 16 a patch.
        trunk_position_ids: (grid*grid, 2) for the trunk's global layers.
        features_l1c: (1, grid*grid, channels), added to features before memory attention.
        rotary_lc: cosine and sine of each patch's angles as complex numbers, (grid*grid, head_dim/2), for memory
            attention.
        image_1chw: (1, channels, grid, grid), keys of the mask decoder.
        memory_lm: (grid*grid, memory_channels), added to memories.
    """

    def __init__(self, network: TrackerNetwork, resolution: int) -> None:
        tracker, dtype, device = network.tracker, network.stream_dtype, network.device
        self.resolution = resolution
        self.grid = grid = resolution // network.patch_size
        self.mask_grid = 4 * grid
        self.memory_mask_grid = 16 * grid
        patch_xy = _patch_positions(grid, device)
        self.trunk_position_ids = patch_xy * (network.trunk_config.window_size / grid)

        channels = network.config.vision_config.fpn_hidden_size
        features = network.neck.position_encoding(torch.Size((1, channels, grid, grid)), device, dtype)
        self.features_l1c = features.flatten(2).transpose(1, 2)
        angles = tracker.memory_attention.rotary_emb(self.features_l1c, patch_xy)
        self.rotary_lc = torch.complex(angles[0][0, :, ::2].float(), angles[1][0, :, ::2].float())
        centers = (patch_xy.view(grid, grid, 2).to(dtype) + 0.5) / grid
        self.image_1chw = tracker.shared_image_embedding(centers).permute(2, 0, 1)[None]
        memory_shape = torch.Size((1, tracker.mem_dim, grid, grid))
        memory = tracker.memory_encoder.position_encoding(memory_shape, device, dtype)
        self.memory_lm = memory.flatten(2)[0].T.contiguous()


def _patch_positions(grid: int, device: torch.device) -> torch.Tensor:
    """x and y of every patch in reading order: float32 (grid*grid, 2)."""
    steps = torch.arange(grid, dtype=torch.float32, device=device)
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], dim=-1)
