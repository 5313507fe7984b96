"""The best rows, and samples of rows, against sorting, closed forms and frequencies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedroster.optimization.ranking import greatest, sample_by_weight, sample_systematically
from reference import draw_orders


@given(
    st.lists(st.one_of(st.integers(0, 5), st.sampled_from([-np.inf, np.inf])), max_size=30),
    st.integers(0, 32),
    st.integers(0, 3),
)
def test_the_greatest_are_those_of_a_sort(score, size, seed):
    score = np.array(score, np.float64)
    rows = greatest(score, size, rng=np.random.default_rng(seed))
    assert rows.shape == (min(size, score.shape[0]),)
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(np.sort(score[rows])[::-1], np.sort(score)[::-1][:size])


def test_integers_are_ranked_as_integers():
    score = np.array([2**60, 2**60 + 1, 2**60 - 1])  # equal as floats
    assert greatest(score, 1, rng=np.random.default_rng(0)).tolist() == [1]


def test_ties_are_broken_evenly():
    score = np.array([1.0, 0.0, 1.0, 2.0, 1.0, 1.0])
    rng = np.random.default_rng(1)
    counts = np.bincount(np.concatenate([greatest(score, 3, rng=rng) for _ in range(4000)]), minlength=6)
    assert counts[3] == 4000
    assert counts[1] == 0
    assert chisquare(counts[[0, 2, 4, 5]]).pvalue > 0.001


def test_weights_are_sampled_one_after_the_other():
    weight, size, draws = np.array([5.0, 1.0, 2.0, 0.5]), 2, 20_000
    expected = {}
    for order, p in draw_orders(weight.tolist(), size):
        expected[tuple(sorted(order))] = expected.get(tuple(sorted(order)), 0.0) + p
    assert sum(expected.values()) == pytest.approx(1.0)
    rng = np.random.default_rng(2)
    counts = dict.fromkeys(expected, 0)
    for _ in range(draws):
        counts[tuple(sample_by_weight(weight, size, rng=rng).tolist())] += 1
    assert chisquare(list(counts.values()), [draws * p for p in expected.values()]).pvalue > 0.001
    # Negative control: drawing in proportion to the product of the weights is another distribution.
    product = {rows: np.prod(weight[list(rows)]) for rows in expected}
    wrong = [draws * value / sum(product.values()) for value in product.values()]
    assert chisquare(list(counts.values()), wrong).pvalue < 1e-6


def test_rows_without_weight_come_last_and_at_random():
    weight = np.array([0.0, 1.0, 0.0, 1e-310, 0.0])
    rng = np.random.default_rng(3)
    samples = [sample_by_weight(weight, 3, rng=rng) for _ in range(3000)]
    counts = np.bincount(np.concatenate(samples), minlength=5)
    assert counts[1] == 3000
    assert (counts[[0, 2, 4]] > 0).all()
    assert sample_by_weight(weight, 7, rng=rng).tolist() == [0, 1, 2, 3, 4]
    assert sample_by_weight(weight, 0, rng=rng).size == 0


def test_systematic_samples_include_with_the_given_probabilities():
    inclusion = np.array([1.0, 0.9, 0.05, 0.5, 0.0, 0.25, 0.3, 1.0])
    draws, rng = 20_000, np.random.default_rng(4)
    counts, pairs = np.zeros(8), 0
    for _ in range(draws):
        rows = sample_systematically(inclusion, rng=rng)
        assert rows.shape == (4,)
        assert (np.diff(rows) > 0).all()
        counts[rows] += 1
        pairs += {3, 5} <= set(rows.tolist())
    deviation = np.sqrt(draws * inclusion * (1.0 - inclusion))
    assert (np.abs(counts - draws * inclusion) <= 4.0 * deviation).all()
    assert pairs > 0  # the order is random: neighbours come together too


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40), st.integers(0, 5))
def test_systematic_samples_have_the_size_of_the_sum(weights, seed):
    inclusion = np.array(weights)
    total = np.floor(inclusion.sum())
    if total < 1.0:
        return
    inclusion *= total / inclusion.sum()
    rows = sample_systematically(inclusion, rng=np.random.default_rng(seed))
    assert rows.shape == (int(total),)
    assert (np.diff(rows) > 0).all()
    assert (inclusion[rows] > 0.0).all()


def test_probabilities_a_rounding_error_below_one():
    inclusion = np.full(6, np.nextafter(1.0, 0.0))
    inclusion[0] = 1.0
    assert sample_systematically(inclusion, rng=np.random.default_rng(5)).tolist() == list(range(6))
