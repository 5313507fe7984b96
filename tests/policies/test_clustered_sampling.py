"""Clustered sampling: its urns exactly, the theorem on its variance for every instance, and the law of its draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroster.policies import ClusteredSampling
from fedroster.policies.clustered_sampling import pour
from reference import pour_urns
from rounds import drawn_weights

SIZES = st.lists(st.integers(1, 1000), min_size=1, max_size=12)


def urns(sizes, num_urns):
    """Mass of each client in each urn: how far its part of the line lies in it."""
    order, ends = pour(np.array(sizes, np.float64) / sum(sizes), num_urns)
    starts, found = np.append(0.0, ends[:-1]), np.zeros((num_urns, len(sizes)))
    for client, start, end in zip(order, starts, ends, strict=True):
        urn = np.arange(num_urns)
        found[:, client] = np.clip(np.minimum(end, urn + 1) - np.maximum(start, urn), 0.0, None)
    return found


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([4, 3, 2, 1], [[0.8, 0.2, 0, 0], [0, 0.4, 0.4, 0.2]]),
        ([4, 2, 1, 1, 1, 1], [[1, 0, 0, 0, 0, 0], [0.2, 0.6, 0.2, 0, 0, 0], [0, 0, 0.1, 0.3, 0.3, 0.3]]),
        ([7, 1, 1, 1], [[1, 0, 0, 0], [1, 0, 0, 0], [0.1, 0.3, 0.3, 0.3]]),
    ],
)
def test_urns_by_hand(sizes, expected):
    np.testing.assert_allclose(urns(sizes, len(expected)), expected, atol=1e-9)


@settings(max_examples=300)
@given(SIZES, st.integers(1, 12))
def test_urns_are_those_of_the_paper_and_vary_no_more_than_independent_draws(sizes, num_urns):
    """Rows sum to 1, columns to m p; Var w <= p (1 - p) / m and pi >= 1 - (1 - p)^m (Fraboni et al. 2021), always."""
    found, exact = urns(sizes, num_urns), np.array(pour_urns(sizes, num_urns), np.float64)
    share = np.array(sizes) / sum(sizes)
    np.testing.assert_allclose(found, exact, atol=1e-9)  # of equal sizes, both pour the lower index first
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found.sum(axis=0), num_urns * share, atol=1e-9)
    variance = (found * (1.0 - found)).sum(axis=0) / num_urns**2
    assert (variance <= share * (1.0 - share) / num_urns + 1e-9).all()
    assert (1.0 - np.prod(1.0 - found, axis=0) >= 1.0 - (1.0 - share) ** num_urns - 1e-9).all()


@pytest.mark.parametrize(
    ("scheme", "inclusion", "variance"),
    [
        ("clustered", [0.8, 0.52, 0.4, 0.2], [0.04, 0.10, 0.06, 0.04]),
        ("multinomial", [0.64, 0.51, 0.36, 0.19], [0.12, 0.105, 0.08, 0.045]),
        ("systematic", [0.8, 0.6, 0.4, 0.2], [0.04, 0.06, 0.06, 0.04]),
    ],
)
def test_draws_have_the_means_the_variances_and_the_inclusion_of_their_scheme(scheme, inclusion, variance):
    found = drawn_weights(ClusteredSampling(scheme), [40, 30, 20, 10], 2)
    np.testing.assert_allclose(found.mean(axis=0), [0.4, 0.3, 0.2, 0.1], atol=0.02)
    np.testing.assert_allclose((found > 0.0).mean(axis=0), inclusion, atol=0.03)
    np.testing.assert_allclose(found.var(axis=0), variance, atol=0.008)


def test_a_client_with_most_of_the_data_is_drawn_more_than_once():
    found = drawn_weights(ClusteredSampling(), [7, 1, 1, 1], 3, rounds=200)
    assert (found[:, 0] >= 2 / 3).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    even = drawn_weights(ClusteredSampling("systematic"), [7, 1, 1, 1], 3)
    np.testing.assert_allclose(even[:, 0], 0.7)
    assert ((even > 0.0).sum(axis=1) == 3).all()
    np.testing.assert_allclose(even.mean(axis=0), [0.7, 0.1, 0.1, 0.1], atol=0.01)


@pytest.mark.parametrize("scheme", ["clustered", "multinomial", "systematic"])
def test_shares_are_those_of_the_clients_that_are_there(scheme):
    found = drawn_weights(ClusteredSampling(scheme), [40, 30, 20, 10], 2, available=[False, True, True, True])
    np.testing.assert_allclose(found.mean(axis=0), [0.0, 0.5, 1 / 3, 1 / 6], atol=0.02)
    few = drawn_weights(ClusteredSampling(scheme), [40, 30, 20, 10], 2, rounds=3, available=[False, False, True, True])
    np.testing.assert_allclose(few, [[0.0, 0.0, 2 / 3, 1 / 3]] * 3)
