"""Virtual queues: the formula, the bound (11) on every simulated round, stability, and what cannot be met."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroster import RBCSF, Uniform
from fedroster.bounds import backlog_bound, drift_plus_cost_bound, lyapunov_drift
from fedroster.core.errors import ConfigurationError, InfeasibleError
from fedroster.networks import FlatNetwork
from fedroster.policies import FedCS, OmniscientP3
from fedroster.queues import check_rate, queue_step, snap_rate
from fedroster.simulation import simulate
from reference import queue_formula


@given(
    backlog=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=12),
    rate=st.floats(0.0, 1.0),
    data=st.data(),
)
def test_queue_step_is_the_formula(backlog, rate, data):
    served = sorted(data.draw(st.sets(st.integers(0, len(backlog) - 1))))
    stepped = queue_step(np.array(backlog), beta=rate, served=np.array(served, np.int64))
    np.testing.assert_allclose(stepped, queue_formula(backlog, rate, served), rtol=1e-15, atol=1e-15)
    assert (stepped >= 0).all()


def test_members_rest():
    """Others owe and are owed nothing."""
    members = np.array([True, False, True, False])
    stepped = queue_step(np.array([1.0, 2.0, 3.0, 0.0]), beta=0.5, served=np.array([0]), members=members)
    np.testing.assert_array_equal(stepped, [0.5, 2.0, 3.5, 0.0])


def test_unavailable_clients_are_owed_too():
    """Choice A6: the queue of a client that is never there grows by beta each round."""
    network = FlatNetwork(num_clients=6, cohort_size=2, availability=0.0)
    *_, last = simulate(RBCSF(beta=0.25), network, rounds=20, seed=0)
    np.testing.assert_array_equal(last.policy_state.backlog, np.full(6, 5.0))


@given(rate=st.floats(0.0, 1.0))
def test_snap_rate(rate):
    snapped = snap_rate(rate)
    assert abs(snapped - rate) <= 2.0**-33
    assert (snapped * 2.0**32).is_integer()
    assert snap_rate(snapped) == snapped


def test_snapped_queues_tie_exactly():
    """What 0.15 itself does not give: two clients served equally often in another order owe the same."""
    early = [[0], [0]] + [[]] * 8
    late = early[::-1]

    def play(rate, rounds):
        backlog = np.array([3.0])
        for served in rounds:
            queue_step(backlog, beta=rate, served=np.array(served, np.int64))
        return backlog[0]

    assert play(snap_rate(0.15), early) == play(snap_rate(0.15), late)
    assert play(0.15, early) != play(0.15, late)  # negative control
    assert play(0.15, early) == pytest.approx(play(0.15, late), rel=1e-12)


def test_check_rate_says_what_would_do():
    said = r"40 clients x 0\.5 = 20 places a round are .*cohort_size = 8; expected beta <= 0\.2 or cohort_size >= 20"
    with pytest.raises(InfeasibleError, match=rf"beta = 0\.5 cannot be met: {said}"):
        check_rate(0.5, num_clients=40, cohort_size=8)
    for num_clients in range(2, 60):  # and it does
        with pytest.raises(InfeasibleError) as caught:
            check_rate(1.0, num_clients=num_clients, cohort_size=num_clients - 1)
        rate = str(caught.value).partition("expected beta <= ")[2].split()[0]
        check_rate(float(rate), num_clients=num_clients, cohort_size=num_clients - 1)


def test_check_rate_accepts_what_is_just_feasible():
    check_rate(0.0, num_clients=10, cohort_size=1)
    check_rate(8 / 39, num_clients=39, cohort_size=8)
    check_rate(0.07, num_clients=100, cohort_size=7)  # 100 x 0.07 is 7.000000000000001
    with pytest.raises(InfeasibleError):
        check_rate(0.2001, num_clients=40, cohort_size=8)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, math.inf, True, "0.1", None])
def test_check_rate_refuses_what_is_no_rate(rate):
    with pytest.raises(ConfigurationError, match=r"beta is .*; expected a finite number >= 0 and <= 1"):
        check_rate(rate, num_clients=4, cohort_size=4)


def test_drift_keeps_its_digits():
    """The difference of two large sums of squares would lose what is asked for."""
    before = np.full(1000, 1e8)
    after = before + 2.0**-20
    assert lyapunov_drift(before, after) == pytest.approx(1000 * 1e8 * 2.0**-20, rel=1e-12)
    assert 0.5 * (np.dot(after, after) - np.dot(before, before)) != pytest.approx(1000 * 1e8 * 2.0**-20, rel=1e-6)


def test_drift_and_bounds_by_hand():
    """Gamma = 3 (1 + 1/16) / 2; then Z = (1, 2, 4), x = (0, 1, 0), beta = 1/4, V f = 10."""
    assert lyapunov_drift(np.array([1.0, 2.0]), np.array([2.0, 1.5])) == 0.5 * (4 + 2.25 - 1 - 4)
    assert backlog_bound(8, 0.5, 10.0, 2.0, 2) == 10.0  # Gamma = 5, V tau = 20, T = 2: sqrt(2 x 2 x 25)
    bound = drift_plus_cost_bound(np.array([1.0, 2.0, 4.0]), np.array([1]), beta=0.25, V=2.0, round_time_s=5.0)
    assert bound == 3 * 1.0625 / 2 + 0.25 * 7 - 2 + 10


POLICIES = (
    RBCSF(V=20.0),
    RBCSF(V=0.0),
    RBCSF(V=5.0, schedule="lemma-1", R=1.0, L=10.0, S=4.0),
    OmniscientP3(V=20.0),
    Uniform(),
    FedCS(deadline_s=3.0),
)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_theorem_2_holds_on_every_round(policy):
    """(11), for every realisation: with the policy's own queues where it has them, else with queues kept here."""
    rate, penalty = snap_rate(0.15), getattr(policy, "V", 20.0)
    backlog = np.zeros(40)
    tight = violated = 0
    for played in simulate(policy, FlatNetwork(), rounds=400, seed=3):
        before, served = backlog.copy(), played.selection.links
        queue_step(backlog, beta=rate, served=served)
        if hasattr(played.policy_state, "backlog"):
            assert np.array_equal(backlog, played.policy_state.backlog)
        cost = lyapunov_drift(before, backlog) + penalty * played.time_s
        bound = drift_plus_cost_bound(before, served, beta=rate, V=penalty, round_time_s=played.time_s)
        assert cost <= bound * (1 + 1e-12)
        tight += cost > bound - 0.9 * 40 * (1 + rate**2) / 2
        # Negative control: without Gamma, or with another client's service, the bound is wrong.
        violated += cost > bound - 40 * (1 + rate**2) / 2
        unserved = np.zeros(0, np.int64)
        assert drift_plus_cost_bound(before, unserved, beta=rate, V=penalty, round_time_s=played.time_s) >= bound
    assert tight > 0
    assert violated > 0


NETWORK = FlatNetwork(num_clients=8, cohort_size=2)
RATE = 0.2


@pytest.mark.parametrize("policy", [RBCSF(V=1.0, beta=RATE), OmniscientP3(V=1.0, beta=RATE)], ids=repr)
def test_queues_are_stable_and_rates_are_guaranteed(policy):
    num_rounds = 4000
    backlog, chosen, longest = np.zeros(8), np.zeros(8), {}
    for played in simulate(policy, NETWORK, rounds=num_rounds, seed=1):
        chosen[played.selection.links] += 1
        queue_step(backlog, beta=snap_rate(RATE), served=played.selection.links)
        longest[played.number] = float(backlog.max())
        bound = backlog_bound(8, RATE, policy.V, NETWORK.max_expected_time_s, played.number)
        assert np.linalg.norm(backlog) <= bound
    rates = chosen / num_rounds
    # Mean-rate stable: Z_T / T falls towards zero.
    assert longest[4000] / 4000 < 0.5 * longest[1000] / 1000 < 0.005
    # Every client's rate is above beta - Z_T / T, and that is above beta minus the bound.
    assert (rates >= RATE - longest[4000] / 4000 - 1e-9).all()
    assert (rates >= RATE - bound / num_rounds).all()
    assert RATE - bound / num_rounds > 0.09  # the guarantee says something
    assert rates.min() > 0.195
