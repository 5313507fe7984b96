r"""The yardstick of flat policies: an estimate of the least mean round time that a stationary policy can have.

A stationary policy that knows the mean times and their scatter decides by the round's context alone.  Over K sampled
contexts its best is the value of a linear program over the shares :math:`f_{s,S}` of cohort S in context s:

.. math:: \min \frac1K \sum_{s,S} f_{s,S}\, \mathbb E \max_{n \in S} \tau_{s,n}\quad\text{s.t.}\quad
    \sum_S f_{s,S} = 1,\quad \frac1K \sum_{s,\,S \ni n} f_{s,S} \ge \beta

Cohorts are generated as columns: the dual value of a client's share is its price, and the cohort of least expected
maximum minus prices is the one that may improve the program.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, hstack, identity

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.errors import ConfigurationError
from fedroster.core.streams import Streams
from fedroster.environment.flat import FlatNetwork, scatter
from fedroster.optimization.expected_maximum import RATIO_BINS, expected_maximum, least_expected_maximum, ratio_bins
from fedroster.policies.floor import Floor
from fedroster.simulation import simulate

_SETTLED = 2e-3  # gap between the program and its Lagrangian bound
_ATTEMPTS = 80
_PENALTY = 10.0
_SCATTER_SAMPLES = 200_000


def stationary_optimum(network: FlatNetwork, rate: float, *, seed: int, num_contexts: int = 150) -> float:
    """Estimate the least mean round time of a stationary policy that knows the network, seconds.

    It is no bound.  The sample's optimum is a little below the truth (it fits the sample), and its cohorts, found by
    a search that proves nothing, a little above.  The contexts are those of a run of FLOOR, for cold starts depend on
    who was chosen before: a policy that keeps clients warm otherwise may take less.

    Args:
        network: A network without drift and churn.
        rate: beta.
        seed: Seed of the sampled contexts.
        num_contexts: K.

    Raises:
        ConfigurationError: If the network changes over time.
    """
    if network.drift or network.churn:
        raise ConfigurationError("the network has drift or churn; expected one that does not change over time")
    streams = Streams(seed)
    ratios = scatter(streams.at("scatter").random(_SCATTER_SAMPLES), network.noise, network.noise_shape)
    counts = np.bincount(ratio_bins(ratios), minlength=RATIO_BINS).astype(np.float64)
    times_s = [
        np.where(played.context.available, played.outcome.expected_time_s, np.inf)
        for played in simulate(Floor(beta=rate), network, num_rounds=num_contexts, seed=seed)
    ]
    there = np.isfinite(times_s)
    owed = np.minimum(rate, there.mean(axis=0))  # a sample may hide a client; it is owed what can be had
    price_s = np.where(there, times_s, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1) / network.cohort_size
    columns: list[dict[bytes, tuple[IntArray, float]]] = [{} for _ in times_s]
    stable_s, best_bound_s = price_s, -math.inf
    value_s = math.inf
    for attempt in range(_ATTEMPTS):
        ties = streams.at("ties", attempt)
        bound_s = float(owed @ price_s)
        for known, time_s in zip(columns, times_s, strict=True):
            cohort = least_expected_maximum(time_s, price_s, cohort_size=network.cohort_size, counts=counts, rng=ties)
            cost_s = expected_maximum(time_s[cohort], counts) if cohort.shape[0] else 0.0
            known.setdefault(cohort.tobytes(), (cohort, cost_s))
            bound_s += (cost_s - float(price_s[cohort].sum())) / num_contexts
        # Prices of a program with few columns jump about: the next ones lie between them and the best so far.
        if bound_s > best_bound_s:
            best_bound_s, stable_s = bound_s, price_s
        value_s, program_price_s = _program(columns, owed)
        if value_s <= best_bound_s * (1.0 + _SETTLED):
            break
        price_s = 0.7 * stable_s + 0.3 * program_price_s
    return value_s


def _program(columns: list[dict[bytes, tuple[IntArray, float]]], owed: FloatArray) -> tuple[float, FloatArray]:
    """Value and prices of the program over the cohorts so far; a missing share costs more than any round."""
    num_contexts, num_clients = len(columns), owed.shape[0]
    cohorts = [(i, cohort, cost_s) for i, known in enumerate(columns) for cohort, cost_s in known.values()]
    cost_s = np.array([cost for _, _, cost in cohorts]) / num_contexts
    penalty_s = _PENALTY * cost_s.max() * num_contexts
    column = np.repeat(np.arange(len(cohorts)), [cohort.shape[0] for _, cohort, _ in cohorts])
    client = np.concatenate([cohort for _, cohort, _ in cohorts])
    shares = coo_array(
        (np.full(client.shape[0], -1.0 / num_contexts), (client, column)), shape=(num_clients, len(cohorts))
    )
    context = np.array([i for i, _, _ in cohorts])
    one_each = coo_array(
        (np.ones(len(cohorts)), (context, np.arange(len(cohorts)))), shape=(num_contexts, len(cohorts) + num_clients)
    )
    solved = linprog(
        np.concatenate((cost_s, np.full(num_clients, penalty_s))),
        A_ub=hstack((shares, -identity(num_clients)), format="csr"),
        b_ub=-owed,
        A_eq=one_each.tocsr(),
        b_eq=np.ones(num_contexts),
        method="highs",
    )
    return float(solved.fun), np.maximum(-solved.ineqlin.marginals, 0.0)
