"""With which probability rows are drawn, against enumeration."""

import itertools

import numpy as np
import pytest

from fedroster.optimization.inclusion import (
    best_of_inclusion,
    draw_uniformly,
    filled_up,
    greatest_inclusion,
    race_inclusion,
)


def successive(weight, size):
    """Inclusion by enumerating every order of successive sampling."""
    probability = np.zeros(len(weight))
    for order in itertools.permutations(range(len(weight)), size):
        chance, left = 1.0, float(np.sum(weight))
        for row in order:
            chance *= weight[row] / left
            left -= weight[row]
        probability[list(order)] += chance
    return probability


@pytest.mark.parametrize("weight", [[1, 2, 3, 4], [1e-6, 1.0, 1.0, 50.0, 2.0], [1e9, 1e-9, 3.0, 2.0]])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_race_is_successive_sampling(weight, size):
    assert race_inclusion(np.log(weight), size) == pytest.approx(successive(weight, size), rel=1e-9, abs=1e-12)


def test_a_race_of_weights_of_any_size_fills_its_places():
    log_weight = np.random.default_rng(0).normal(0.0, 200.0, 60)
    probability = race_inclusion(log_weight, 9)
    assert probability.sum() == pytest.approx(9.0, abs=1e-9)
    assert (np.diff(probability[np.argsort(log_weight)]) >= -1e-12).all()
    assert race_inclusion(np.random.default_rng(0).normal(size=100_000), 1000) is None


def test_rows_without_weight_come_last_in_random_order():
    assert race_inclusion(np.array([0.0, -np.inf, 1.0, -np.inf]), 3).tolist() == [1.0, 0.5, 1.0, 0.5]
    assert race_inclusion(np.array([0.0, -np.inf, 0.0]), 1).tolist() == [0.5, 0.0, 0.5]
    assert race_inclusion(np.zeros(3), 5).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("candidates", "size"), [(3, 2), (4, 1), (5, 3), (6, 2), (2, 2)])
def test_the_best_of_random_candidates(candidates, size):
    score = np.array([3.0, np.inf, 1.0, 3.0, 3.0, -np.inf])
    expected, sets = np.zeros(6), list(itertools.combinations(range(6), candidates))
    for chosen in sets:
        expected[list(chosen)] += greatest_inclusion(score[list(chosen)], size) / len(sets)
    assert best_of_inclusion(score, candidates, size) == pytest.approx(expected)


def test_places_that_are_filled_up_uniformly():
    assert filled_up(np.array([1.0, 0.5, 0.5, 0.0]), 1, 2).tolist() == [1.0, 0.75, 0.75, 0.5]
    assert draw_uniformly(np.array([True, False, True, True]), 2).tolist() == [2 / 3, 0.0, 2 / 3, 2 / 3]
