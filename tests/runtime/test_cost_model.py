from __future__ import annotations

import random

import pytest

from sam3_stream.runtime.cost_model import CostModel, Work

PIXELS = (448 * 256, 384 * 224, 320 * 192, 256 * 160)


def true_s(work: Work, load: float = 1.0) -> float:
    share = PIXELS[work.resolution] / PIXELS[0]
    return load * (0.010 + 0.030 * share + 0.003 * work.objects + (0.02 if work.detected else 0.0))


def feed(
    model: CostModel, work: Work, frames: int, start_s: float = 0.0, load: float = 1.0, noise: float = 0.0
) -> None:
    numbers = random.Random(1)
    for frame in range(frames):
        factor = 1.0 + noise * numbers.uniform(-1, 1)
        model.observe(start_s + frame / 30, work, factor * true_s(work, load))


def test_a_resolution_never_seen_is_guessed_by_its_pixels() -> None:
    model = CostModel(PIXELS)
    feed(model, Work(0, 2), 30)

    guess = model.cost(Work(3, 2))
    assert guess.mean_s == pytest.approx(true_s(Work(3, 2)), rel=0.25)
    assert guess.spread > model.cost(Work(0, 2)).spread


def test_a_resolution_once_seen_is_known_at_another_load() -> None:
    model = CostModel(PIXELS)
    feed(model, Work(0, 2), 30)
    feed(model, Work(3, 2), 30, start_s=1.0)
    feed(model, Work(0, 2), 30, start_s=2.0, load=3.0)

    assert model.cost(Work(3, 2)).mean_s == pytest.approx(true_s(Work(3, 2), load=3.0), rel=0.05)


def test_learns_what_an_object_costs() -> None:
    model = CostModel(PIXELS)
    feed(model, Work(0, 2), 30)
    feed(model, Work(0, 8), 30, start_s=1.0)

    assert model.cost(Work(0, 20)).mean_s == pytest.approx(true_s(Work(0, 20)), rel=0.15)
    assert model.cost(Work(0, 2)).mean_s == pytest.approx(true_s(Work(0, 2)), rel=0.05)


def test_learns_what_detection_costs() -> None:
    model = CostModel(PIXELS)
    for frame in range(40):
        feed(model, Work(0, 2, detected=frame % 4 == 0), 1, start_s=frame / 30)

    assert model.cost(Work(0, 2, detected=True)).mean_s == pytest.approx(true_s(Work(0, 2, detected=True)), rel=0.05)
    assert model.cost(Work(0, 2)).mean_s == pytest.approx(true_s(Work(0, 2)), rel=0.05)


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_tells_a_step_of_the_load_after_few_frames(factor: float) -> None:
    model = CostModel(PIXELS)
    feed(model, Work(0, 2), 60, noise=0.3)

    steps = [model.observe(2.0 + frame / 30, Work(0, 2), true_s(Work(0, 2), factor)) for frame in range(6)]
    told = [step for step in steps if step != 1.0]
    assert told[0] == pytest.approx(factor, rel=0.2)
    assert model.cost(Work(0, 2)).mean_s == pytest.approx(true_s(Work(0, 2), factor), rel=0.1)


def test_noise_alone_is_no_step() -> None:
    model = CostModel(PIXELS)
    numbers = random.Random(3)
    work = Work(0, 2)
    steps = [
        model.observe(frame / 30, work, true_s(work) * (1 + 0.3 * numbers.uniform(-1, 1))) for frame in range(3000)
    ]
    assert set(steps) == {1.0}
    assert model.noise == pytest.approx(0.18, abs=0.06)  # the standard deviation of +-30%


def test_one_odd_step_changes_little() -> None:
    model = CostModel(PIXELS)
    feed(model, Work(0, 2), 60, noise=0.1)
    model.observe(2.0, Work(0, 2), 10 * true_s(Work(0, 2)))
    assert model.cost(Work(0, 2)).mean_s == pytest.approx(true_s(Work(0, 2)), rel=0.05)


def test_stays_able_to_learn_after_hours() -> None:
    model = CostModel(PIXELS)
    feed(model, Work(0, 2), 20_000)
    feed(model, Work(1, 2), 200, start_s=700.0)
    assert model.cost(Work(1, 2)).mean_s == pytest.approx(true_s(Work(1, 2)), rel=0.05)
