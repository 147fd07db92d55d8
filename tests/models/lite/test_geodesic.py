import numpy as np
import pytest

from sam3_stream.models.lite.prompts.geodesic import edge_cost, geodesic_distance


def test_on_even_ground_it_is_the_length_of_the_shortest_walk():
    seeds = np.zeros((9, 9), np.bool_)
    seeds[4, 4] = True
    distance = geodesic_distance(np.ones((9, 9), np.float32), seeds)
    assert distance[4, 4] == 0
    assert distance[4, 8] == pytest.approx(4)
    assert distance[0, 0] == pytest.approx(4 * np.sqrt(2), rel=1e-4)


def test_walls_are_gone_around():
    cost = np.full((11, 11), 0.1, np.float32)
    cost[1:, 5] = 100  # a wall with a gap at the top
    seeds = np.zeros((11, 11), np.bool_)
    seeds[10, 0] = True
    distance = geodesic_distance(cost, seeds)
    assert distance[10, 4] == pytest.approx(0.4)
    assert 1.5 < distance[10, 10] < 10


def test_edges_cost():
    picture = np.zeros((8, 8, 3), np.float32)
    picture[:, 4:] = 1
    cost = edge_cost(picture)
    assert cost[:, 3:5].min() > 0.5
    assert cost[:, [0, 1, 6, 7]].max() == 0
