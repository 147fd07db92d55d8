"""Configs: what is wrong with one is said in one line that names the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam3_stream.config.loading import load_config
from sam3_stream.config.models import ClickConfig
from sam3_stream.core.errors import ConfigError

GOOD = """
source: {path: clip.mp4}
prompts:
  - {type: click, x: 10, y: 20}
sinks:
  - {type: masks, path: out.jsonl}
"""


def load(tmp_path: Path, text: str, *overrides: str):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return load_config(path, overrides)


def problem(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, *overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_good_config(tmp_path):
    config = load(tmp_path, GOOD)
    assert config.model.name == "lite"
    assert config.prompts == (ClickConfig(x=10, y=20),)


def test_overrides_reach_into_mappings_and_lists(tmp_path):
    config = load(tmp_path, GOOD, "source.max_frames=7", "prompts.0.x=11.5", "model.name=sam3", "backward=true")
    assert (config.source.max_frames, config.prompts[0].x, config.model.name) == (7, 11.5, "sam3")
    assert config.backward is True


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("source.max_frames", "expected path.to.field=value"),
        ("prompts.5.x=1", "expected a number from 0 to 0 in place of '5'"),
        ("source.path.name=1", "path is a value"),
        ("a=[", "not valid YAML"),
    ],
)
def test_a_bad_override_says_what_was_expected(tmp_path, override, expected):
    assert expected in problem(tmp_path, GOOD, override)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("sorce.path=x", "unknown key 'sorce'; did you mean 'source'?"),
        ("source.max_frame=3", "unknown key 'source.max_frame'; did you mean 'max_frames'?"),
        ("prompts.0.positiv=false", "did you mean 'positive'?"),
        ("sinks.0.pth=x", "did you mean 'path'?"),
        ("model.zzz=1", "known here: name, device"),
        ("source.max_frames=0", "source.max_frames: input should be greater than or equal to 1, got 0"),
        ("source.end_s=0.5", None),
        ("prompts=[]", "there is no prompt"),
        ("prompts.0.type=clack", "clack"),
        ("sinks.0.type=video", "video"),
    ],
)
def test_a_problem_names_the_key_and_what_came(tmp_path, override, expected):
    if expected is None:
        assert "end_s (0.5) must be later than start_s (2)" in problem(tmp_path, GOOD, "source.start_s=2", override)
    else:
        assert expected in problem(tmp_path, GOOD, override)


def test_resume_needs_a_masks_file(tmp_path):
    text = GOOD.replace("{type: masks, path: out.jsonl}", "{type: overlay, path: out.mp4}")
    assert "resume needs a masks output" in problem(tmp_path, text, "resume=true")


@pytest.mark.parametrize("text", ["", "- 1", "source: [", "\x00"])
def test_a_file_that_is_no_config(tmp_path, text):
    assert "job.yaml" in problem(tmp_path, text)


def test_a_missing_source(tmp_path):
    assert "source is missing" in problem(tmp_path, "prompts: [{type: text, text: dog}]")


def test_a_missing_config(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "none.yaml")
