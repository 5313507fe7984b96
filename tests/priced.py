"""Links with prices: two servers with budgets, and a deadline, for policies that choose pairs."""

from __future__ import annotations

import numpy as np

from fedroster.core.problem import Outcome, ProblemSpec, RoundContext
from fedroster.environment.hierarchical import HierarchicalNetwork
from fedroster.testing import PolicyContract


def priced_context(cost, client, server, budget, *, features=None, number=1, available=None):
    """A round by hand; all contexts are alike and all links available, if nothing else is said."""
    size = len(cost)
    return RoundContext(
        round=number,
        features=np.full((size, 2), 0.5) if features is None else np.asarray(features, np.float64),
        available=np.ones(size, np.bool_) if available is None else np.asarray(available),
        cohort_size=100,
        client=np.asarray(client, np.int64),
        server=np.asarray(server, np.int64),
        cost=np.asarray(cost, np.float64),
        budget=np.asarray(budget, np.float64),
    )


class PricedWorld(PolicyContract):
    """The contract where every client reaches both servers; equal contexts and equal prices, so that there are ties."""

    def spec(self):
        return ProblemSpec(num_clients=12, cohort_size=12, num_features=2, num_servers=2)

    def environment(self):
        return HierarchicalNetwork(num_clients=10, num_servers=2)

    def world(self, spec, round, rng):
        size = spec.num_clients * spec.num_servers
        context = priced_context(
            rng.integers(1, 5, size) * 0.5,
            np.repeat(np.arange(spec.num_clients), spec.num_servers),
            np.tile(np.arange(spec.num_servers), spec.num_clients),
            np.full(spec.num_servers, 2.5),
            features=rng.integers(0, 3, (size, spec.num_features)) / 2.0,
            number=round,
        )
        quick = rng.random(size)
        outcome = Outcome(
            exchange_time_s=rng.uniform(1.0, 2.0, size) + 2.0 * (rng.random(size) >= quick),
            expected_time_s=np.full(size, np.inf),
            expected_upload_s=np.zeros(size),
            responds=rng.random(size) < 0.9,
            deadline_s=3.0,
            participation_probability=0.9 * quick,
        )
        return context, outcome
