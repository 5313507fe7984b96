"""Availability patterns: each against its formula, by hand and by how often clients are there."""

import math
from typing import get_args, get_type_hints

import numpy as np
import pytest

from fedroster.core.streams import Streams
from fedroster.networks.patterns import PatternedNetwork
from fedroster.testing import EnvironmentContract

PATTERNS = get_args(get_type_hints(PatternedNetwork)["pattern"])
USUAL = np.array([0.2, 0.9])


@pytest.mark.usefixtures("resumes_in_forks")
class TestContract(EnvironmentContract):
    def environment(self):
        return PatternedNetwork(num_clients=12, cohort_size=3, pattern="interleaved")

    def exogenous(self, context, outcome):
        """Cold starts are history."""
        return {"available": context.available, "compute": context.features[:, 0], "responds": outcome.responds}


def made(pattern, strength=0.5, num_clients=40):
    network = PatternedNetwork(num_clients=num_clients, pattern=pattern, strength=strength)
    return network, network.init(rng=Streams(3).at("environment-init"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_clients_are_there_as_often_as_their_pattern_says(pattern):
    network, state = made(pattern)
    there, expected = np.zeros(40), np.zeros(40)
    for number in range(1, 551):
        context, _ = network.observe(state, number, rng=Streams(3).at("environment", number))
        there += context.available
        probability = network.probability(state.usual, number)
        assert (probability >= 0.0).all()
        assert (probability <= 1.0).all()
        expected += probability
    assert (np.abs(there - expected) < 4.5 * math.sqrt(550 / 4)).all()
    assert np.ptp(expected) > 4  # clients differ


@pytest.mark.parametrize(
    ("pattern", "strength", "rounds", "expected"),
    [
        ("sine", 0.3, [1, 6, 16], [0.7, 1.0, 0.4]),
        ("staircase", 0.6, [10, 11, 20, 21], [1.0, 0.4, 0.4, 1.0]),
        ("by-data", 0.5, [1, 25, 13], [0.5, 0.5, 0.5 + 0.4 * math.sin(2 * math.pi * 12 / 23)]),
        ("sin-log-normal", 0.5, [1, 25, 13], [0.5, 0.5, 0.5 + 0.4 * math.sin(2 * math.pi * 12 / 23)]),
        ("sine", 0.9, [16], [0.0]),
        ("log-normal", 0.5, [1, 99], [1.0, 1.0]),
    ],
)
def test_factors_by_the_round(pattern, strength, rounds, expected):
    """The formulas of the papers' code, whose rounds are counted from 0."""
    network = PatternedNetwork(num_clients=2, pattern=pattern, strength=strength)
    found = [network.probability(USUAL, number) for number in rounds]
    np.testing.assert_allclose(found, np.outer(expected, USUAL), atol=1e-12)


def test_interleaved_clients_vanish_where_little_is_left():
    network = PatternedNetwork(num_clients=2, pattern="interleaved", strength=0.6)
    np.testing.assert_allclose(network.probability(USUAL, 6), USUAL)
    assert network.probability(USUAL, 16).tolist() == [0.0, 0.0]  # -0.2 counts as 0
    np.testing.assert_allclose(network.probability(np.array([0.2, 0.9]), 1), [0.0, 0.36])


def test_labels_take_turns_of_ten_rounds_in_a_cycle_of_a_hundred():
    network, state = made("y-cycle", strength=0.8, num_clients=10)
    for number in (1, 10, 11, 100, 101):
        found = network.probability(state.usual, number)
        assert found[(number - 1) // 10 % 10] == 1.0
        np.testing.assert_allclose(np.sort(found)[:-1], 0.2)


def test_what_depends_on_data_or_label():
    def usual(pattern, strength=0.5):
        return made(pattern, strength)[1].usual

    size = 1.0 / usual("by-data")  # in units of the least
    np.testing.assert_allclose(usual("less-data-first"), size**-0.5)
    np.testing.assert_allclose(usual("more-data-first"), (size / size.max()) ** 0.5)
    np.testing.assert_allclose(usual("y-max-first")[[0, 39]], [0.5, 1.0])
    np.testing.assert_allclose(usual("log-normal", 0.0), 1.0)
    assert usual("log-normal", 0.9).min() < usual("log-normal", 0.1).min()
    q = usual("sine")
    assert np.unique(q).shape == (10,)
    assert q[20:].max() <= 0.5
