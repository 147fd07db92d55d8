import numpy as np

from sam3_stream.models.lite.refine import GuidedFilter


def stripes(height: int, width: int, edge: int) -> np.ndarray:
    """Red left of the edge, blue right of it."""
    rgb = np.zeros((height, width, 3), np.float32)
    rgb[:, :edge, 0] = 0.8
    rgb[:, edge:, 2] = 0.7
    return rgb


def test_a_coarse_mask_snaps_to_the_edge_beside_it():
    guide = stripes(32, 48, edge=20)
    coarse = np.zeros((32, 48), np.float32)
    coarse[:, :21] = 1  # one cell too far
    refined = GuidedFilter(guide).fit(coarse).apply(guide)
    assert (refined[:, :20] > 0.5).all()
    assert (refined[:, 20] < 0.5).all()


def test_upsampling_follows_edges_that_the_grid_cannot_show():
    """A grid cell is 4 pixels wide here; the edge lies in the middle of one."""
    fine = (stripes(64, 96, edge=42) * 255).astype(np.uint8)
    guide = fine.reshape(16, 4, 24, 4, 3).mean(axis=(1, 3), dtype=np.float32) / 255
    coarse = np.zeros((16, 24), np.float32)
    coarse[4:12, 4:10] = 1
    coarse[4:12, 10] = 0.5
    mask = GuidedFilter(guide).fit(coarse).upsample(coarse, fine) > 0.5
    assert mask[32, 38:42].all()
    assert not mask[32, 42:46].any()
    assert mask.shape == (64, 96)


def test_an_empty_mask_stays_empty():
    guide = stripes(16, 24, edge=10)
    empty = np.zeros((16, 24), np.float32)
    fine = np.zeros((64, 96, 3), np.uint8)
    assert not GuidedFilter(guide).fit(empty).upsample(empty, fine).any()
