"""When weights are read and let go, warm-up, resolutions and options."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from sam3_stream.core.clock import SimulatedClock
from sam3_stream.core.errors import ConfigError
from sam3_stream.models.sam3 import Sam3Model, TrackerOptions, load_sam3
from sam3_stream.models.sam3.image_encoder import ImageEncoder
from tests.models.sam3.conftest import SaveCheckpoint, clicks, frame_of
from tests.support.sam3_checkpoints import moving_picture


def step(model: Sam3Model, session: object, number: int, *prompts: object) -> np.ndarray:
    encoded = model.encode([frame_of(moving_picture(number), number)])[0]
    return session.step(encoded, prompts).masks_nhw  # type: ignore[attr-defined]


def test_weights_are_read_at_the_first_frame(checkpoint: SaveCheckpoint):
    model = load_sam3(checkpoint(), device="cpu", max_objects=1)
    assert not model.loaded
    model.encode([frame_of(moving_picture(0), 0)])
    assert model.loaded
    model.close()
    model.close()
    assert not model.loaded


def test_warm_up_runs_a_step_at_every_resolution(checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []
    encode = ImageEncoder.encode
    monkeypatch.setattr(
        ImageEncoder,
        "encode",
        lambda self, pixels, tables: seen.append(pixels.shape[-1]) or encode(self, pixels, tables),
    )
    model = load_sam3(checkpoint(), device="cpu", max_objects=1, resolution=[112, 56], warmup=True)
    assert model.loaded
    assert sorted(set(seen)) == [56, 112]
    assert model.resolution == 112


def test_idle_weights_go_and_come_back_and_tracks_go_on(checkpoint: SaveCheckpoint):
    clock = SimulatedClock()
    model = load_sam3(checkpoint(), device="cpu", max_objects=2, idle_unload_s=60.0, clock=clock)
    steady = load_sam3(checkpoint(), device="cpu", max_objects=2)
    session, other = model.open_session(lambda: 1), steady.open_session(lambda: 1)
    step(model, session, 0, clicks(1, (20, 20)))
    step(steady, other, 0, clicks(1, (20, 20)))
    with model.engine() as engine:
        weights = weakref.ref(engine.network.tracker.no_memory_embedding)
    del engine
    clock.sleep(59)
    assert not model.unload_if_idle()
    clock.sleep(2)
    assert model.unload_if_idle()
    assert not model.loaded
    gc.collect()
    assert weights() is None
    np.testing.assert_array_equal(step(model, session, 1), step(steady, other, 1))
    assert model.loaded


def test_weights_in_use_are_not_unloaded(checkpoint: SaveCheckpoint):
    clock = SimulatedClock()
    model = load_sam3(checkpoint(), device="cpu", max_objects=1, idle_unload_s=1.0, clock=clock)
    with model.engine():
        clock.sleep(100)
        assert not model.unload_if_idle()


@pytest.mark.parametrize("resolution", [100, 0, 14, -28])
def test_a_resolution_that_does_not_fit_names_the_nearest_that_do(checkpoint: SaveCheckpoint, resolution: int):
    with pytest.raises(ConfigError, match=r"multiple of the patch size, 14 px, got .*; \d+ or \d+ would do"):
        load_sam3(checkpoint(), resolution=resolution)


@pytest.mark.parametrize(
    "option", [{"max_objects": 0}, {"hole_area": -1}, {"smoothing_sigma": -0.5}, {"multimask_max_points": -1}]
)
def test_an_option_out_of_range_is_refused(option: dict[str, float]):
    with pytest.raises(ConfigError, match=f"{next(iter(option))} must be"):
        TrackerOptions(**option)  # type: ignore[arg-type]
