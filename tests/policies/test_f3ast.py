"""F3AST: long-run rates by hand and by a slow loop, its weights, and who may never be chosen."""

import numpy as np
import pytest

from fedroster import Selector
from fedroster.lab.compare.line_up import Asked, line_up
from fedroster.lab.trials.trial import DEFAULT_RATE, Trial
from fedroster.policies import F3AST
from fedroster.policies.f3ast import F3ASTState
from fedroster.types import RoundContext, Selection, Streams
from reference import f3ast_rates
from rounds import context_of


def state_of(sizes):
    return F3ASTState(np.full(len(sizes), 1.0 / len(sizes)), np.array(sizes, np.float64))


def played(policy, sizes, size, history):
    """Share of the rounds in which each client was chosen, and the last state."""
    state, turns = state_of(sizes), np.zeros(len(sizes))
    for number, here in enumerate(history, 1):
        context = RoundContext(number, np.ones((len(sizes), 1)), np.array(here, np.bool_), size)
        selection = policy.select(state, context, rng=Streams(0).at("policy", number))
        turns[selection.links] += 1
        state = policy.commit(state, context, selection)
    return turns / len(history), state


@pytest.mark.parametrize(
    ("share", "rates"),
    [
        ((0.4, 0.3, 0.2, 0.1), (0.8, 0.6, 0.4, 0.2)),
        ((0.7, 0.1, 0.1, 0.1), (1.0, 1 / 3, 1 / 3, 1 / 3)),
        ((1 / 6,) * 6, (1 / 3,) * 6),
    ],
)
def test_long_run_rates_are_in_proportion_to_data(share, rates):
    """min(1, c p) with a sum of m = 2, computed independently."""
    found, state = played(F3AST(), share, 2, [[True] * len(share)] * 6000)
    np.testing.assert_allclose(found, rates, atol=0.02)
    np.testing.assert_allclose(state.rate, rates, atol=0.03)


def test_a_client_that_is_seldom_there_is_always_taken():
    """Availability (.2, .9, .9, .9), equal data, two places: .2 and three times .592."""
    history = np.random.default_rng(1).random((6000, 4)) < [0.2, 0.9, 0.9, 0.9]
    found, _ = played(F3AST(), [1.0] * 4, 2, history)
    np.testing.assert_allclose(found, [0.2, 0.592, 0.592, 0.592], atol=0.02)
    assert found[0] == history[:, 0].mean()


def test_the_rates_are_those_of_the_slow_loop():
    """Sizes and availability without ties: the same cohorts, and the same r."""
    sizes = np.array([3.0, 17.1, 5.3, 29.7, 11.9])
    history = np.random.default_rng(5).random((400, 5)) < [0.3, 0.9, 0.6, 0.8, 0.2]
    turns, state = played(F3AST(beta=0.05), sizes, 2, history)
    slow_turns, slow_r = f3ast_rates((sizes / sizes.sum()).tolist(), 2, 0.05, history.tolist())
    np.testing.assert_allclose(turns, slow_turns)
    np.testing.assert_allclose(state.rate, slow_r, rtol=1e-9)


def test_weights_are_share_over_the_rate_after_the_round():
    policy, state = F3AST(beta=0.1), state_of([3.0, 1.0, 4.0])
    context = context_of(3, 2, members=np.array([True, True, False]))
    weight = policy.weights(state, context, Selection(2, np.array([0, 1])))
    np.testing.assert_allclose(weight, np.array([0.75, 0.25]) / (0.9 / 3 + 0.1))
    booked = policy.commit(state, context, Selection(2, np.array([0, 1])))
    np.testing.assert_allclose(weight * booked.rate[:2], [0.75, 0.25])


def test_no_client_is_chosen_that_is_not_there_and_rates_fall_in_empty_rounds():
    policy, state = F3AST(), state_of([1.0, 1.0, 9.0])
    assert policy.select(state, context_of(3, 2, available=[True, False, False]), rng=Streams(0).at("p")).links == [0]
    state = policy.commit(state, context_of(3, 2, available=[False] * 3), Selection(2, np.zeros(0, np.int64)))
    np.testing.assert_allclose(state.rate, 0.99 / 3)
    for _ in range(5000):
        state = policy.commit(state, context_of(3, 1), Selection(2, np.array([1])))
    assert 0.0 < state.rate[0] < 1e-8
    assert state.rate[1] == pytest.approx(1.0)


def test_a_client_that_joins_late_begins_like_the_first_ones():
    """In a slot that was empty, or of a client that was forgotten: rates of others than members rest."""
    policy, state = F3AST(), state_of([1.0] * 4)
    members = np.array([True, True, True, False])
    for number in range(1, 501):
        context = context_of(4, 1, available=members, members=members)
        state = policy.commit(state, context, policy.select(state, context, rng=Streams(0).at("policy", number)))
    assert state.rate[3] == 1 / 4
    weight = policy.weights(state, context_of(4, 1), Selection(501, np.array([3])))
    np.testing.assert_allclose(weight, 1 / 4 / (0.99 / 4 + 0.01))


@pytest.mark.parametrize(("num_clients", "part"), [(5, 0.980), (10, 0.956), (50, 0.790)])
def test_a_client_whose_turns_are_rare_counts_less_than_its_share(num_clients, part):
    """Known answer for one place and equal data: weights tend to p n (1 - (1 - beta)^n) / (n beta)."""
    policy, state = F3AST(), state_of([1.0] * num_clients)
    for number in range(1, 3001):
        context = context_of(num_clients, 1)
        selection = policy.select(state, context, rng=Streams(0).at("policy", number))
        weight = policy.weights(state, context, selection)
        state = policy.commit(state, context, selection)
    np.testing.assert_allclose(weight, part, atol=1e-3)


def test_its_beta_is_no_promised_rate():
    """Clients were said to be below a promise, comparisons set the step to the rate that they were asked for."""
    selector = Selector(F3AST(), cohort_size=1, clients=range(300))
    for _ in range(60):
        cohort = selector.select()
        selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
    assert selector.below_promise() == ()
    asked = Asked(["f3ast", "rbcs-f"], beta=0.1)
    assert line_up("rbcs-f/table-1", asked).policies == ["f3ast", "rbcs-f:beta=0.1"]
    own, asked = (Trial("rbcs-f/table-1", "f3ast:beta=0.9", 0, 10, rate=rate).run() for rate in (None, DEFAULT_RATE))
    np.testing.assert_array_equal(own.lacking, asked.lacking)
