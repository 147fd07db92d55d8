"""The SAM 3 tracker beside `transformers`' own session: time of a step without the trunk, and bytes kept a frame.

Both run in one process on the same random weights and features, turn by turn, from full memory (1 conditioning and 6
recent memories, 16 pointers an object) to masks at display size. `small` is the tests' small model with pictures of
160x96, where dispatch rules (the less, the higher the resolution); `full` is the model as published with pictures of
854x480, where arithmetic rules and a step takes minutes on a CPU (for that: full --objects 1 4 --steps 1 --warmup 0).
On a GPU the trunk and the whole step follow in fp32, bf16 and fp16, with torch.compile on and off.

usage: python benchmarks/sam3_tracker.py [small|full] [--resolution PX] [--device auto] [--objects 1 4 16] [--steps 9]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import Sam3VideoConfig
from transformers.models.sam3_tracker_video.modeling_sam3_tracker_video import Sam3TrackerVideoInferenceSession

sys.path.insert(0, str(Path(__file__).parents[1]))

from sam3_stream.core.clock import SystemClock
from sam3_stream.core.pictures import ArrayPicture
from sam3_stream.core.records import EncodedFrame, Frame
from sam3_stream.models.sam3 import Sam3Model, TrackerOptions
from sam3_stream.models.sam3.concept_options import ConceptOptions
from sam3_stream.models.sam3.image_encoder import Sam3Features
from sam3_stream.models.sam3.session import Sam3Session
from tests.support.sam3_checkpoints import small_config

RESULTS = Path(__file__).parent / "results"
DISPLAYS = {"small": (160, 96), "full": (854, 480)}
FILL = 17  # frames until every ring is full
OPTIONS = TrackerOptions(max_objects=16, hole_area=0, sprinkle_area=0, non_overlapping=False)  # as the reference's


class RandomCheckpoint:
    """Stands for a checkpoint whose weights are drawn when they are asked for."""

    def __init__(self, config: Sam3VideoConfig, *, trunk: bool) -> None:
        self.config = config
        self.folder = Path()
        self._trunk = trunk

    def load_into(self, module: torch.nn.Module, prefix: str) -> None:
        if "backbone" in prefix and not self._trunk:
            return
        generator = torch.Generator().manual_seed(0)
        for name, value in module.state_dict().items():
            if "norm" in name and name.endswith("weight"):
                value.fill_(1.0)
            else:
                value.normal_(0.0, 0.05, generator=generator)


def open_model(config: Sam3VideoConfig, device: str, dtype: str, *, trunk: bool, compiled: bool = False) -> Sam3Model:
    return Sam3Model(
        RandomCheckpoint(config, trunk=trunk),  # type: ignore[arg-type]
        device=device,
        dtype=dtype,  # type: ignore[arg-type]
        resolution=None,
        idle_unload_s=None,
        compile_trunk=compiled,
        options=OPTIONS,
        concepts=ConceptOptions(),
        clock=SystemClock(),
    )


def random_features(model: Sam3Model, number: int) -> Sam3Features:
    config = model.checkpoint.config.tracker_config
    channels, grid = config.vision_config.fpn_hidden_size, model.resolution // 14
    generator = torch.Generator().manual_seed(number)

    def draw(count: int, side: int) -> torch.Tensor:
        return torch.randn((1, count, side, side), generator=generator).to(model.device)

    fine, middle = draw(channels // 8, 4 * grid), draw(channels // 4, 2 * grid)
    return Sam3Features(draw(1, 1), draw(channels, grid), fine, middle, model.resolution)


def picture_frame(number: int, size: tuple[int, int]) -> Frame:
    picture = ArrayPicture(np.zeros((size[1], size[0], 3), np.uint8))
    return Frame("benchmark", number, number, Fraction(1, 30), picture)


class Ours:
    """Our session, its memory filled."""

    name = "sam3_stream"

    def __init__(self, model: Sam3Model, objects: int, size: tuple[int, int]) -> None:
        self._size = size
        self.session: Sam3Session = model.open_session(lambda: 1)
        bank = self.session._bank
        generator = torch.Generator().manual_seed(1)
        slots = [self.session._objects.add(number + 1, "p", "l").slot for number in range(objects)]
        for number in range(FILL):
            memories = torch.randn((objects, *bank.memories_selc.shape[2:]), generator=generator)
            pointers = torch.randn((objects, bank.pointers_spc.shape[2]), generator=generator)
            bank.write(slots, memories.to(model.device), pointers.to(model.device), np.full(objects, number == 0))
            bank.advance()

    def step(self, number: int, features: Sam3Features) -> None:
        side = (features.resolution, features.resolution)
        self.session.step(EncodedFrame(picture_frame(number, self._size), features, side))

    def nbytes(self) -> int:
        return self.session.nbytes


class Theirs:
    """The reference's session, its memory filled."""

    name = "transformers"

    def __init__(self, model: Sam3Model, objects: int, size: tuple[int, int]) -> None:
        self._size = (size[1], size[0])
        with model.engine() as engine:
            self._tracker = engine.network.tracker
            tables = engine.tables(model.resolution)
        self._positions = tables.features_l1c.transpose(0, 1)
        self._pixels = torch.zeros((3, model.resolution, model.resolution))
        self._session = Sam3TrackerVideoInferenceSession(inference_device=model.device, dtype=torch.float32)
        grid, channels = tables.grid, self._tracker.hidden_dim
        generator = torch.Generator().manual_seed(1)
        for number in range(objects):
            index = self._session.obj_id_to_idx(number + 1)
            for frame in range(FILL):
                self._session.store_output(
                    index,
                    frame,
                    output_value={
                        "maskmem_features": torch.randn((grid**2, 1, 64), generator=generator).bfloat16(),
                        "maskmem_pos_enc": tables.memory_lm[:, None],
                        "object_pointer": torch.randn((1, 1, channels), generator=generator).to(model.device),
                        "object_score_logits": torch.ones((1, 1, 1), device=model.device),
                    },
                    is_conditioning_frame=frame == 0,
                )

    def step(self, number: int, features: Sam3Features) -> None:
        levels = (features.fine_1chw, features.middle_1chw, features.embedding_1chw)
        flat = [level.flatten(2).permute(2, 0, 1) for level in levels]
        cached = {"vision_feats": flat, "vision_pos_embeds": [self._positions] * 3}
        self._session.cache.cache_vision_features(FILL + number, cached)
        out = self._tracker(self._session, frame=self._pixels.clone(), frame_idx=FILL + number)
        masks = torch.nn.functional.interpolate(out.pred_masks, self._size, mode="bilinear", align_corners=False)
        (masks > 0).cpu()

    def nbytes(self) -> int:
        kept: dict[int, int] = {}
        for pixels in (self._session.processed_frames or {}).values():
            kept[pixels.untyped_storage().data_ptr()] = pixels.untyped_storage().nbytes()
        for outputs in self._session.output_dict_per_obj.values():
            for frames in outputs.values():
                for values in frames.values():
                    for value in values.values():
                        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return sum(kept.values())


def timed_ms(work: Callable[[], Any], device: torch.device) -> float:
    """Milliseconds by the clock on a GPU, of processor time on a CPU, which others on the machine do not disturb."""
    if device.type != "cuda":
        began_s = time.process_time()
        work()
        return 1000 * (time.process_time() - began_s)
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began_s)


def compare(model: Sam3Model, objects: int, size: tuple[int, int], steps: int, warmup: int) -> dict[str, float]:
    """Median milliseconds of a step and bytes kept a frame, ours and theirs by turns on the same features."""
    runners = (Ours(model, objects, size), Theirs(model, objects, size))
    times: dict[str, list[float]] = {runner.name: [] for runner in runners}
    before: dict[str, int] = {}
    for number in range(warmup + steps):
        features = random_features(model, number)
        for runner in runners if number % 2 else runners[::-1]:
            if number == warmup:
                before[runner.name] = runner.nbytes()
            spent = timed_ms(lambda runner=runner, features=features: runner.step(number, features), model.device)  # noqa: B023
            if number >= warmup:
                times[runner.name].append(spent)
    result: dict[str, float] = {"objects": objects}
    for runner in runners:
        result[f"{runner.name}_ms"] = statistics.median(times[runner.name])
        result[f"{runner.name}_bytes_a_frame"] = (runner.nbytes() - before[runner.name]) / steps
    ratios = [theirs / ours for ours, theirs in zip(times["sam3_stream"], times["transformers"], strict=True)]
    result["speedup"] = statistics.median(ratios)
    return result


def trunk_and_step(config: Sam3VideoConfig, steps: int) -> list[dict[str, Any]]:
    """On a GPU: milliseconds of the trunk and of encoding and tracking 4 objects, by precision and compilation."""
    rows = []
    for dtype in ("fp32", "bf16", "fp16"):
        for compiled in (False, True):
            model = open_model(config, "cuda", dtype, trunk=True, compiled=compiled)
            runner = Ours(model, 4, DISPLAYS["full"])
            trunk_ms, step_ms = [], []
            for number in range(steps + 3):
                frame = picture_frame(number, DISPLAYS["full"])
                encoded: list[EncodedFrame] = []
                trunk_ms.append(timed_ms(lambda: encoded.extend(model.encode([frame])), model.device))  # noqa: B023
                step_ms.append(timed_ms(lambda: runner.session.step(encoded[0]), model.device))  # noqa: B023
            trunk, step = statistics.median(trunk_ms[3:]), statistics.median(step_ms[3:])
            rows.append({"dtype": dtype, "compiled": compiled, "trunk_ms": trunk, "whole_step_ms": trunk + step})
            print(
                f"{dtype}{' compiled' if compiled else '':<10} trunk {trunk:8.1f} ms, whole step {trunk + step:8.1f} ms"
            )
            model.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", choices=["small", "full"], default="small")
    parser.add_argument("--resolution", type=int, default=42, help="of the small model, in pixels")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--objects", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = small_config(resolution=arguments.resolution) if arguments.size == "small" else Sam3VideoConfig()
    model = open_model(config, arguments.device, "fp32", trunk=False)
    rows = []
    print(
        f"{'objects':>7} {'ours ms':>10} {'theirs ms':>10} {'speedup':>8} {'ours B/frame':>13} {'theirs B/frame':>15}"
    )
    with torch.inference_mode():
        for objects in arguments.objects:
            row = compare(model, objects, DISPLAYS[arguments.size], arguments.steps, arguments.warmup)
            rows.append(row)
            print(
                f"{objects:7d} {row['sam3_stream_ms']:10.1f} {row['transformers_ms']:10.1f} {row['speedup']:7.2f}x "
                f"{row['sam3_stream_bytes_a_frame']:13.0f} {row['transformers_bytes_a_frame']:15.0f}",
                flush=True,
            )
        device = model.device
        model.close()
        gpu_rows = trunk_and_step(config, arguments.steps) if device.type == "cuda" else []
    report = {
        "size": arguments.size,
        "resolution": model.resolution,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "cores": os.cpu_count(),
        "threads": arguments.threads,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "steps": rows,
        "trunk": gpu_rows,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"sam3_tracker_{arguments.size}_{device.type}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
