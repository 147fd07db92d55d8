"""Each frame may come at a resolution of its own; tracks live on."""

from __future__ import annotations

import pytest

from sam3_stream.models.protocols import LooksForObjects
from tests.models.sam3.conftest import SaveCheckpoint, clicks, frame_of

pytest.importorskip("torch")

from sam3_stream.models.sam3 import load_sam3
from tests.support.sam3_checkpoints import moving_picture


def test_tracks_live_through_every_change_between_what_is_offered(checkpoint: SaveCheckpoint):
    model = load_sam3(checkpoint(), device="cpu", max_objects=2)
    sizes = list(model.resolutions(160, 96))
    assert sizes == [(112, 112), (84, 84), (70, 70), (56, 56)]
    session = model.open_session(lambda: 1)
    for number, size in enumerate([*sizes, *sizes[::-1], sizes[0], sizes[3], sizes[0]]):
        encoded = model.encode([frame_of(moving_picture(number), number)], size)[0]
        prompts = [clicks(1, (20, 20)), clicks(2, (60, 45))] if number == 0 else []
        tracked = session.step(encoded, prompts)
        assert tracked.resolution == size
        assert [each.object_id for each in tracked.objects] == [1, 2]
        assert all(each.mask.shape == (96, 160) for each in tracked.objects)


def test_without_a_resolution_it_is_the_models_own(checkpoint: SaveCheckpoint):
    model = load_sam3(checkpoint(), device="cpu", resolution=[84, 112])
    frame = frame_of(moving_picture(0), 0)
    assert model.encode([frame])[0].resolution == (84, 84)
    assert model.encode([frame], (112, 112))[0].resolution == (112, 112)
    assert list(model.resolutions(1920, 1080)) == [(112, 112), (84, 84)]


def test_how_often_a_session_looks_can_be_changed(checkpoint: SaveCheckpoint):
    session = load_sam3(checkpoint(), device="cpu").open_session(lambda: 1)
    assert isinstance(session, LooksForObjects)
    session.look_every = 4
    assert (session.look_every, session.detect_interval.frames) == (4, 4)
