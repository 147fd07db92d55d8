"""A frame rate is asked for in jobs and in live streams, with the same words."""

from __future__ import annotations

from typing import Any

import pytest

from sam3_stream.config.live import LiveJobConfig
from sam3_stream.config.loading import parse_config
from sam3_stream.core.errors import ConfigError

CLICK = {"type": "click", "x": 1, "y": 2}
MASKS = {"type": "masks", "path": "out.jsonl"}


def live(**rate: Any) -> LiveJobConfig:
    stream = {
        "name": "door",
        "source": {"url": "rtsp://127.0.0.1/door"},
        "prompts": [CLICK],
        "sinks": [{"type": "segments", "folder": "door"}],
        **rate,
    }
    return parse_config({"streams": [stream]}, "live.yaml", LiveJobConfig)


def test_a_stream_and_a_job_take_the_same_limits():
    rate = {"target_fps": 15, "min_resolution": 192, "max_skip": 2, "give_up": ["skip", "resolution"], "carry": "held"}
    job = parse_config({"source": {"path": "a.mp4"}, "prompts": [CLICK], "sinks": [MASKS], **rate}, "job.yaml")
    for config in (live(**rate).streams[0], job):
        assert (config.target_fps, config.min_resolution, config.max_skip) == (15, 192, 2)
        assert (config.give_up, config.carry) == (("skip", "resolution"), "held")
    assert live().streams[0].target_fps is None


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ({"target_fps": -1}, "target_fps: input should be greater than 0, got -1"),
        ({"carry": "held"}, "carry limits what is done for a target_fps"),
        ({"target_fps": 15, "give_up": ["skip", "skip"]}, "give_up takes each lever once, got skip, skip"),
        ({"target_fps": 15, "give_up": ["quality"]}, "give_up.0"),
        ({"target_fsp": 15}, "unknown key 'streams.0.target_fsp'; did you mean 'target_fps'?"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_line(rate: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as caught:
        live(**rate)
    assert message in str(caught.value)
