"""The image encoder: one trunk pass a picture, shared by everything that comes after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from sam3_stream.models.sam3.network import TrackerNetwork
from sam3_stream.models.sam3.positions import PositionTables


@dataclass(frozen=True, slots=True, eq=False)
class Sam3Features:
    """What the encoder made of one picture.

    Attributes:
        trunk_1chw: Output of the trunk; the detector's neck starts from here.
        embedding_1chw: (1, channels, grid, grid), the tracker's features.
        fine_1chw: (1, channels/8, 4*grid, 4*grid), for the mask decoder.
        middle_1chw: (1, channels/4, 2*grid, 2*grid), for the mask decoder.
        resolution: Side of the square picture in pixels.
    """

    trunk_1chw: torch.Tensor
    embedding_1chw: torch.Tensor
    fine_1chw: torch.Tensor
    middle_1chw: torch.Tensor
    resolution: int


class ImageEncoder:
    """Runs trunk and neck on batches of pictures.

    Args:
        network: The network.
        compiled: Whether the trunk goes through `torch.compile`: faster, after a first frame that takes a minute.
    """

    def __init__(self, network: TrackerNetwork, *, compiled: bool = False) -> None:
        self._network = network
        self._trunk: Callable[[torch.Tensor], torch.Tensor] = self._run_trunk
        if compiled:
            self._trunk = torch.compile(self._run_trunk, dynamic=False)

    def encode(self, pixels_nchw: torch.Tensor, tables: PositionTables) -> list[Sam3Features]:
        """Encode pictures of one size; (n, 3, resolution, resolution), -1 to 1, RGB."""
        for layer in self._network.trunk.layers:
            if layer.window_size == 0:
                layer.position_ids = tables.trunk_position_ids
        trunk_nchw = self._trunk(pixels_nchw)
        fine_layer, middle_layer, last_layer = self._network.neck.fpn_layers
        decoder = self._network.tracker.mask_decoder
        fine_nchw = decoder.conv_s0(fine_layer(trunk_nchw))
        middle_nchw = decoder.conv_s1(middle_layer(trunk_nchw))
        embedding_nchw = last_layer(trunk_nchw)
        return [
            Sam3Features(
                trunk_nchw[i : i + 1],
                embedding_nchw[i : i + 1],
                fine_nchw[i : i + 1],
                middle_nchw[i : i + 1],
                tables.resolution,
            )
            for i in range(len(pixels_nchw))
        ]

    def _run_trunk(self, pixels_nchw: torch.Tensor) -> torch.Tensor:
        trunk, patch = self._network.trunk, self._network.patch_size
        count, _, height, width = pixels_nchw.shape
        hidden = trunk.embeddings(pixels_nchw).view(count, height // patch, width // patch, -1)
        hidden = trunk.layer_norm(hidden)
        for layer in trunk.layers:
            hidden = layer(hidden)
        trunk_nchw: torch.Tensor = hidden.permute(0, 3, 1, 2)
        return trunk_nchw
