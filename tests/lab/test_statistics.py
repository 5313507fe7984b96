"""Intervals and tests, against SciPy and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from fedroster.lab.statistics import (
    Interval,
    band,
    effect_interval,
    interval_of,
    mean_interval,
    median_interval,
    one_sided_p,
    prediction_interval,
    seeds_needed,
    signed,
    which_test,
)


@pytest.mark.parametrize("seeds", [2, 3, 10, 100])
def test_intervals_are_students(seeds):
    x = np.random.default_rng(seeds).normal(3.0, 2.0, seeds)
    ours = mean_interval(x)
    low, high = stats.t.interval(0.95, seeds - 1, loc=x.mean(), scale=stats.sem(x))
    assert (ours.mean, ours.low, ours.high) == pytest.approx((x.mean(), low, high), rel=1e-12)


def test_one_seed_has_no_width():
    assert mean_interval([2.5]) == Interval(2.5, 2.5, 2.5)
    values = np.array([[1.0, 4.0]])
    assert [edge.tolist() for edge in band(values)] == [[1.0, 4.0]] * 3


def test_a_band_is_an_interval_at_every_point():
    values = np.random.default_rng(0).normal(size=(5, 7))
    bands = np.stack(band(values))
    for point in range(7):
        own = mean_interval(values[:, point])
        np.testing.assert_allclose(bands[:, point], [own.mean, own.low, own.high], rtol=1e-12)


@pytest.mark.parametrize("shift", [-2.0, -0.3, 0.0, 0.3, 2.0])
@pytest.mark.parametrize("seeds", [5, 8, 30])
def test_p_values_are_those_of_a_paired_t_test_or_larger(seeds, shift):
    """The larger of Student's and Hall's counts, with a little more skewness than there seems to be."""
    before, after = np.random.default_rng(seeds).normal(size=(2, seeds))
    advantage = after - before + shift
    students = stats.ttest_rel(after + shift, before, alternative="greater").pvalue
    assert one_sided_p(advantage) >= students * (1.0 - 1e-9)


def test_halls_transformation_by_hand():
    x = np.array([0.1, 0.3, 0.4, 0.5, 3.9])
    u = x.mean() / x.std(ddof=1)
    skew = ((x - x.mean()) ** 3).mean() / x.std(ddof=1) ** 3
    hall = math.sqrt(5) * (u + skew * u**2 / 3 + skew**2 * u**3 / 27 + skew / 30)
    assert hall > math.sqrt(5) * u  # a long tail upwards: t is too careful one way, too bold the other way
    assert one_sided_p(x) == pytest.approx(stats.t.sf(math.sqrt(5) * u, 4))
    y = 1.3 - x
    u, skew = y.mean() / y.std(ddof=1), -skew - 0.4
    hall = math.sqrt(5) * (u + skew * u**2 / 3 + skew**2 * u**3 / 27 + skew / 30)
    assert one_sided_p(y) == pytest.approx(stats.t.sf(hall, 4))
    assert one_sided_p(y) > stats.t.sf(math.sqrt(5) * u, 4)


@pytest.mark.parametrize(
    ("advantage", "test"),
    [
        ([1.0, 2.0, 3.5, 4.0], "sign"),  # too few
        ([1.0, 2.0, 3.5, 4.0, 7.0], "t"),
        ([5.0, 5.0, 5.0, 5.0, 5.0, 5.0], "sign"),  # no spread
        ([5.0, 5.0 + 1e-12, 5.0 - 1e-12, 5.0, 5.0, 5.0], "sign"),  # none but for rounding
        ([5.0, 10.0, 5.0, 0.0, -5.0, 10.0], "sign"),  # coarse
        ([1.0, 2.0, 3.5, 4.0, math.inf], "sign"),  # one never got there
        ([1.0, 2.0, 3.5, 4.0, math.nan], "sign"),  # two never got there
    ],
)
def test_which_test_it_is(advantage, test):
    assert which_test(advantage) == test


@pytest.mark.parametrize(
    ("advantage", "p"),
    [
        ([5.0, 5.0], 0.25),
        ([5.0, 5.0, 5.0], 0.125),
        ([-0.5, -0.5], 1.0),
        ([0.0, 0.0, 0.0], 1.0),
        ([3.0], 0.5),
        ([-3.0], 1.0),
        ([math.inf, math.inf, math.nan, 0.0], 11 / 16),  # ties speak against
        ([math.inf, -math.inf, 1.0, 2.0], 5 / 16),
        ([5.0] * 10, 2**-10),
    ],
)
def test_the_sign_test_by_hand(advantage, p):
    assert one_sided_p(advantage) == pytest.approx(p)


def test_two_seeds_are_never_certain():
    for advantage in ([5.0, 5.0], [5.0, 5.001], [1e9, 1e-9]):
        assert one_sided_p(advantage) >= 0.25


def test_where_one_more_value_lies():
    """The values' variance is 7, and the 0.95 quantile of t with two degrees of freedom 2.919986."""
    for known in (0.0, 3.0):
        half = 2.919986 * math.sqrt(7.0 + 7.0 / 3.0 + known**2)
        assert prediction_interval([1.0, 2.0, 6.0], known=known) == pytest.approx((3.0 - half, 3.0 + half))


def test_the_median_and_its_interval():
    # 2 P(Bin(6, 1/2) = 0) = 1/32 <= 0.05: the ends are the least and the largest
    assert median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == Interval(3.5, 1.0, 6.0)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == Interval(3.0, -math.inf, math.inf)  # of five 1/16
    assert median_interval([1.0, 2.0, math.inf, 3.0, 4.0, math.inf]) == Interval(3.5, 1.0, math.inf)
    assert median_interval([math.inf, math.inf, math.inf]).mean == math.inf
    assert median_interval([math.inf, 1.0, -math.inf, 1.0, -math.inf, math.inf]).mean == 1.0
    assert median_interval([math.inf, -math.inf]) == Interval(0.0, -math.inf, math.inf)  # each missed it once


def test_the_interval_of_runs_that_all_got_there_is_the_means():
    assert interval_of([1.0, 2.0, 4.0]) == mean_interval([1.0, 2.0, 4.0])
    assert interval_of([1.0, math.nan, 4.0]) == median_interval([1.0, 0.0, 4.0])


_SAMPLES = {
    "normal": lambda rng, n: rng.normal(0.4, 1.0, n),
    "skewed": lambda rng, n: rng.exponential(1.0, n) - 0.5,
    "coarse": lambda rng, n: 5.0 * rng.integers(-1, 3, n),
    "never there": lambda rng, n: np.where(rng.random(n) < 0.2, math.inf, rng.normal(0.5, 1.0, n)),
    "ties": lambda rng, n: np.where(rng.random(n) < 0.3, math.nan, rng.normal(0.8, 1.0, n)),
}


@pytest.mark.parametrize("sample", _SAMPLES.values(), ids=_SAMPLES)
@pytest.mark.parametrize("level", [0.2, 0.05, 0.001])
def test_an_interval_excludes_zero_where_the_test_rejects_and_nowhere_else(sample, level):
    rng = np.random.default_rng(5)
    for _ in range(60):
        x = sample(rng, int(rng.integers(3, 30)))
        interval = effect_interval(x, level, 2.0 * level)
        assert (interval.low > 0.0) == (one_sided_p(x) <= level)
        assert (interval.high < 0.0) == (one_sided_p(-x) <= 2.0 * level)
        assert interval.low <= interval.high


def test_an_interval_holds_the_effects_that_are_not_rejected():
    x = np.random.default_rng(1).gamma(2.0, 1.0, 12)
    found = effect_interval(x, 0.01, 0.01)
    for end, sign in ((found.low, 1.0), (found.high, -1.0)):
        assert one_sided_p(sign * (x - end)) == pytest.approx(0.01, rel=1e-6)
    assert effect_interval(x[:3], 0.01, 0.01).low == -math.inf  # three seeds never say less than 1/8
    assert effect_interval([5.0] * 10, 0.01, 0.01) == Interval(5.0, 5.0, 5.0)


@pytest.mark.parametrize(("shift", "level"), [(1.5, 0.05 / 22), (0.8, 0.01), (3.2, 0.05 / 22)])
def test_as_many_seeds_as_it_says_find_the_effect(shift, level):
    """The planned number has a power of about 80 %."""
    x = np.random.default_rng(0).normal(size=8)
    x = shift + (x - x.mean()) / x.std(ddof=1)
    count = math.ceil(seeds_needed(x, level))
    power = stats.nct.sf(stats.t.isf(level, count - 1), count - 1, shift * math.sqrt(count))
    assert 0.77 <= power <= 0.97


def test_no_number_of_seeds_shows_what_is_not_there():
    assert seeds_needed([-1.0, 0.5, 0.1, 0.2, 0.3, -2.0], 0.05) == math.inf
    assert seeds_needed([0.0, 0.0], 0.05) == math.inf
    assert seeds_needed([1.0, -1.0], 0.05) == math.inf


def test_a_sign_test_needs_enough_seeds_for_its_least_p():
    assert seeds_needed([5.0] * 8, 0.001) >= math.log2(1000)
    assert seeds_needed([5.0] * 4 + [0.0] * 4, 0.001) == math.inf  # every other seed is a tie: the median is 0


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (0.04, ".1f", "0.0"),
        (-np.inf, ".1f", "-inf"),
        (-0.04, ".1f", "0.0"),
        (-0.123, ".0%", "-12%"),
        (-0.001, ".0%", "0%"),
    ],
)
def test_what_is_shown_as_no_difference_has_no_sign(value, form, text):
    assert signed(value, form) == text
