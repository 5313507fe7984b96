"""RBCS-F against Algorithm 2 written down once more, and Theorem 3."""

import math

import numpy as np
import pytest

from fedroster import RBCSF
from fedroster.bounds import rbcs_f_regret, rbcs_f_regret_as_printed
from fedroster.core.errors import ConfigurationError
from fedroster.networks import FlatNetwork
from fedroster.queues import snap_rate
from fedroster.simulation import simulate
from reference import Ridge, algorithm_1, p4_objective, queue_formula


@pytest.mark.parametrize(
    "policy",
    [
        RBCSF(V=3.0, beta=0.25),
        RBCSF(V=20.0, beta=0.1, alpha=1.0, ridge=4.0),
        RBCSF(V=0.5, beta=0.2, schedule="lemma-1", R=0.3, L=10.2, S=0.05, delta=0.2, ridge=4.0),
    ],
    ids=["table-2", "curious", "lemma-1"],
)
def test_follows_algorithm_2(policy):
    """Every decision of a run is an optimum of the P4 that the paper's own steps lead to."""
    network = FlatNetwork(num_clients=10, cohort_size=3, dropout=0.1)
    rate = snap_rate(policy.beta)
    backlog = [0.0] * 10
    history = [([], []) for _ in range(10)]
    decided_by_time = 0
    for played in simulate(policy, network, rounds=120, seed=8):
        if policy.schedule == "constant":
            alpha = policy.alpha
        else:
            spread = math.log((1 + played.number * policy.L**2 / policy.ridge) / policy.delta)
            alpha = policy.R * math.sqrt(3 * spread) + math.sqrt(policy.ridge) * policy.S
        times = []
        for n, context in enumerate(played.context.features):
            features, targets = history[n]
            ridge = Ridge.of(np.reshape(features, (-1, 3)), targets, policy.ridge)
            times.append(float(ridge.lower_bound(context, alpha)))
        links = played.selection.links.tolist()
        printed = algorithm_1(times, backlog, played.context.available, 3, policy.V)
        if printed:
            best = min(objective for objective, _ in printed)
            value = p4_objective(times, backlog, links, policy.V)
            assert value == pytest.approx(best, rel=1e-9, abs=1e-9)
            decided_by_time += len({objective for objective, _ in printed}) > 1
        backlog = queue_formula(backlog, rate, links)
        np.testing.assert_allclose(played.policy_state.backlog, backlog, rtol=0, atol=1e-12)
        for n, time_s in zip(played.feedback.client, played.feedback.exchange_time_s, strict=True):
            if not math.isnan(time_s):
                history[n][0].append(played.context.features[n])
                history[n][1].append(time_s)
    assert decided_by_time > 60


@pytest.mark.parametrize("missing", ["R", "L", "S"])
def test_lemma_1_needs_its_constants(missing):
    """With the defaults of zero, alpha_t would silently be something else."""
    constants = {"R": 0.5, "L": 2.0, "S": 3.0} | {missing: 0.0}
    with pytest.raises(ConfigurationError, match=rf"{missing} \(needed by schedule = lemma-1\) is 0\.0; expected"):
        RBCSF(schedule="lemma-1", **constants)


KNOWN = {
    "num_clients": 2,
    "beta": 0.5,
    "V": 5.0,
    "max_time_s": 10.0,
    "noise": 0.0,
    "feature_norm": 1.0,
    "coefficient_norm": 1.0,
    "delta": 0.5,
    "ridge": 1.0,
}


def test_regret_bound_by_hand():
    """T = 5, lambda = 4, delta = 1/2 and T L^2 / lambda = e^3/2 - 1 =: y, so that the logarithm in zeta is 3.

    zeta = 10 (2 x 0.5 x sqrt(9) + 2 x 2) = 70; Gamma / V = 2 (1 + 0.25) / (2 x 5) = 0.25.
    """
    y = math.e**3 / 2 - 1
    known = {"noise": 0.5, "feature_norm": math.sqrt(4 * y / 5), "coefficient_norm": 2.0, "ridge": 4.0}
    bound = rbcs_f_regret_as_printed(5, **KNOWN | known)
    assert y == pytest.approx(9.04276846, rel=1e-9)
    assert bound == pytest.approx(0.25 + 70 * math.sqrt(6 * math.log(1 + y / 3) / 5), rel=1e-13)
    # ln(1 + y/3) = ln 4 + ln 1.00356404 = 1.38985206; times 6/5, the root is 1.29144201.
    assert bound == pytest.approx(0.25 + 70 * 1.29144201, rel=1e-8)


def test_regret_bound_takes_at_least_one():
    """Both maxima: K = 0.1 and 2R sqrt(.) + sqrt(lambda) S = 0 count as 1."""
    known = {"num_clients": 4, "beta": 1.0, "V": 2.0, "max_time_s": 0.1, "coefficient_norm": 0.0}
    known["feature_norm"] = math.sqrt((math.e - 1) / 2)
    bound = rbcs_f_regret_as_printed(6, **KNOWN | known)
    assert bound == pytest.approx(2.0 + 1.0, rel=1e-14)


def test_the_sum_that_theorem_3_bounds_for_one_client_is_larger_for_clients_in_turn():
    """(46) allows 2 D log(1 + T L^2 / D lambda) for the slowest clients of all rounds; 40 in turn take ten times it."""
    visits, total = np.zeros(40), 0.0
    for t in range(500):
        total += min(1.0 / (1.0 + visits[t % 40]), 1.0)  # ||c||^2 in the norm of H^-1, D = L = lambda = 1
        visits[t % 40] += 1.0
    assert total == pytest.approx(125.7, abs=0.1)
    assert 2.0 * math.log(1.0 + 500.0) == pytest.approx(12.4, abs=0.1)
    assert total <= 2.0 * 40.0 * math.log(1.0 + 500.0 / 40.0)  # with a potential for each client, it holds


def test_the_bound_that_holds_by_hand():
    """N = 2, m = 1, D = 1, T = 5, L = lambda = 1, S = 1, delta = 1/2, R = 0: zeta = 10 x 2, potential 4 log(3.5)."""
    bound = rbcs_f_regret(5, cohort_size=1, num_features=1, **KNOWN)
    assert bound == pytest.approx(0.25 + 20.0 * math.sqrt(4.0 * math.log(3.5) / 5.0) + 10.0, rel=1e-13)
