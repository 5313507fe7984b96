"""REFL: its order, its honest forecast, and the weights of late updates."""

import dataclasses

import numpy as np
import pytest

from fedroster.policies import REFL
from fedroster.policies.refl import forecast, stale_weights
from fedroster.types import ProblemSpec, RoundContext, Selection, Streams
from reference import refl_forecasts
from rounds import context_of


def played(policy, history, chosen=()):
    """The state after rounds in which these clients were there, and its forecasts of each round before it."""
    state, found = policy.init(ProblemSpec(len(history[0]), 2, 1), rng=np.random.default_rng(0)), []
    for number, here in enumerate(history, 1):
        found.append(forecast(state.there, state.rounds, number % policy.period))
        context = RoundContext(number, np.ones((len(here), 1)), np.array(here, np.bool_), 2)
        links = np.array(chosen[number - 1] if number <= len(chosen) else [], np.int64)
        state = policy.commit(state, context, Selection(number, links))
    return state, np.array(found)


@pytest.mark.parametrize("period", [1, 3, 24])
def test_forecasts_come_from_the_past_alone_and_their_errors_are_kept(period):
    history = np.random.default_rng(2).random((20, 5)) < [0.9, 0.1, 0.5, 0.3, 1.0]
    state, found = played(REFL(period=period), history.tolist())
    expected = refl_forecasts(history.tolist(), period)
    np.testing.assert_allclose(found, expected)
    assert REFL().brier(state) == pytest.approx(((expected - history) ** 2).mean())
    assert np.isnan(REFL().brier(REFL().init(ProblemSpec(2, 1, 1), rng=np.random.default_rng(0))))


def test_those_that_will_be_there_least_go_first():
    """Forecasts .9, .1, .5, .1 and three places: clients 1, 3 and 2."""
    there, rounds = np.array([[8, 0, 4, 0]]), np.full((1, 4), 8)
    np.testing.assert_allclose(forecast(there, rounds, 0), [0.9, 0.1, 0.5, 0.1])
    policy = REFL(period=1)
    state = dataclasses.replace(played(policy, [[1, 1, 1, 1]])[0], there=there, rounds=rounds)
    links = [policy.select(state, context_of(4, 3), rng=Streams(n).at("policy")).links.tolist() for n in range(5)]
    assert links == [[1, 2, 3]] * 5
    tied = {tuple(policy.select(state, context_of(4, 1), rng=Streams(n).at("policy")).links) for n in range(20)}
    assert tied == {(1,), (3,)}


def test_a_client_rests_for_four_rounds_unless_it_is_needed():
    policy = REFL(period=1)
    state, _ = played(policy, [[0, 1, 1]] * 9 + [[1, 1, 1]], chosen=[[]] * 9 + [[0]])  # client 0 is the rarest

    def first(round, size=1, **options):
        context = dataclasses.replace(context_of(3, size, **options), round=round)
        return policy.select(state, context, rng=Streams(round).at("policy")).links.tolist()

    assert all(first(round) != [0] for round in (11, 12, 13, 14))
    assert first(15) == [0]
    assert first(11, available=[True, False, False]) == [0]
    assert first(11, size=3) == [0, 1, 2]


@pytest.mark.parametrize(
    ("late", "weights"),
    [(1, [0.3250, 0.4627, 0.5462]), (2, [0.2167, 0.3544, 0.4379]), (5, [0.1083, 0.2460, 0.3296])],
)
def test_weights_of_late_updates(late, weights):
    """b = .35 and L / Lmax = 0, .5, 1: numbers that were computed independently from the paper's rule."""
    late = np.full(3, late)
    np.testing.assert_allclose(stale_weights(late, np.array([0.0, 2.0, 4.0])), weights, atol=5e-5)
    np.testing.assert_allclose(stale_weights(late), weights[0], atol=5e-5)
    np.testing.assert_allclose(stale_weights(late, np.zeros(3)), weights[0], atol=5e-5)
