"""A session that restores a snapshot goes on exactly as the one that took it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sam3_stream.core.errors import ModelError
from sam3_stream.models.sam3 import load_sam3
from tests.models.sam3.conftest import SaveCheckpoint, box, clicks, disc, frame_of, mask
from tests.support.sam3_checkpoints import moving_picture


def test_a_restored_session_gives_the_same_masks_bit_for_bit(checkpoint: SaveCheckpoint, tmp_path: Path):
    model = load_sam3(checkpoint(), device="cpu", max_objects=5)
    encoded = [model.encode([frame_of(moving_picture(number), number)])[0] for number in range(16)]
    session = model.open_session(lambda: 1)
    session.step(encoded[0], [clicks(1, (20, 20)), box(4, 40, 30, 80, 60)])
    for number in range(1, 8):
        session.step(encoded[number], [mask(6, disc((100, 60), 12))] if number == 3 else [])
    session.remove(4)

    np.savez(tmp_path / "snapshot.npz", **session.snapshot())
    other = load_sam3(checkpoint(), device="cpu", max_objects=5).open_session(lambda: 1)
    with np.load(tmp_path / "snapshot.npz", allow_pickle=False) as arrays:
        other.restore(dict(arrays))

    for number in range(7, 16):  # the first is the frame of the snapshot: a further click on it
        prompts = {7: [clicks(1, (30, 25))], 9: [clicks(6, (110, 60)), clicks(2, (60, 45))]}.get(number, [])
        wanted, found = session.step(encoded[number], prompts), other.step(encoded[number], prompts)
        for one, same in zip(wanted.objects, found.objects, strict=True):
            assert (one.object_id, one.prompt_id, one.label) == (same.object_id, same.prompt_id, same.label)
            assert one.score == same.score
            np.testing.assert_array_equal(one.mask, same.mask)


def test_a_snapshot_at_another_resolution_is_restored_there(checkpoint: SaveCheckpoint):
    model = load_sam3(checkpoint(), device="cpu", max_objects=2, resolution=168)
    session = model.open_session(lambda: 1)
    session.step(model.encode([frame_of(moving_picture(0), 0)])[0], [clicks(1, (20, 20))])
    state = session.snapshot()
    model.resolution = 112
    other = model.open_session(lambda: 1)
    other.restore(state)
    model.resolution = 168
    encoded = model.encode([frame_of(moving_picture(1), 1)])[0]
    np.testing.assert_array_equal(session.step(encoded).objects[0].mask, other.step(encoded).objects[0].mask)


def test_a_snapshot_that_does_not_fit_is_refused(checkpoint: SaveCheckpoint):
    model = load_sam3(checkpoint(), device="cpu", max_objects=3)
    session = model.open_session(lambda: 1)
    session.step(
        model.encode([frame_of(moving_picture(0), 0)])[0], [clicks(number, (20, 20.0 * number)) for number in (1, 2, 3)]
    )
    small = load_sam3(checkpoint(), device="cpu", max_objects=2).open_session(lambda: 1)
    with pytest.raises(ModelError, match="needs room for 3 objects, the session has 2"):
        small.restore(session.snapshot())
    with pytest.raises(ModelError, match="not of a SAM 3 session"):
        small.restore({})
