"""Pisces: discounted utilities, how many places explore, and its pace."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binom

from fedroster.policies import Pisces
from fedroster.policies.pisces import discounted_utility, pace_s
from fedroster.types import ProblemSpec, Selection, Streams
from rounds import context_of, report


def known(policy, utility, staleness=0, exploration=0.5):
    """A state in which clients of positive utility have answered once, so late."""
    utility = np.array(utility, np.float64)
    state = policy.init(ProblemSpec(utility.shape[0], 2, 3), rng=np.random.default_rng(0))
    state.staleness[0] = staleness
    return dataclasses.replace(
        state, utility=utility, answers=(utility > 0).astype(np.int64), exploration=float(exploration)
    )


def test_utility_is_discounted_by_staleness():
    found = discounted_utility(np.full(3, 10.0), np.array([0.0, 1.0, 3.0]), penalty=0.5)
    np.testing.assert_allclose(found, [10.0, 7.071, 5.0], atol=5e-4)
    policy = Pisces()
    state = known(policy, [10.0, 9.0, 6.0], staleness=[3, 1, 0], exploration=0.0)  # worth 5, 6.4 and 6
    assert policy.select(state, context_of(3, 2), rng=Streams(0).at("policy")).links.tolist() == [1, 2]


def test_the_pace_is_the_longest_time_over_the_bound():
    assert pace_s(np.array([30.0, 60.0, 120.0]), bound=4) == 30.0
    assert pace_s(np.array([30.0, np.nan]), bound=2) == 90.0
    assert pace_s(np.empty(0), bound=4) == 0.0


def test_a_binomial_number_of_places_explores():
    policy = Pisces()
    state, context = known(policy, [5.0] * 6 + [0.0] * 6, exploration=0.3), context_of(12, 4)
    explored = [
        np.count_nonzero(policy.select(state, context, rng=Streams(3).at("policy", n)).links >= 6) for n in range(3000)
    ]
    expected = binom.pmf(np.arange(5), 4, 0.3)
    np.testing.assert_allclose(np.bincount(explored, minlength=5) / 3000, expected, atol=0.03)


@pytest.mark.parametrize(("old", "exploration"), [(1, 0.0), (5, 1.0)])
def test_what_one_kind_leaves_empty_the_other_fills(old, exploration):
    policy = Pisces()
    state = known(policy, [5.0] * old + [0.0] * (6 - old), exploration=exploration)
    links = policy.select(state, context_of(6, 4), rng=Streams(3).at("policy")).links
    assert links.shape == (4,)
    assert np.count_nonzero(links < old) == min(old, 4 if exploration == 0.0 else 3)


def test_epsilon_decays_with_each_choice_down_to_its_least():
    policy, state = Pisces(exploration_decay=0.5), known(Pisces(), [1.0, 1.0], exploration=0.9)
    state = policy.commit(state, context_of(2, 1), Selection(2, np.array([0])))
    assert state.exploration == 0.45
    assert policy.commit(state, context_of(2, 1), Selection(2, np.zeros(0, np.int64))).exploration == 0.45
    assert policy.commit(state, context_of(2, 1), Selection(2, np.array([1]))).exploration == 0.3


def test_the_last_five_answers_count():
    policy = Pisces()
    state = policy.init(ProblemSpec(2, 1, 3), rng=np.random.default_rng(0))
    for number, late in enumerate([50, 0, 1, 2, 3, 4], 1):
        told = report([0], loss=[2.0], squared_loss=[4.0], num_samples=[10.0], round=number, staleness=late)
        state = policy.update(state, told)
    assert sorted(state.staleness[:, 0]) == [0, 1, 2, 3, 4]
    assert (state.answers[0], state.utility[0]) == (6, 20.0)
    state = policy.update(state, report([0, 1], loss=[9.0, 9.0], time_s=[np.nan, 1.0], round=3))
    assert state.utility.tolist() == [20.0, 9.0]  # of an earlier round than the one that is known
    assert state.answers.tolist() == [6, 1]
