"""The detector: everything on a frame that a phrase or exemplar boxes name, for many concepts in one pass.

The layers and weights are those of `Sam3Model` in `transformers`. All concepts share the trunk's output and the neck,
and go through encoder and decoder as one batch; masks are made only for the queries that score, and pixel features only
for the concepts that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers.initialization import no_init_weights
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.sam3 import modeling_sam3 as sam3

from sam3_stream.models.sam3.mask_nms import mask_nms
from sam3_stream.models.sam3.precision import set_precision
from sam3_stream.models.sam3.text_encoder import TextFeatures
from sam3_stream.models.sam3.weights import Checkpoint


@dataclass(frozen=True, slots=True, eq=False)
class PromptFeatures:
    """A concept as the detector reads it: the tokens of a phrase, and after them those of exemplar boxes.

    Attributes:
        tokens_lc: Shape (length, channels), on the detector's device.
        valid_l: bool, shape (length,).
    """

    tokens_lc: Tensor
    valid_l: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DetectorFeatures:
    """What the detector's neck makes of a frame.

    Attributes:
        levels: Feature maps from fine to coarse, each (1, channels, h, w).
        coarse_position: Positional encoding of the coarsest, (1, channels, h, w).
    """

    levels: tuple[Tensor, ...]
    coarse_position: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What was found for one concept, in the order of the queries.

    Attributes:
        scores_n: float64, shape (n,): the query's probability times that of the concept being in the picture.
        masks_nhw: Mask logits, shape (n, h, w), at the finest level's size.
    """

    scores_n: npt.NDArray[np.float64]
    masks_nhw: Tensor


class Detector(nn.Module):
    """`Sam3Model` without trunk and text encoder.

    Args:
        config: The `Sam3Config` of the checkpoint's detector.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        for part in ("geometry_encoder", "detr_encoder", "detr_decoder", "mask_decoder"):
            getattr(config, f"{part}_config")._attn_implementation = "sdpa"
        self.neck = sam3.Sam3VisionNeck(config.vision_config)
        del self.neck.fpn_layers[3:]  # the coarsest level, which nothing reads
        self.geometry_encoder = sam3.Sam3GeometryEncoder(config.geometry_encoder_config)
        self.detr_encoder = sam3.Sam3DetrEncoder(config.detr_encoder_config)
        self.detr_decoder = sam3.Sam3DetrDecoder(config.detr_decoder_config)
        self.mask_decoder = sam3.Sam3MaskDecoder(config.mask_decoder_config)
        self.dot_product_scoring = sam3.Sam3DotProductScoring(config)

    @classmethod
    def load(cls, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> Detector:
        """Read the weights and put them on the device in the given precision."""
        with no_init_weights():
            detector = cls(checkpoint.config.detector_config)
        checkpoint.load_into(detector.neck, "detector_model.vision_encoder.neck.")
        for name, part in detector.named_children():
            if name != "neck":
                checkpoint.load_into(part, f"detector_model.{name}.")
        detector.eval().requires_grad_(False)
        detector.set_precision(dtype)
        return detector.to(device)

    def set_precision(self, dtype: torch.dtype) -> None:
        """Run matrix products in this format, all else in FP32 (or FP64 with FP64)."""
        set_precision(self, dtype, keep_fp32=self.decision_heads())
        for layer in self.detr_decoder.layers:  # where box positions bias attention: fast kernels want one format
            layer.vision_cross_attn.register_forward_pre_hook(_match_bias, with_kwargs=True)

    def decision_heads(self) -> list[nn.Module]:
        """Small modules whose output is compared, or says where to look: they stay in FP32."""
        decoder = self.detr_decoder
        return [
            self.dot_product_scoring,
            self.mask_decoder.mask_embedder,
            decoder.presence_head,
            decoder.box_head,
            decoder.ref_point_head,
            decoder.box_rpb_embed_x,
            decoder.box_rpb_embed_y,
        ]

    @property
    def stream_dtype(self) -> torch.dtype:
        """Format of what is not a matrix product: float32, or float64 when everything is."""
        dtype: torch.dtype = self.detr_decoder.query_embed.weight.dtype
        return dtype

    @torch.inference_mode()
    def features(self, trunk_1chw: Tensor) -> DetectorFeatures:
        """Run the neck on the trunk's output, (1, channels, h, w)."""
        levels, positions = self.neck(trunk_1chw)
        return DetectorFeatures(tuple(levels), positions[-1])

    @torch.inference_mode()
    def prompt(
        self,
        text: TextFeatures,
        features: DetectorFeatures | None = None,
        boxes_nxyxy: Sequence[tuple[float, float, float, float]] = (),
        positive_n: Sequence[bool] = (),
    ) -> PromptFeatures:
        """Make a concept of a phrase and, with exemplars, of what the boxes hold on this frame.

        What the boxes show is encoded here once, so the concept is good for the frames after this one too.

        Args:
            text: Features of the phrase.
            features: Of the frame that the boxes are on; not needed without boxes.
            boxes_nxyxy: Exemplar boxes (x0, y0, x1, y1) as fractions of the picture's width and height.
            positive_n: For each box whether it shows the concept or what is not meant.
        """
        device, dtype = self.detr_decoder.query_embed.weight.device, self.stream_dtype
        tokens_lc, valid_l = text.tokens_lc.to(device, dtype), text.valid_l.to(device)
        if not boxes_nxyxy:
            return PromptFeatures(tokens_lc, valid_l)
        if features is None:
            raise ValueError("exemplar boxes need the features of the frame they are on")
        boxes_1n4 = sam3_boxes(torch.tensor(boxes_nxyxy, device=device, dtype=dtype))[None]
        exemplars = self.geometry_encoder(
            box_embeddings=boxes_1n4,
            box_mask=torch.ones(boxes_1n4.shape[:2], device=device, dtype=torch.bool),
            box_labels=torch.tensor([list(positive_n)], device=device, dtype=torch.long),
            img_feats=features.levels,
            img_pos_embeds=(features.coarse_position,),
        )
        return PromptFeatures(
            torch.cat([tokens_lc, exemplars.last_hidden_state[0]]), torch.cat([valid_l, exemplars.attention_mask[0]])
        )

    @torch.inference_mode()
    def detect(
        self,
        features: DetectorFeatures,
        prompts: Sequence[PromptFeatures],
        score_thresholds: Sequence[float],
        nms_iou: float,
    ) -> list[Candidates]:
        """Find the objects of every concept on a frame, in one batch.

        Args:
            features: Of the frame.
            prompts: The p concepts.
            score_thresholds: For each concept the score that a query must exceed.
            nms_iou: Mask IoU above which the worse of two candidates of one concept is dropped.
        """
        tokens_plc, valid_pl = _padded(prompts)
        size = len(prompts)
        encoded_psc, position_psc = self._encode(features, tokens_plc, valid_pl)
        decoded = self.detr_decoder(
            vision_features=encoded_psc,
            text_features=tokens_plc,
            vision_pos_encoding=position_psc,
            text_mask=valid_pl,
            spatial_shapes=torch.tensor([features.levels[-1].shape[-2:]]),  # on the CPU: they are read as numbers
        )
        queries_pqc = decoded.intermediate_hidden_states[-1]
        logits_pq = self.dot_product_scoring(queries_pqc[None], tokens_plc, valid_pl)[0].squeeze(-1)
        scores_pq = (logits_pq.sigmoid() * decoded.presence_logits[-1].sigmoid()).double().cpu().numpy()
        above = [np.flatnonzero(scores > low) for scores, low in zip(scores_pq, score_thresholds, strict=True)]
        found = [number for number, queries in enumerate(above) if len(queries)]
        pixels = self._pixels(features, encoded_psc[found], tokens_plc[found], valid_pl[found])
        results = [self._nothing(features)] * size
        for number, pixels_chw in zip(found, pixels, strict=True):
            masks_nhw = self._masks(queries_pqc[number, above[number]], pixels_chw)
            scores_n = scores_pq[number, above[number]]
            kept = np.flatnonzero(mask_nms(masks_nhw > 0, scores_n, nms_iou))
            results[number] = Candidates(scores_n[kept], masks_nhw[torch.from_numpy(kept).to(masks_nhw.device)])
        return results

    def _encode(self, features: DetectorFeatures, tokens_plc: Tensor, valid_pl: Tensor) -> tuple[Tensor, Tensor]:
        """`Sam3DetrEncoder.forward`, but what its first layer does before it reads the prompt is done once for all.

        Returns:
            The frame as each prompt sees it, and its positional encoding, both (p, h*w, channels).
        """
        encoder, size = self.detr_encoder, len(tokens_plc)
        hidden_psc = features.levels[-1].flatten(2).transpose(1, 2)
        position_psc = features.coarse_position.flatten(2).transpose(1, 2)
        first = encoder.layers[0]
        normed_1sc = first.layer_norm1(hidden_psc)
        query_1sc = normed_1sc + position_psc
        attended_1sc, _ = first.self_attn(query=query_1sc, key=query_1sc, value=normed_1sc)
        hidden_psc = (hidden_psc + attended_1sc).expand(size, -1, -1)
        position_psc = position_psc.expand(size, -1, -1)
        mask = create_bidirectional_mask(
            config=encoder.config,
            inputs_embeds=hidden_psc,
            encoder_hidden_states=tokens_plc,
            attention_mask=valid_pl,
        )
        normed_psc = first.layer_norm2(hidden_psc)
        attended_psc, _ = first.cross_attn(query=normed_psc, key=tokens_plc, value=tokens_plc, attention_mask=mask)
        hidden_psc = hidden_psc + attended_psc
        hidden_psc = hidden_psc + first.mlp(first.layer_norm3(hidden_psc))
        for layer in encoder.layers[1:]:
            hidden_psc = layer(
                hidden_psc, prompt_feats=tokens_plc, vision_pos_encoding=position_psc, prompt_cross_attn_mask=mask
            )
        return hidden_psc, position_psc

    def _pixels(self, features: DetectorFeatures, encoded_psc: Tensor, tokens_plc: Tensor, valid_pl: Tensor) -> Tensor:
        """Pixel features for the concepts' masks: `Sam3MaskDecoder.forward` up to their projection."""
        decoder = self.mask_decoder
        if not len(encoded_psc):
            return encoded_psc
        normed_psc = decoder.prompt_cross_attn_norm(encoded_psc)
        mask = create_bidirectional_mask(
            config=decoder.config,
            inputs_embeds=normed_psc,
            encoder_hidden_states=tokens_plc,
            attention_mask=valid_pl,
        )
        attended_psc, _ = decoder.prompt_cross_attn(
            query=normed_psc, key=tokens_plc, value=tokens_plc, attention_mask=mask
        )
        levels = [level.expand(len(encoded_psc), -1, -1, -1) for level in features.levels]
        pixels_pchw: Tensor = decoder._embed_pixels(levels, encoded_psc + attended_psc)
        return pixels_pchw

    def _masks(self, queries_nc: Tensor, pixels_chw: Tensor) -> Tensor:
        """Mask logits of a concept's queries: the pixels' projection is applied to the few queries instead."""
        embeddings_nc = self.mask_decoder.mask_embedder(queries_nc)
        projection, dtype = self.mask_decoder.instance_projection, embeddings_nc.dtype
        weights_nc = embeddings_nc @ projection.weight[:, :, 0, 0].to(dtype)
        bias_n11 = (embeddings_nc @ projection.bias.to(dtype))[:, None, None]
        masks_nhw: Tensor = torch.einsum("nc,chw->nhw", weights_nc, pixels_chw.to(dtype)) + bias_n11
        return masks_nhw

    def _nothing(self, features: DetectorFeatures) -> Candidates:
        fine = features.levels[0]
        return Candidates(np.zeros(0), fine.new_zeros((0, *fine.shape[-2:]), dtype=self.stream_dtype))


def _match_bias(
    attention: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, {**kwargs, "attention_mask": kwargs["attention_mask"].to(attention.q_proj.weight.dtype)}


def sam3_boxes(boxes_nxyxy: Tensor) -> Tensor:
    """Corners (x0, y0, x1, y1) to the (centre x, centre y, width, height) that the geometry encoder reads."""
    corner, opposite = boxes_nxyxy[..., :2], boxes_nxyxy[..., 2:]
    return torch.cat([(corner + opposite) / 2, opposite - corner], dim=-1)


def _padded(prompts: Sequence[PromptFeatures]) -> tuple[Tensor, Tensor]:
    """Prompts of different lengths as one batch: tokens (p, length, channels) and which are valid (p, length)."""
    tokens_plc = nn.utils.rnn.pad_sequence([prompt.tokens_lc for prompt in prompts], batch_first=True)
    valid_pl = nn.utils.rnn.pad_sequence([prompt.valid_l for prompt in prompts], batch_first=True)
    return tokens_plc, valid_pl
