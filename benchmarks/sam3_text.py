"""Phrases in SAM 3 beside `transformers`' streaming `Sam3VideoModel`: a step without the trunk, and bytes kept a frame.

Both run in one process on the same weights and the same random trunk outputs, turn by turn, from full memory (1
conditioning and 6 recent memories, 16 pointers an object) to masks at display size, necks included. Nothing is born and
nothing ends, so the number of live objects stays; the score threshold is set so that as many queries score as objects
live. `small` is the tests' small model, where dispatch rules; `full` has heads of the published size (trunk
and text encoder, which do not run here, are cut down), where arithmetic rules and a step takes a minute on a CPU (for
that: full --phrases 1 4 --objects 1 4 --steps 1 --warmup 0). Ours at detection intervals of 4 and 8 is the mean over
such a period, of steps with and without a look that were timed one by one; the reference detects on every frame.

usage: python benchmarks/sam3_text.py [small|full] [--device auto] [--phrases 1 4 8] [--objects 1 4 16] [--steps 9]
       [--resolution 42]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import Sam3VideoConfig, Sam3VideoModel, Sam3VideoProcessor
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.sam3_video.modeling_sam3_video import Sam3VideoInferenceSession

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.sam3_tracker import DISPLAYS, FILL, OPTIONS, RESULTS, picture_frame, timed_ms
from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.core.clock import SystemClock
from sam3_stream.core.prompts import ConceptPrompt
from sam3_stream.core.records import EncodedFrame
from sam3_stream.models.sam3 import Sam3Model
from sam3_stream.models.sam3.concept_options import ConceptOptions
from sam3_stream.models.sam3.detect_interval import DetectInterval
from sam3_stream.models.sam3.text_encoder import TextFeatures
from tests.support.sam3_checkpoints import small_config

INTERVALS = (1, 4, 8)
TOKENS = 32


class ModelCheckpoint:
    """A checkpoint that is a model in memory."""

    def __init__(self, model: Sam3VideoModel) -> None:
        self.config = model.config
        self.folder = Path()
        self._state = model.state_dict()

    def load_into(self, module: nn.Module, prefix: str) -> None:
        if "backbone" in prefix:
            return  # the trunk does not run here
        module.load_state_dict({name: self._state[prefix + name] for name in module.state_dict()})


class Recorded(nn.Module):
    """Stands for the trunk: gives an output that was made before."""

    def __init__(self) -> None:
        super().__init__()
        self.output_1chw: Tensor = torch.zeros(0)

    def forward(self, pixels: Tensor, **_: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.output_1chw.flatten(2).transpose(1, 2))


def full_config() -> Sam3VideoConfig:
    config = Sam3VideoConfig()
    config.detector_config.vision_config.backbone_config.num_hidden_layers = 1
    config.detector_config.vision_config.backbone_config.global_attn_indexes = [0]
    config.detector_config.text_config.num_hidden_layers = 1
    return config


def random_model(config: Sam3VideoConfig, device: str) -> Sam3VideoModel:
    torch.manual_seed(0)
    model = Sam3VideoModel(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.normal_(0.0, 0.05)
    return model.to(device)


def share(total: int, parts: int) -> list[int]:
    """Which of `parts` each of `total` things belongs to, evenly."""
    return [index % parts for index in range(total)]


class Ours:
    """Our session with its memory full and its objects alive."""

    name = "sam3_stream"

    def __init__(
        self, reference: Sam3VideoModel, device: str, prompts: Tensor, objects: int, threshold: float, size: Any
    ):
        thresholds = AssociationConfig(
            score_threshold=threshold,
            new_score=1.0,
            nms_iou=0.0,
            hot_start_ticks=0,
            recondition_ticks=0,
            expire_after_s=math.inf,
            merge_after_s=math.inf,
        )
        self._model = Sam3Model(
            ModelCheckpoint(reference),  # type: ignore[arg-type]
            device=device,
            dtype="fp32",
            resolution=None,
            idle_unload_s=None,
            compile_trunk=False,
            options=OPTIONS,
            concepts=ConceptOptions(association=thresholds, detect_interval=DetectInterval(frames=10**9)),
            clock=SystemClock(),
        )
        valid = torch.ones(TOKENS, dtype=torch.bool)
        self._model.phrases = lambda texts: [TextFeatures(prompts[int(text)], valid) for text in texts]  # type: ignore[method-assign]
        self._size = size
        self.session = self._model.open_session(lambda: 1)
        self._prompts = [ConceptPrompt(prompt_id=f"p{i}", text=str(i), label=str(i)) for i in range(len(prompts))]
        self._number = -1
        self._fill(objects)

    def _fill(self, objects: int) -> None:
        self.step(torch.zeros(1, 1, 1, 1), look=None)
        session, bank = self.session, self.session._bank
        generator = torch.Generator().manual_seed(1)
        slots = []
        for number, prompt in enumerate(share(objects, len(self._prompts))):
            slots.append(session._objects.add(number + 1, f"p{prompt}", "object").slot)
            session._concepts._planner.lifecycle.start(slots[-1], 0.0)
        for number in range(FILL):
            memories = torch.randn((objects, *bank.memories_selc.shape[2:]), generator=generator)
            pointers = torch.randn((objects, bank.pointers_spc.shape[2]), generator=generator)
            bank.write(
                slots,
                memories.to(bank.scores_s.device),
                pointers.to(bank.scores_s.device),
                np.full(objects, number == 0),
            )
            bank.advance()

    def step(self, trunk_1chw: Tensor, *, look: bool | None) -> None:
        self._number += 1
        frame = picture_frame(self._number, self._size)
        side = self._model.resolution
        if look is None:  # nothing is there yet: say what to look for, without looking
            self.session._concepts.accept(self.session._concepts.table.check(self._prompts, frame))
            self.session._concepts._changed.clear()
            self.session._concepts.schedule.looked(0.0)
            with self._model.engine() as engine:
                for concept in self.session._concepts.table:
                    self.session._concepts.table.read(concept, engine.detector, None, frame)  # type: ignore[arg-type]
            return
        self.session.detect_interval = DetectInterval(frames=1 if look else 10**9)
        with self._model.engine() as engine:
            engine.encoder._trunk = lambda pixels: trunk_1chw
            features = engine.encoder.encode(torch.zeros(1, 3, side, side), engine.tables(side))[0]
        self.session.step(EncodedFrame(frame, features, (side, side)))

    def nbytes(self) -> int:
        concepts = self.session._concepts.snapshot().values()
        return self.session.nbytes + sum(value.nbytes for value in concepts)


class Theirs:
    """The reference's session with its memory full and its objects alive."""

    name = "transformers"

    def __init__(self, reference: Sam3VideoModel, prompts: Tensor, objects: int, threshold: float, size: Any) -> None:
        self._model, self._trunk, self._size = reference, Recorded(), size
        reference.detector_model.vision_encoder.backbone = self._trunk
        reference.score_threshold_detection, reference.new_det_thresh = threshold, 2.0
        reference.det_nms_thresh, reference.recondition_every_nth_frame = 0.0, 0
        self._processor = Sam3VideoProcessor.__new__(Sam3VideoProcessor)
        device = prompts.device
        self._session = session = Sam3VideoInferenceSession(
            inference_device=device, inference_state_device=device, video_storage_device=device, dtype=torch.float32
        )
        for number, tokens_lc in enumerate(prompts):
            session.add_prompt(str(number))
            session.prompt_embeddings[number] = SimpleNamespace(pooler_output=tokens_lc[None])
            session.prompt_attention_masks[number] = torch.ones(1, TOKENS, dtype=torch.long, device=device)
        tracker = reference.tracker_model
        grid, generator = tracker.prompt_encoder.image_embedding_size[0], torch.Generator().manual_seed(1)
        position = tracker.memory_encoder.position_encoding((1, 64, grid, grid), device, torch.float32)
        for number, prompt in enumerate(share(objects, len(prompts))):
            index = session.obj_id_to_idx(number)
            session.obj_id_to_prompt_id[number], session.obj_first_frame_idx[number] = prompt, 0
            session.trk_keep_alive[number], session.obj_id_to_score[number] = 30, 0.9
            for frame in range(FILL):
                output = {
                    "maskmem_features": torch.randn((grid**2, 1, 64), generator=generator).bfloat16().to(device),
                    "maskmem_pos_enc": position.flatten(2).permute(2, 0, 1),
                    "object_pointer": torch.randn((1, 1, tracker.hidden_dim), generator=generator).to(device),
                    "object_score_logits": torch.ones((1, 1, 1), device=device),
                }
                session.store_output(index, frame, output_value=output, is_conditioning_frame=frame == 0)
        session.obj_with_new_inputs, session.max_obj_id = [], objects - 1
        side = int(reference.config.tracker_config.image_size)
        self._pixels = torch.zeros((3, side, side), device=device)
        self._number = FILL - 1

    def step(self, trunk_1chw: Tensor) -> None:
        self._number += 1
        self._trunk.output_1chw = trunk_1chw
        out = self._model(self._session, frame=self._pixels.clone(), frame_idx=self._number)
        self._processor.postprocess_outputs(self._session, out, [[self._size[1], self._size[0]]])["masks"].cpu()

    def nbytes(self) -> int:
        kept = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for tensor in tensors(vars(self._session))
        }
        return sum(kept.values())


def tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested dicts and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors(one)


def threshold_for(reference: Sam3VideoModel, prompts: Tensor, trunk_1chw: Tensor, detections: int) -> float:
    """The score that about as many queries exceed, of all phrases together."""
    recorded = Recorded()
    recorded.output_1chw = trunk_1chw
    reference.detector_model.vision_encoder.backbone = recorded
    side = int(reference.config.tracker_config.image_size)
    vision = reference.detector_model.get_vision_features(
        pixel_values=torch.zeros(1, 3, side, side, device=prompts.device)
    )
    scores = []
    for tokens_lc in prompts:
        text = SimpleNamespace(pooler_output=tokens_lc[None])
        out = reference.detector_model(vision_embeds=vision, text_embeds=text)
        scores.append((out.pred_logits.sigmoid() * out.presence_logits.sigmoid()).flatten())
    ranked = torch.cat(scores).sort(descending=True).values
    return float(ranked[min(detections, len(ranked) - 1)])


def compare(
    reference: Sam3VideoModel, device: str, phrases: int, objects: int, size: Any, steps: int, warmup: int
) -> dict[str, float]:
    """Median milliseconds of a step and bytes kept a frame, ours and theirs by turns on the same trunk outputs."""
    vision = reference.config.detector_config.vision_config
    grid = int(reference.config.tracker_config.image_size) // int(vision.backbone_config.patch_size)
    generator = torch.Generator().manual_seed(phrases * 100 + objects)

    def trunk() -> Tensor:
        return torch.randn((1, vision.backbone_config.hidden_size, grid, grid), generator=generator).to(device)

    prompts = torch.randn((phrases, TOKENS, vision.fpn_hidden_size), generator=generator).to(device)
    threshold = threshold_for(reference, prompts, trunk(), objects)
    ours = Ours(reference, device, prompts, objects, threshold, size)
    theirs = Theirs(reference, prompts, objects, threshold, size)
    times: dict[str, list[float]] = {"look": [], "track": [], "theirs": []}
    before = (0, 0)
    for number in range(warmup + steps):
        output = trunk()
        works = {
            "look": lambda output=output: ours.step(output, look=True),
            "track": lambda output=output: ours.step(output, look=False),
            "theirs": lambda output=output: theirs.step(output),
        }
        if number == warmup:
            before = ours.nbytes(), theirs.nbytes()
        for name in list(works) if number % 2 else reversed(works):
            spent_ms = timed_ms(works[name], prompts.device)
            if number >= warmup:
                times[name].append(spent_ms)
    look_ms, track_ms, theirs_ms = (statistics.median(times[name]) for name in ("look", "track", "theirs"))
    row: dict[str, float] = {"phrases": phrases, "objects": objects, "transformers_ms": theirs_ms}
    for interval in INTERVALS:
        row[f"sam3_stream_ms_interval_{interval}"] = (look_ms + (interval - 1) * track_ms) / interval
        row[f"speedup_interval_{interval}"] = theirs_ms / row[f"sam3_stream_ms_interval_{interval}"]
    row["sam3_stream_bytes_a_frame"] = (ours.nbytes() - before[0]) / steps
    row["transformers_bytes_a_frame"] = (theirs.nbytes() - before[1]) / steps
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", choices=["small", "full"], default="small")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--resolution", type=int, default=42, help="of the small model, in pixels")
    parser.add_argument("--phrases", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--objects", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    reference = random_model(
        small_config(resolution=arguments.resolution) if arguments.size == "small" else full_config(), arguments.device
    )
    print("ms: median of a step without the trunk. at 4, at 8: speedup when ours looks every 4th, 8th frame.")
    print("B/frame: bytes that the session holds on to for every frame that has passed; 0 does not grow.")
    print(
        f"{'phrases':>7} {'objects':>7} {'theirs ms':>10} {'ours ms':>9} {'speedup':>8} {'at 4':>7} {'at 8':>7} "
        f"{'ours B/frame':>13} {'theirs B/frame':>15}"
    )
    rows = []
    with torch.inference_mode():
        for phrases in arguments.phrases:
            for objects in arguments.objects:
                row = compare(
                    reference,
                    arguments.device,
                    phrases,
                    objects,
                    DISPLAYS[arguments.size],
                    arguments.steps,
                    arguments.warmup,
                )
                rows.append(row)
                print(
                    f"{phrases:7d} {objects:7d} {row['transformers_ms']:10.1f} {row['sam3_stream_ms_interval_1']:9.1f} "
                    f"{row['speedup_interval_1']:7.2f}x {row['speedup_interval_4']:6.2f}x "
                    f"{row['speedup_interval_8']:6.2f}x "
                    f"{row['sam3_stream_bytes_a_frame']:13.0f} {row['transformers_bytes_a_frame']:15.0f}",
                    flush=True,
                )
    device_type = torch.device(arguments.device).type
    report = {
        "size": arguments.size,
        "resolution": int(reference.config.tracker_config.image_size),
        "device": torch.cuda.get_device_name() if device_type == "cuda" else platform.machine(),
        "cores": os.cpu_count(),
        "threads": arguments.threads,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"sam3_text_{arguments.size}_{device_type}.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
