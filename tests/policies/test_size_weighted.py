"""Sampling by the clients' numbers of samples."""

import numpy as np
import pytest
from scipy.stats import chisquare

from fedroster.core.problem import ProblemSpec, RoundContext
from fedroster.policies import SizeWeighted
from reference import draw_orders
from rounds import counts, report


@pytest.mark.parametrize("by", ["feedback", "context"])
def test_clients_are_drawn_by_size(by):
    sizes = np.array([10.0, 20.0, 40.0, 80.0, 30.0])
    here = np.array([True, True, True, True, False])
    policy = SizeWeighted() if by == "feedback" else SizeWeighted(size_feature=1)
    state = policy.init(ProblemSpec(5, 2, 2), rng=np.random.default_rng(0))
    if by == "feedback":
        state = policy.update(state, report(range(5), num_samples=sizes))
    context = RoundContext(1, np.column_stack((np.ones(5), sizes)), here, 2)
    found, expected = counts(policy, state, context, 4000, seed=6), np.zeros(4)
    assert found[4] == 0
    for order, p in draw_orders(sizes[here].tolist(), 2):
        expected[list(order)] += 4000 * p
    # A multinomial test is conservative for counts of sets.
    assert chisquare(found[here], expected).pvalue > 0.001
    assert chisquare(found[here], np.full(4, 2000.0)).pvalue < 1e-6  # negative control: equal chances
