"""SAM 3 from a config and a video file to masks: phrases, exemplars and clicks in one run, changed while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

from pycocotools import mask as coco_mask

from sam3_stream import ImageEncoder, MemoryTracker, Pipeline, VideoDecoder, load_model, run_header
from sam3_stream.build import prompt_of
from sam3_stream.config.loading import parse_config
from sam3_stream.config.models import JobConfig
from sam3_stream.core.prompts import PointPrompt, TextPrompt
from sam3_stream.core.records import TrackedFrame
from tests.support.clips import write_clip
from tests.support.sam3_checkpoints import moving_picture
from tests.support.sam3_concepts import save_concept_model

FRAMES, CHANGE = 24, 10
STEADY = {"score_threshold": 0.7, "new_score": 0.8, "hot_start_ticks": 0, "recondition_ticks": 0}
PROMPTS: list[dict[str, Any]] = [
    {"type": "text", "text": "dog"},
    {"type": "text", "text": "red cat"},
    {"type": "exemplars", "boxes": [[10, 10, 60, 50], [100, 40, 150, 90]], "positive": [True, False], "name": "such"},
    {"type": "click", "x": 20, "y": 20, "name": "first"},
    {"type": "click", "x": 100, "y": 70, "name": "second"},
]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobConfig:
    folder = tmp_path_factory.mktemp("job")
    clip = write_clip(
        folder / "clip.mkv", frames=FRAMES, size=(160, 96), fps=25, draw=lambda number, size: moving_picture(number)
    )
    weights = save_concept_model(folder / "weights")
    model = {"name": str(weights), "device": "cpu", "dtype": "fp32", "association": STEADY, "max_objects": 32}
    tree = {
        "source": {"path": clip},
        "model": model,
        "prompts": PROMPTS,
        "sinks": [{"type": "masks", "path": folder / "masks.jsonl"}],
    }
    return parse_config(tree, where="test")


def play(job: JobConfig, changes: Any = None) -> list[TrackedFrame]:
    """Run the job's stages; `changes` is called with the tracker once frame `CHANGE` has come out."""
    model = load_model(job.model.name, device="cpu", **job.model.options)
    prompts = [prompt_of(each) for each in job.prompts]
    tracker, seen = MemoryTracker(model, prompts), []
    header = run_header(job.source.path, model.name, prompts)
    with Pipeline(VideoDecoder(job.source.path), [ImageEncoder(model), tracker], header=header) as pipeline:
        for tracked in pipeline:
            seen.append(tracked)
            if changes is not None and tracked.frame.sequence == CHANGE:
                changes(tracker)
    return seen


def ids(tracked: TrackedFrame, prompt_id: str) -> list[int]:
    return [each.object_id for each in tracked.objects if each.prompt_id == prompt_id]


def test_a_phrase_is_replaced_and_a_click_removed_and_all_others_keep_their_ids(job):
    asked = []

    def change(tracker: MemoryTracker) -> None:
        asked.append(tracker.add(TextPrompt(text="狗", score_threshold=0.2), replaces="p2"))
        asked.append(tracker.remove_prompt("p5"))

    undisturbed, changed = play(job), play(job, change)
    assert [each.frame.sequence for each in changed] == list(range(FRAMES))
    assert all(ids(changed[CHANGE], prompt) for prompt in ("p1", "p2", "p3", "p4", "p5")), "else this shows nothing"
    effect = asked[0].result(0)
    assert CHANGE < effect.sequence < FRAMES - 3
    assert (effect.prompt_id, effect.object_id) == ("p2", None)
    for mine, theirs in zip(changed, undisturbed, strict=True):
        for prompt in ("p1", "p3", "p4"):
            assert ids(mine, prompt) == ids(theirs, prompt), "the others keep their ids"
    before = set().union(*(ids(each, "p2") for each in changed[: effect.sequence]))
    after = set().union(*(ids(each, "p2") for each in changed[effect.sequence :]))
    assert after, "the new phrase finds its own"
    assert not before & after
    assert {each.label for each in changed[-1].objects if each.prompt_id == "p2"} == {"狗"}
    assert ids(changed[effect.sequence - 1], "p5") == [2]
    assert ids(changed[-1], "p5") == []


def test_a_click_refines_what_a_phrase_has_found(job):
    asked, chosen = [], []

    def change(tracker: MemoryTracker) -> None:
        found = next(each for each in seen[CHANGE].objects if each.prompt_id == "p1" and each.mask.any())
        rows, columns = np.nonzero(found.mask)
        chosen.append(found.object_id)
        click = PointPrompt(x=float(columns[0]), y=float(rows[0]), positive=False)
        asked.append(tracker.add(click, object_id=found.object_id))

    seen = play(job)
    changed = play(job, change)
    object_id, effect = chosen[0], asked[0].result(0)
    assert (effect.object_id, effect.prompt_id) == (object_id, "p1")
    refined = next(each for each in changed[effect.sequence].objects if each.object_id == object_id)
    as_it_was = next(each for each in seen[effect.sequence].objects if each.object_id == object_id)
    assert (refined.mask != as_it_was.mask).any()
    known = set(ids(seen[CHANGE], "p1"))
    for mine in changed[effect.sequence :]:
        assert object_id in ids(mine, "p1"), "it stays the phrase's, under its id"
    assert known <= set(ids(changed[effect.sequence], "p1")), "and so do all others"


def test_the_command_takes_thresholds_limits_and_intervals_from_the_config(job, sam3_stream_command, tmp_path):
    def run(name: str, *settings: str) -> list[dict[str, Any]]:
        tree = json.loads(job.model_dump_json(exclude_unset=True))
        tree["prompts"] = [{"type": "text", "text": "dog"}]
        tree["sinks"] = [{"type": "masks", "path": str(tmp_path / f"{name}.jsonl")}]
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(tree))
        done = sam3_stream_command("run", path, *(word for each in settings for word in ("--set", each)))
        assert done.code == 0, done.err
        return [json.loads(line) for line in Path(tree["sinks"][0]["path"]).read_text().splitlines()[1:]]

    def most(rows: list[dict[str, Any]]) -> int:
        return max(len(row["objects"]) for row in rows)

    free = run("free")
    assert most(free) > 1, "else this shows nothing"
    assert most(run("one", "prompts.0.max_objects=1")) == 1
    assert most(run("none", "prompts.0.score_threshold=1.0")) == 0
    assert most(run("strict", "model.association.new_score=1.0")) == 0
    seldom = run("seldom", "model.detect_interval=200ms")
    first = {each["id"] for each in seldom[0]["objects"]}
    assert all({each["id"] for each in row["objects"]} <= first for row in seldom[:5]), "it looks again after 200 ms"
    assert coco_mask.decode(free[-1]["objects"][0]["rle"]).shape == (96, 160)
