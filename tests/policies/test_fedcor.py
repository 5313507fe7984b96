"""FedCor: its gradient, its greedy choice, and when it asks, fits and discounts."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedroster.networks import FlatNetwork
from fedroster.policies import FedCor
from fedroster.policies.fedcor import choose, fit, slope
from fedroster.simulation import simulate
from fedroster.types import Outcome, ProblemSpec, Selection, Streams
from reference import fedcor_cohort
from rounds import context_of


def log_likelihood(embedding, change, weight, noise):
    covariance = embedding.T @ embedding + noise**2 * np.eye(embedding.shape[1])
    return weight @ multivariate_normal(np.zeros(embedding.shape[1]), covariance).logpdf(change)


def test_the_slope_is_that_of_the_likelihood():
    rng = np.random.default_rng(3)
    embedding, change, weight = rng.standard_normal((3, 5)), rng.standard_normal((6, 5)), rng.random(6)
    found = slope(embedding, change, weight, noise=0.5)
    for place in np.ndindex(embedding.shape):
        step = np.zeros_like(embedding)
        step[place] = 1e-5
        up, down = (log_likelihood(embedding + side * step, change, weight, 0.5) for side in (1, -1))
        assert found[place] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-5)


def test_a_fit_finds_the_covariance_that_made_the_changes():
    rng = np.random.default_rng(5)
    truth = rng.standard_normal((2, 4))
    change = rng.standard_normal((400, 2)) @ truth + 0.1 * rng.standard_normal((400, 4))
    begun = rng.standard_normal((15, 4)) / 15**0.5
    found = fit(begun, change, np.ones(400), noise=0.1, steps=1500)
    empirical = change.T @ change / 400
    np.testing.assert_allclose(found.T @ found + 0.01 * np.eye(4), empirical, atol=0.1)
    weight = np.ones(400)
    assert log_likelihood(found, change, weight, 0.1) > log_likelihood(begun, change, weight, 0.1) + 1000


def test_the_choice_by_hand():
    """Clients 0 and 1 move together: after 0, the lone client 2 tells more (.2357) than 1 does (.1453)."""
    embedding = np.linalg.cholesky([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 0.5]]).T
    everyone, equal = np.arange(3), np.full(3, 1 / 3)
    assert choose(embedding, equal, np.array([1.0, 0.99, 1.0]), everyone, 2, noise=0.0).tolist() == [0, 2]
    assert choose(embedding, equal, np.array([0.1, 0.99, 0.1]), everyone, 2, noise=0.0).tolist() == [1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_that_of_the_whole_matrix(seed):
    rng = np.random.default_rng(seed)
    size, noise = int(rng.integers(1, 6)), 0.3
    embedding, share, discount = rng.standard_normal((15, 12)), rng.random(12), 0.9 ** rng.integers(0, 4, 12)
    client = np.flatnonzero(rng.random(12) < 0.7)
    size = min(size, client.shape[0])
    expected = fedcor_cohort(embedding.T @ embedding + noise**2 * np.eye(12), share, discount, client, size)
    assert client[choose(embedding, share, discount, client, size, noise=noise)].tolist() == expected


def played(policy, rounds, poll, *, available=None):
    """States after each round in which ``poll(round, rows)`` answers, and the rounds in which it was asked."""
    state, asked, states = policy.init(ProblemSpec(6, 2, 3), rng=np.random.default_rng(0)), [], []
    for number in range(1, rounds + 1):
        context = dataclasses.replace(context_of(6, 2, available=available), round=number)

        def answer(rows, number=number):
            asked.append(number)
            return poll(number, rows)

        selection = policy.select(state, context.with_poll(answer), rng=Streams(1).at("policy", number))
        state = policy.commit(state, context, selection)
        states.append((dataclasses.replace(state, discount=state.discount.copy()), selection))
    return states, asked


def test_it_asks_in_the_warm_up_and_in_two_rounds_before_each_fit():
    rng = np.random.default_rng(2)
    states, asked = played(FedCor(warm_up=3, interval=4), 14, lambda number, rows: rng.random(rows.shape[0]))
    assert asked == [1, 2, 3, 4, 8, 9, 12, 13]
    assert sorted(states[-1][0].rounds[states[-1][0].rounds > 0]) == [2, 3, 4, 9, 13]


def test_the_discount_falls_with_each_choice_and_begins_again_with_a_fit():
    rng = np.random.default_rng(2)
    states, _ = played(FedCor(warm_up=3, interval=4), 9, lambda number, rows: rng.random(rows.shape[0]))
    assert (states[3][0].discount == 1.0).all()
    expected = np.ones(6)
    for state, selection in states[4:8]:
        expected[selection.links] *= 0.9
        np.testing.assert_allclose(state.discount, expected)
    assert (states[8][0].discount == 1.0).all()


def test_clients_whose_losses_move_together_are_not_chosen_together():
    """Two groups of three: by chance both places go to one group in 40 % of the rounds."""
    walk = np.cumsum(np.random.default_rng(4).standard_normal((60, 2)), axis=0)
    states, _ = played(FedCor(warm_up=25), 45, lambda number, rows: walk[number][rows // 3] + 0.01 * rows)
    assert all(set(selection.links // 3) == {0, 1} for _, selection in states[27:33])


def test_a_client_that_does_not_answer_counts_as_the_others():
    def poll(number, rows):
        return np.where(rows == 2, np.nan, 10.0 * number + rows)

    states, _ = played(FedCor(warm_up=2), 2, poll, available=[True, True, True, True, False, False])
    state = states[-1][0]
    np.testing.assert_allclose(state.changes[0], 10.0)
    assert np.isinf(state.loss).tolist() == [False, False, True, False, True, True]


def test_without_a_poll_every_cohort_is_random():
    policy, context = FedCor(warm_up=1), dataclasses.replace(context_of(4, 2), round=9)
    state = policy.init(ProblemSpec(4, 2, 3), rng=np.random.default_rng(0))
    seen = {tuple(policy.select(state, context, rng=Streams(n).at("policy")).links) for n in range(100)}
    assert len(seen) == 6
    before = state.embedding.copy()
    state = policy.commit(state, dataclasses.replace(context, round=2), Selection(2, np.array([0, 1])))
    np.testing.assert_array_equal(state.embedding, before)


def test_a_simulation_charges_the_wait_and_hands_the_answers_on():
    policy = FedCor(warm_up=2, interval=3)
    *rounds, last = simulate(
        policy, FlatNetwork(num_clients=8, cohort_size=2), rounds=6, seed=1, ask=lambda context, rows: 1.0 + rows
    )
    assert isinstance(last.outcome, Outcome)
    assert [one.selection.polled is not None for one in (*rounds, last)] == [True, True, True, False, False, True]
    assert last.policy_state.polled == 6
    assert (last.policy_state.rounds[:2] == [2, 3]).all()
