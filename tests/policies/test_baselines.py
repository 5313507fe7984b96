"""Uniform, FedCS in both forms, Dirichlet and the omniscient P3."""

import math

import numpy as np
import pytest
from scipy.stats import chisquare, gamma, kstest

from fedroster import Uniform
from fedroster.networks import FlatNetwork
from fedroster.policies import Dirichlet, FedCS, FedCSGreedy, OmniscientP3, fedcs
from fedroster.policies.dirichlet import DirichletState, log_gamma_variates
from fedroster.policies.fedcs import greedy_within_deadline
from fedroster.simulation import simulate
from fedroster.types import NoState, ProblemSpec, Streams
from reference import brute_force_p4, inclusion_p_value, nishio_yonetani, p4_objective
from rounds import context_of, counts


def test_uniform_is_uniform_over_the_available():
    available = np.arange(30) % 3 != 0
    found = counts(Uniform(), NoState(), context_of(30, 6, available=available), 4000, seed=50)
    assert (found[~available] == 0).all()
    assert inclusion_p_value(found[available], 6, 4000) > 0.001


def test_fedcs_takes_everybody_who_is_expected_in_time():
    for played in simulate(FedCS(deadline_s=3.0), FlatNetwork(), rounds=50, seed=4):
        in_time = played.outcome.expected_time_s < 3.0
        np.testing.assert_array_equal(played.selection.links, np.flatnonzero(in_time & played.context.available))


def test_fedcs_deadline_is_strict():
    network = FlatNetwork()
    context, outcome = network.observe(network.init(rng=Streams(0).at("e")), 1, rng=Streams(0).at("e", 1))
    exact = float(outcome.expected_time_s[context.available].min())
    for deadline_s, size in ((exact, 0), (math.nextafter(exact, math.inf), 1)):
        policy = FedCS(deadline_s=deadline_s)
        assert policy.select(NoState(), context.with_truth(outcome), rng=Streams(0).at("p")).links.size == size


@pytest.mark.parametrize("compiled", [True, False])
def test_greedy_agrees_with_the_published_loop(compiled, monkeypatch):
    if not compiled:  # the source raises where compiled code would read or write beside an array
        monkeypatch.setattr(fedcs, "_greedy", fedcs._greedy.interpret)
    rng = np.random.default_rng(51)
    sizes = set()
    for case in range(300):
        num = int(rng.integers(0, 15))
        if case % 2:  # ties
            update_s, upload_s = rng.integers(0, 5, num) * 1.0, rng.integers(1, 4, num) * 1.0
        else:
            update_s, upload_s = rng.exponential(4.0, num), rng.exponential(1.0, num)
        arguments = {
            "deadline_s": float(rng.choice([2.0, 6.0, 10.0, 1000.0])),
            "distribution_s": float(rng.choice([0.0, 1.0, 2.5])),
            "overhead_s": float(rng.choice([0.0, 0.5])),
        }
        chosen = greedy_within_deadline(update_s, upload_s, **arguments)
        expected = nishio_yonetani(update_s.tolist(), upload_s.tolist(), **arguments)
        assert chosen.tolist() == expected
        sizes.add(len(expected))
    assert len(sizes) > 10


def test_greedy_policy_agrees_with_the_published_loop():
    policy = FedCSGreedy(deadline_s=9.0, distribution_s=0.5, overhead_s=0.25)
    for played in simulate(policy, FlatNetwork(), rounds=100, seed=5):
        rows = np.flatnonzero(played.context.available)
        upload_s = played.outcome.expected_upload_s[rows]
        update_s = played.outcome.expected_time_s[rows] - upload_s
        expected = nishio_yonetani(
            update_s.tolist(), upload_s.tolist(), deadline_s=9.0, distribution_s=0.5, overhead_s=0.25
        )
        assert played.selection.links.tolist() == sorted(rows[expected].tolist())


@pytest.mark.parametrize(("fraction", "asked"), [(1.0, 40), (0.5, 20), (0.26, 11), (0.01, 1), (0.1, 4)])
def test_greedy_asks_a_share_of_the_clients(fraction, asked):
    """With a deadline that admits all, every client that was asked and is available takes part."""
    policy, network = FedCSGreedy(deadline_s=1e6, fraction=fraction), FlatNetwork(availability=1.0)
    found = np.zeros(40)
    for played in simulate(policy, network, rounds=300, seed=6):
        assert len(played.selection.links) == asked
        found[played.selection.links] += 1
    if asked < 40:
        assert inclusion_p_value(found, asked, 300) > 0.001


@pytest.mark.parametrize("gamma_2", [1e-3, 1e-6, 1e-300])
def test_a_tiny_concentration_still_works(gamma_2):
    """The weights themselves would underflow; their logarithms do not, and all clients differ."""
    state = Dirichlet(gamma_2=gamma_2).init(ProblemSpec(1000, 8, 3), rng=Streams(0).at("policy-init"))
    assert np.isfinite(state.log_weight).all()
    assert np.unique(state.log_weight).size > 990
    assert (np.exp(state.log_weight) == 0).any()


@pytest.mark.parametrize("shape", [0.3, 1.0, 4.0])
def test_log_gamma_variates(shape):
    draws = np.exp(log_gamma_variates(shape, 4000, rng=np.random.default_rng(52)))
    assert kstest(draws, gamma(shape).cdf).pvalue > 0.001
    assert kstest(draws, gamma(shape * 1.15).cdf).pvalue < 1e-3  # negative control


def test_given_the_weights_a_draw_is_proportional():
    weights = np.array([1.0, 2.0, 5.0, 8.0])
    state = DirichletState(np.log(weights))
    for available, share in (([1, 1, 1, 1], weights / 16), ([1, 0, 1, 0], np.array([1, 0, 5, 0]) / 6)):
        found = counts(Dirichlet(), state, context_of(4, 1, available=available), 4000, seed=53)
        there = share > 0
        assert (found[~there] == 0).all()
        assert chisquare(found[there], 4000 * share[there]).pvalue > 0.001
    assert chisquare(found[there], [2000, 2000]).pvalue < 1e-9  # negative control


def test_p3_is_solved_with_the_true_means():
    policy = OmniscientP3(V=2.0, beta=0.25)
    backlog = np.zeros(9)
    for played in simulate(policy, FlatNetwork(num_clients=9, cohort_size=3), rounds=60, seed=9):
        best, _ = brute_force_p4(played.outcome.expected_time_s, backlog, played.context.available, 3, 2.0)
        value = p4_objective(played.outcome.expected_time_s, backlog, played.selection.links, 2.0)
        assert value == pytest.approx(best, rel=1e-12, abs=1e-12)
        backlog = played.policy_state.backlog.copy()
