"""Sampling by the clients' numbers of samples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from fedroster.core.problem import ProblemSpec, RoundContext
from fedroster.core.streams import Streams
from fedroster.policies import SizeWeighted
from rounds import report


def inclusion(weight, size):
    """Probability of each client to be in the cohort, summed over all orders of successive draws."""
    chance = np.zeros(len(weight))
    for order in itertools.permutations(range(len(weight)), size):
        left, p = sum(weight), 1.0
        for client in order:
            p *= weight[client] / left
            left -= weight[client]
        chance[list(order)] += p
    return chance


def frequencies(policy, state, context, draws=8000):
    counts = np.zeros(context.num_links)
    for draw in range(draws):
        counts[policy.select(state, context, rng=Streams(6).at("policy", draw)).links] += 1
    return counts


@pytest.mark.parametrize("by", ["feedback", "context"])
def test_clients_are_drawn_by_size(by):
    sizes = np.array([10.0, 20.0, 40.0, 80.0, 30.0])
    here = np.array([True, True, True, True, False])
    policy = SizeWeighted() if by == "feedback" else SizeWeighted(size_feature=1)
    state = policy.init(ProblemSpec(5, 2, 2), rng=np.random.default_rng(0))
    if by == "feedback":
        state = policy.update(state, report(range(5), num_samples=sizes))
    context = RoundContext(1, np.column_stack((np.ones(5), sizes)), here, 2)
    counts = frequencies(policy, state, context)
    assert counts[4] == 0
    expected = inclusion(sizes[here].tolist(), 2) * 8000
    # A multinomial test is conservative for counts of sets.
    assert chisquare(counts[here], expected).pvalue > 0.001
    assert chisquare(counts[here], np.full(4, 4000.0)).pvalue < 1e-6  # negative control: equal chances
