"""The parts of `Sam3VideoModel` that tracking needs, without the rest."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoModel, Sam3TrackerVideoModel
from transformers.initialization import no_init_weights
from transformers.models.sam3.modeling_sam3 import Sam3VisionNeck

from sam3_stream.models.sam3.precision import set_precision
from sam3_stream.models.sam3.weights import Checkpoint


class TrackerNetwork(nn.Module):
    """The trunk, the tracker's neck and the tracker, as modules of `transformers`.

    Attributes:
        trunk: `Sam3ViTModel`; the detector shares its output.
        neck: `Sam3VisionNeck` with the three levels that the tracker uses.
        tracker: `Sam3TrackerVideoModel` without a vision encoder.
        dtype: Format of the matrix products; everything else is FP32 (or FP64 with FP64).
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        vision = config.detector_config.vision_config
        self.config = config.tracker_config
        self.patch_size = int(vision.backbone_config.patch_size)
        self.trunk_config = vision.backbone_config
        self.trunk = AutoModel.from_config(vision.backbone_config)
        self.neck = Sam3VisionNeck(vision)
        del self.neck.fpn_layers[3:]
        self.tracker = Sam3TrackerVideoModel(config.tracker_config, remove_vision_encoder=True)
        self.dtype = torch.float32

    @classmethod
    def load(cls, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> TrackerNetwork:
        """Read the weights and put them on the device in the given precision."""
        with no_init_weights():
            network = cls(checkpoint.config)
        checkpoint.load_into(network.trunk, "detector_model.vision_encoder.backbone.")
        checkpoint.load_into(network.neck, "tracker_neck.")
        checkpoint.load_into(network.tracker, "tracker_model.")
        network.eval().requires_grad_(False)
        set_precision(network, dtype, keep_fp32=network.decision_heads())
        network.dtype = dtype
        return network.to(device)

    def decision_heads(self) -> list[nn.Module]:
        """Small modules whose output is compared or kept: they stay in FP32."""
        tracker, decoder = self.tracker, self.tracker.mask_decoder
        return [
            tracker.prompt_encoder,
            tracker.mask_downsample,
            tracker.object_pointer_proj,
            tracker.temporal_positional_encoding_projection_layer,
            decoder.output_hypernetworks_mlps,
            decoder.iou_prediction_head,
            decoder.pred_obj_score_head,
        ]

    @property
    def stream_dtype(self) -> torch.dtype:
        """Format of what is not a matrix product: float32, or float64 when everything is."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.tracker.no_memory_embedding.device
        return device
