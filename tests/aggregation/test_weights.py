"""Weights of one over the probability."""

import numpy as np
import pytest

from fedroster.aggregation.weights import inverse_weights
from fedroster.core.errors import ConfigurationError, InvalidInputError


def test_a_cohort_stands_for_everybody():
    """Over many draws, the weighted mean of a value is its mean over all clients, not over the likely ones."""
    value, probability = np.arange(20.0), np.linspace(0.1, 0.9, 20)
    rng, found, plain = np.random.default_rng(0), [], []
    for _ in range(4000):
        chosen = rng.random(20) < probability
        made = inverse_weights(np.ones(chosen.sum()), probability[chosen])
        found.append(made.weight @ value[chosen])
        plain.append(value[chosen].mean())
    assert np.mean(found) == pytest.approx(9.5, abs=0.8)  # self-normalised: a little biased
    assert np.mean(plain) > 12.0


def test_weights_are_normalised_and_capped():
    made = inverse_weights(np.array([1, 1, 2]), np.array([1.0, 0.5, 0.01]), cap=4.0)
    assert made.weight.tolist() == pytest.approx([1 / 11, 2 / 11, 8 / 11])
    assert made.num_capped == 1
    assert made.effective_size == pytest.approx(121 / 69)
    assert inverse_weights(np.ones(3), np.full(3, 0.2)).effective_size == pytest.approx(3.0)


def test_probabilities_are_checked():
    with pytest.raises(InvalidInputError, match=r"update 1 is 0\.0; expected 0 < p <= 1"):
        inverse_weights(np.ones(2), np.array([0.5, 0.0]))
    with pytest.raises(ConfigurationError, match=r"cap is 0\.5"):
        inverse_weights(np.ones(1), np.ones(1), cap=0.5)
