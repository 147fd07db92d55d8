"""The prompt encoder and the mask decoder: clicks, boxes and rough masks on features, to masks, scores and pointers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.memory_bank import to_map
from sam3_stream.models.sam3.network import TrackerNetwork
from sam3_stream.models.sam3.positions import PositionTables

NO_OBJECT_LOGIT = -1024.0
NOT_A_POINT, NEGATIVE, POSITIVE, BOX_START, BOX_END = -1, 0, 1, 2, 3


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Masks of n objects on one picture.

    Attributes:
        logits_nhw: (n, mask_grid, mask_grid); all -1024 where the object is absent.
        scores_n: Logits of the object's presence; above 0 it is there.
        pointers_nc: (n, channels), what to remember of the object besides the mask.
        ious_n: Predicted IoU of the mask.
        choices_n: Which of the decoder's four masks it is: 0 the single one, 1 to 3 the proposals.
    """

    logits_nhw: torch.Tensor
    scores_n: torch.Tensor
    pointers_nc: torch.Tensor
    ious_n: torch.Tensor
    choices_n: torch.Tensor


class MaskDecoder:
    """The SAM head, for a batch of objects on one picture.

    Decides on a mask before it computes the pixels, so only the pixels of masks that can win are computed.
    """

    def __init__(self, network: TrackerNetwork) -> None:
        self._network = network

    def embed_points(self, points_np2: torch.Tensor, labels_np: torch.Tensor, resolution: int) -> torch.Tensor:
        """Embed clicks and box corners, and the padding point that the model was trained with.

        Args:
            points_np2: (n, p, 2), x and y in pixels of the square picture.
            labels_np: (n, p), int64: NEGATIVE, POSITIVE, BOX_START or BOX_END.
            resolution: Side of the square picture.

        Returns:
            (n, 1, p + 1, channels).
        """
        encoder = self._network.tracker.prompt_encoder
        points = functional.pad(points_np2 + 0.5, (0, 0, 0, 1))[:, None]
        labels = functional.pad(labels_np, (0, 1), value=NOT_A_POINT)[:, None, :, None]
        places = encoder.shared_embedding(points, (resolution, resolution))
        kinds = encoder.point_embed(labels[..., 0].clamp(min=0))
        return torch.where(labels == NOT_A_POINT, encoder.not_a_point_embed.weight, places + kinds)

    def embed_mask(self, logits_nhw: torch.Tensor) -> torch.Tensor:
        """Embed mask logits at the mask grid: (n, channels, grid, grid)."""
        embedded: torch.Tensor = self._network.tracker.prompt_encoder.mask_embed(logits_nhw[:, None])
        return embedded

    def decode(
        self,
        embedding_nchw: torch.Tensor,
        features: Sam3Features,
        tables: PositionTables,
        *,
        points_n1pc: torch.Tensor,
        mask_nchw: torch.Tensor | None = None,
        multimask: bool,
    ) -> Decoded:
        """Decode one mask an object.

        Args:
            embedding_nchw: Features conditioned on each object's memory, or (1, …) when they are the same for all.
            features: The picture's features, of which the finer levels are used.
            tables: Positional tables of the picture's resolution.
            points_n1pc: What `embed_points` gave; its n is the number of objects.
            mask_nchw: What `embed_mask` gave, or None for no earlier mask.
            multimask: Whether the best of three proposals is taken, or the single mask.
        """
        decoder = self._network.tracker.mask_decoder
        if mask_nchw is None:
            mask_nchw = self._network.tracker.prompt_encoder.no_mask_embed.weight[:, :, None, None]
        count = len(points_n1pc)
        own_tokens = torch.cat([decoder.obj_score_token.weight, decoder.iou_token.weight, decoder.mask_tokens.weight])
        tokens, pixels = decoder.transformer(
            point_embeddings=torch.cat([own_tokens.expand(count, 1, -1, -1), points_n1pc], dim=2),
            image_embeddings=(embedding_nchw + mask_nchw).expand(count, -1, -1, -1),
            image_positional_embeddings=tables.image_1chw,
            attention_similarity=None,
        )
        tokens = tokens[:, 0]
        scores_n = decoder.pred_obj_score_head(tokens[:, 0])[:, 0]
        ious_nm = decoder.iou_prediction_head(tokens[:, 1])
        mask_tokens = tokens[:, 2 : 2 + decoder.num_mask_tokens]
        pixels = self._upscale(to_map(pixels[:, 0].transpose(1, 2), tables.grid), features)

        best = ious_nm[:, 1:].argmax(dim=1) + 1
        if multimask:
            choices, pointer_tokens = best, _pick(mask_tokens, best)
            logits = self._mask_logits(mask_tokens, best[:, None], pixels)[:, 0]
        else:
            choices, logits = self._single_mask(mask_tokens, best, pixels)
            pointer_tokens = mask_tokens[:, 0]  # of the single mask, even where a proposal replaced it, as trained
        present_n = scores_n > 0
        logits = torch.where(present_n[:, None, None], logits, NO_OBJECT_LOGIT)
        pointers = self._network.tracker.object_pointer_proj(pointer_tokens)
        pointers = torch.where(present_n[:, None], pointers, self._network.tracker.no_object_pointer)
        return Decoded(logits, scores_n, pointers, _pick(ious_nm, choices), choices)

    def _upscale(self, pixels_nchw: torch.Tensor, features: Sam3Features) -> torch.Tensor:
        """Pixels at the mask grid: (n, channels/8, mask_grid, mask_grid)."""
        decoder = self._network.tracker.mask_decoder
        pixels = decoder.upscale_conv1(pixels_nchw) + features.middle_1chw
        pixels = decoder.activation(decoder.upscale_layer_norm(pixels))
        pixels = decoder.activation(decoder.upscale_conv2(pixels) + features.fine_1chw)
        upscaled: torch.Tensor = pixels.to(self._network.stream_dtype)
        return upscaled

    def _mask_logits(self, mask_tokens: torch.Tensor, wanted_nk: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
        """Logits of the wanted masks: (n, k, mask_grid, mask_grid)."""
        mlps = self._network.tracker.mask_decoder.output_hypernetworks_mlps
        weights = torch.stack([mlp(mask_tokens[:, number]) for number, mlp in enumerate(mlps)], dim=1)
        weights = weights.gather(1, wanted_nk[:, :, None].expand(-1, -1, weights.shape[2]))
        return to_map(weights @ pixels.flatten(2), pixels.shape[-1])

    def _single_mask(
        self, mask_tokens: torch.Tensor, best: torch.Tensor, pixels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The single mask, or the best proposal where the single one is unstable under its threshold."""
        decoder = self._network.tracker.mask_decoder
        single = torch.zeros_like(best)
        if not decoder.dynamic_multimask_via_stability:
            return single, self._mask_logits(mask_tokens, single[:, None], pixels)[:, 0]
        logits = self._mask_logits(mask_tokens, torch.stack([single, best], dim=1), pixels)
        delta = decoder.dynamic_multimask_stability_delta
        inner = (logits[:, 0] > delta).sum(dim=(1, 2)).float()
        outer = (logits[:, 0] > -delta).sum(dim=(1, 2)).float()
        stability = torch.where(outer > 0, inner / outer, 1.0)
        stable = stability >= decoder.dynamic_multimask_stability_thresh
        return torch.where(stable, single, best), torch.where(stable[:, None, None], logits[:, 0], logits[:, 1])


def _pick(values_nm: torch.Tensor, choices_n: torch.Tensor) -> torch.Tensor:
    """Row `choices_n[i]` of `values_nm[i]`, for each i."""
    return values_nm[torch.arange(len(choices_n), device=choices_n.device), choices_n]
