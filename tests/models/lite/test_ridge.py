import numpy as np

from sam3_stream.models.lite.features import ROW_LENGTH
from sam3_stream.models.lite.ridge import RidgeMemory

GRID = (24, 32)


def scene(object_value: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose first number tells the object from the rest, and the object's probability."""
    random = np.random.default_rng(0)
    probability = np.zeros(GRID, np.float32)
    probability[8:16, 10:22] = 1
    rows = random.normal(0, 0.1, (probability.size, ROW_LENGTH)).astype(np.float32)
    rows[:, 0] += np.where(probability.ravel() > 0.5, object_value, 0)
    rows[:, -1] = 1
    return rows, probability


def accuracy(memory: RidgeMemory, rows: np.ndarray, probability: np.ndarray) -> float:
    return float(np.mean((rows @ memory.solve() > 0) == (probability.ravel() > 0.5)))


def test_tells_an_object_from_the_background():
    rows, probability = scene(1)
    assert accuracy(RidgeMemory.of(rows, probability), rows, probability) > 0.98


def test_follows_a_change_of_appearance_and_does_not_forget_the_prompt():
    rows, probability = scene(1)
    memory = RidgeMemory.of(rows, probability)
    changed = rows.copy()
    changed[:, 1] += np.where(probability.ravel() > 0.5, 1, 0)
    changed[:, 0] -= np.where(probability.ravel() > 0.5, 1, 0)
    before = accuracy(memory, changed, probability)
    for _ in range(100):
        memory.learn(changed, probability, rate=0.08)
    assert accuracy(memory, changed, probability) > max(before, 0.98)
    assert accuracy(memory, rows, probability) > 0.98


def test_a_mask_that_is_empty_or_full_does_no_harm():
    rows, probability = scene(1)
    for constant in (np.zeros_like(probability), np.ones_like(probability)):
        memory = RidgeMemory.of(rows, probability)
        memory.learn(rows, constant, rate=0.5)
        assert np.isfinite(memory.solve()).all()
