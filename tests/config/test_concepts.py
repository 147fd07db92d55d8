"""What a config says of phrases: how often to look, thresholds, limits."""

from __future__ import annotations

from typing import Any

import pytest

from sam3_stream.build import prompt_of
from sam3_stream.config.loading import parse_config
from sam3_stream.config.models import JobConfig
from sam3_stream.core.errors import ConfigError


def job(model: dict[str, Any], prompt: dict[str, Any]) -> JobConfig:
    tree = {
        "source": {"path": "clip.mp4"},
        "model": {"name": "sam3", **model},
        "prompts": [prompt],
        "sinks": [{"type": "masks", "path": "out.jsonl"}],
    }
    return parse_config(tree, where="test")


@pytest.mark.parametrize("interval", [4, "250ms"])
def test_the_model_is_given_interval_and_thresholds_and_the_rest_keeps_its_defaults(interval):
    read = job({"detect_interval": interval, "association": {"new_score": 0.8}}, {"type": "text", "text": "dog"})
    assert read.model.options["detect_interval"] == interval
    association = read.model.options["association"]
    default = job({"association": {}}, {"type": "text", "text": "dog"}).model.options["association"]
    assert association.new_score == 0.8 != default.new_score
    assert association.score_threshold == default.score_threshold


@pytest.mark.parametrize("interval", [0, "-3", "soon", "0ms"])
def test_an_interval_that_is_none_is_refused_by_its_name(interval):
    with pytest.raises(ConfigError, match="detect_interval"):
        job({"detect_interval": interval}, {"type": "text", "text": "dog"})


@pytest.mark.parametrize(
    "prompt", [{"type": "text", "text": "dog"}, {"type": "exemplars", "boxes": [[1, 2, 30, 40]]}], ids=["text", "boxes"]
)
def test_threshold_and_limit_of_one_phrase_reach_its_prompt(prompt):
    read = prompt_of(job({}, prompt | {"score_threshold": 0.25, "max_objects": 3}).prompts[0])
    assert (read.score_threshold, read.max_objects) == (0.25, 3)


@pytest.mark.parametrize(("name", "value"), [("score_threshold", 1.5), ("score_threshold", -0.1), ("max_objects", 0)])
def test_a_limit_out_of_range_is_refused_by_its_name(name, value):
    with pytest.raises(ConfigError, match=name):
        job({}, {"type": "text", "text": "dog", name: value})
