r"""The yardstick of flat policies: an estimate of the least mean round time that a stationary policy can have.

A stationary policy that knows the mean times and their scatter decides by the round's context alone.  Over K sampled
contexts its best is the value of a linear program over the shares :math:`f_{s,S}` of cohort S in context s:

.. math:: \min \frac1K \sum_{s,S} f_{s,S}\, \mathbb E \max_{n \in S} \tau_{s,n}\quad\text{s.t.}\quad
    \sum_S f_{s,S} = 1,\quad \frac1K \sum_{s,\,S \ni n} f_{s,S} \ge \beta

Cohorts are generated as columns: the dual value of a client's share is its price :math:`p_n`, and the cohort of least
expected maximum minus prices is the one that may improve the program.  With F the distribution of the ratios of
realised to mean times :math:`\mu_n`, the expected maximum is submodular in S:

.. math:: \mathbb E \max_{n \in S} \tau_n = \int_0^\infty 1 - \prod_{n \in S} F(x / \mu_n)\, dx
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, hstack, identity

from fedroster.errors import ConfigurationError
from fedroster.networks.flat import FlatNetwork, scatter
from fedroster.policies import Floor
from fedroster.simulation import simulate
from fedroster.types import FloatArray, IntArray, Streams

_SETTLED = 2e-3  # gap between the program and its Lagrangian bound
_ATTEMPTS = 80
_PENALTY = 10.0
_SCATTER_SAMPLES = 200_000
_STEP = 1.0 / 32.0  # neighbouring times of the integral are a factor of exp(1/32) apart
_IMPROVEMENTS = 4


class _OneContext:
    """Cohorts of one context: how long they take, and which is worth most.

    Attributes:
        rows: Clients that are available, by their mean times, shape (rows,).
    """

    def __init__(self, time_s: FloatArray, ratios: FloatArray) -> None:
        """Mean times, shape (clients,), seconds, infinite where unavailable; and ascending samples of the ratios."""
        there = np.flatnonzero(np.isfinite(time_s))
        self.rows = there[np.argsort(time_s[there], kind="stable")]
        mean_s = time_s[self.rows]
        low = math.log(mean_s[0] * ratios[0]) - _STEP
        high = math.log(mean_s[-1] * ratios[-1]) + _STEP
        self._points = np.exp(np.arange(low, high + _STEP, _STEP))
        self._below = np.searchsorted(ratios, self._points / mean_s[:, None], side="right") / ratios.shape[0]

    def lasts_s(self, cdf: FloatArray) -> FloatArray:
        """Integral of 1 - F over times, by the trapezoidal rule, seconds, for distributions of shape (..., points)."""
        missed = 1.0 - 0.5 * (cdf[..., 1:] + cdf[..., :-1])
        lasts_s: FloatArray = self._points[0] + (missed * np.diff(self._points)).sum(axis=-1)
        return lasts_s

    def cohort(self, price_s: FloatArray, size: int) -> tuple[IntArray, float]:
        """A cohort of small expected maximum minus prices, ascending, and how long its round lasts, seconds.

        For every slowest member the most valuable clients that are not slower; the best of these cohorts is improved:
        every client is charged what it adds to the round, and the cohort chosen again, as long as the objective falls
        (the step of Iyer, Jegelka and Bilmes, ICML 2013, for submodular minimisation).
        """
        price_s, count = price_s[self.rows], self.rows.shape[0]
        size = min(size, count)
        slower = np.arange(count) > np.arange(size - 1, count)[:, None]
        worth = np.where(slower, -np.inf, price_s)
        cohorts = np.argpartition(worth, count - size, axis=1)[:, count - size :]
        lasts_s = self.lasts_s(self._below[cohorts].prod(axis=1))
        best = int(np.argmin(lasts_s - price_s[cohorts].sum(axis=1)))
        chosen, last_s = cohorts[best], float(lasts_s[best])
        for _ in range(_IMPROVEMENTS):
            adds_s = self.lasts_s(self._below[chosen].prod(axis=0) * self._below) - last_s
            for place, row in enumerate(chosen):
                adds_s[row] = last_s - self.lasts_s(self._below[np.delete(chosen, place)].prod(axis=0))
            other = np.argpartition(price_s - adds_s, count - size)[count - size :]
            other_s = float(self.lasts_s(self._below[other].prod(axis=0)))
            if other_s - price_s[other].sum() >= last_s - price_s[chosen].sum():
                break
            chosen, last_s = other, other_s
        return np.sort(self.rows[chosen]), last_s


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
    ratios = np.sort(scatter(streams.at("scatter").random(_SCATTER_SAMPLES), network.noise, network.noise_shape))
    times_s = [
        np.where(played.context.available, played.outcome.expected_time_s, np.inf)
        for played in simulate(Floor(beta=rate), network, rounds=num_contexts, seed=seed)
    ]
    there = np.isfinite(times_s)
    owed = np.minimum(rate, there.mean(axis=0))  # a sample may hide a client; it is owed what can be had
    price_s = np.where(there, times_s, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1) / network.cohort_size
    columns: list[dict[bytes, tuple[IntArray, float]]] = [{} for _ in times_s]
    no_client = np.zeros(0, np.int64), 0.0
    rounds = [_OneContext(time_s, ratios) if here.any() else None for time_s, here in zip(times_s, there, strict=True)]
    stable_s, best_bound_s = price_s, -math.inf
    value_s = math.inf
    for _ in range(_ATTEMPTS):
        bound_s = float(owed @ price_s)
        for known, here in zip(columns, rounds, strict=True):
            cohort, cost_s = here.cohort(price_s, network.cohort_size) if here else no_client
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
