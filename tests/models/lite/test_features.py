import numpy as np

from sam3_stream.models.lite.features import ROW_LENGTH, FourierColour, FrameView, LiteFeatures, Standardisation


def some_features(seed: int = 0) -> LiteFeatures:
    random = np.random.default_rng(seed)
    levels = tuple(
        random.normal(3, 2, (32 // n, 48 // n, c)).astype(np.float32) for n, c in ((1, 24), (2, 40), (4, 112))
    )
    rgb = random.uniform(size=(32, 48, 3)).astype(np.float32)
    return LiteFeatures(levels, rgb, (rgb * 255).astype(np.uint8))


def test_scores_are_what_the_rows_give():
    features = some_features()
    view = FrameView(features, Standardisation.of(features), FourierColour(0))
    classifiers = np.random.default_rng(1).normal(size=(5, ROW_LENGTH)).astype(np.float32)
    for count in (1, 5):
        scores = view.scores(classifiers[:count])
        assert scores.shape == (count, 32, 48)
        expected = (classifiers[:count] @ view.rows.T).reshape(count, 32, 48)
        np.testing.assert_allclose(scores, expected, atol=1e-3)


def test_the_first_picture_is_standardised_by_itself():
    features = some_features()
    for level in Standardisation.of(features).apply(features):
        np.testing.assert_allclose(np.linalg.norm(level, axis=2), 1, atol=1e-4)
        assert abs(level.mean()) < 0.02


def test_colour_depends_on_the_seed_and_on_nothing_else():
    rgb = some_features().grid_rgb
    np.testing.assert_array_equal(FourierColour(3)(rgb), FourierColour(3)(rgb))
    assert np.abs(FourierColour(3)(rgb) - FourierColour(4)(rgb)).max() > 0.1
