"""The cohort of least expected round time: against Monte Carlo, closed forms, and every cohort of small instances."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import fedroster.optimization.expected_maximum as module
from fedroster.core.compiled import Kernel
from fedroster.optimization.expected_maximum import (
    GRID_STEP,
    RATIO_BINS,
    _candidates,
    _expected_maximum,
    _log,
    _marginal,
    _marginal_of_slowest,
    batch_factor,
    expected_maximum,
    least_expected_maximum,
    most_urgent,
    ratio_bins,
    ratio_table,
    tie_key,
)
from reference import brute_force_p4, inclusion_p_value, p4_objective

NOTHING = np.zeros(RATIO_BINS)
EDGES = np.exp((np.arange(RATIO_BINS + 1) - RATIO_BINS // 2) / 8.0)


def ratios(shape, rng, num):
    """Positive numbers of mean 1."""
    if shape == "uniform":
        return 2.0 * (1.0 - rng.random(num))
    if shape == "half-normal":
        return np.abs(rng.normal(size=num)) * math.sqrt(math.pi / 2.0)
    if shape == "log-normal":
        return rng.lognormal(-0.125, 0.5, num)
    if shape == "bimodal":
        return np.where(rng.random(num) < 0.8, 0.7, 2.2)
    return np.ones(num)


SHAPES = ["uniform", "half-normal", "log-normal", "bimodal", "constant"]


def histogram(shape, *, seed=0, num=20_000):
    counts = np.bincount(ratio_bins(ratios(shape, np.random.default_rng(seed), num)), minlength=RATIO_BINS)
    return counts.astype(float)


def cohort_means(times, counts, size):
    """Every cohort of a size and its expected maximum, by summing 1 - F over a fine grid; from the definition only."""
    below = np.concatenate(([0.0], np.cumsum(counts) / counts.sum()))
    points = np.exp(np.linspace(math.log(min(times)) - 3.0, math.log(max(times)) + 3.0, 300))
    cdf = np.stack([np.interp(points / t, EDGES, below) for t in times])
    cohorts = np.array(list(itertools.combinations(range(len(times)), size)))
    whole = cdf[cohorts].prod(axis=1)
    means = points[0] + (np.diff(points) * (1.0 - 0.5 * (whole[:, 1:] + whole[:, :-1]))).sum(axis=1)
    return cohorts, means


def choose(times, prices, size, counts=NOTHING, *, must=None, seed=0):
    links = least_expected_maximum(
        np.asarray(times, float),
        np.asarray(prices, float),
        cohort_size=size,
        counts=counts,
        rng=np.random.default_rng(seed),
        must=must,
    )
    assert links.dtype == np.int64
    assert (np.diff(links) > 0).all()
    return links


# --- ratios --------------------------------------------------------------------------------------------------------


def test_ratio_bins_and_their_edges():
    inside = np.sqrt(EDGES[1:] * EDGES[:-1])
    np.testing.assert_array_equal(ratio_bins(inside), np.arange(RATIO_BINS))
    np.testing.assert_array_equal(ratio_bins(EDGES[:-1] * (1 + 1e-12)), np.arange(RATIO_BINS))
    np.testing.assert_array_equal(ratio_bins(EDGES[1:] * (1 - 1e-12)), np.arange(RATIO_BINS))
    outside = np.array([0.0, 1e-300, math.exp(-4.1), math.exp(4.1), 1e300])
    np.testing.assert_array_equal(ratio_bins(outside), [0, 0, 0, RATIO_BINS - 1, RATIO_BINS - 1])
    assert ratio_bins(np.empty(0)).shape == (0,)


def test_ratio_table_of_nothing_is_a_step_at_one():
    table, log_table, first = ratio_table(NOTHING)
    np.testing.assert_array_equal(table, [0.0, 1.0])
    assert log_table[0] < -50.0
    assert log_table[1] == 0.0
    assert first == -1  # from exp(-1/8) to 1


@pytest.mark.parametrize("bin", [0, 1, 32, RATIO_BINS - 1])
def test_ratio_table_of_one_bin(bin):
    counts = np.zeros(RATIO_BINS)
    counts[bin] = 7.0
    table, log_table, first = ratio_table(counts)
    np.testing.assert_array_equal(table, [0.0, 1.0])
    assert log_table[1] == 0.0
    assert first == bin - RATIO_BINS // 2
    mean = batch_factor(table, first, 1)
    assert EDGES[bin] < mean < EDGES[bin + 1]


def test_interpreted_and_compiled_are_the_same_bit_for_bit():
    rng = np.random.default_rng(4)
    tabulate, factor = Kernel(ratio_table.py_func, {}), Kernel(batch_factor.py_func, {})
    for size in range(1, 60):
        counts = rng.random(RATIO_BINS) * (rng.random(RATIO_BINS) < 0.5)
        found = []
        for table_of, factor_of in ((tabulate.interpret, factor.interpret), (tabulate, factor)):
            table, log_table, first = table_of(counts)
            found.append((table.tobytes(), log_table.tobytes(), first, float(factor_of(table, first, size)).hex()))
        assert found[0] == found[1]


def test_ratio_table_is_the_distribution_at_the_upper_edges():
    counts = np.zeros(RATIO_BINS)
    counts[[30, 31, 33, 36]] = [10.0, 20.0, 30.0, 40.0]
    table, log_table, first = ratio_table(counts)
    assert first == -2
    np.testing.assert_allclose(table, [0.0, 0.1, 0.3, 0.3, 0.6, 0.6, 0.6, 1.0], rtol=1e-14)
    np.testing.assert_allclose(log_table[1:], np.log(table[1:]), rtol=1e-14, atol=1e-15)
    assert log_table[0] < -50.0


def test_ratio_table_leaves_out_what_hardly_ever_is_less():
    """Where less than 3 % lies below, F is zero; no ratio is lost above."""
    counts = np.zeros(RATIO_BINS)
    counts[[5, 20, 30, 40]] = [1.0, 1.0, 1.0, 97.0]
    table, _, first = ratio_table(counts)
    assert first == 30 - RATIO_BINS // 2
    assert table[1] == pytest.approx(0.03)
    assert table[-1] == 1.0
    assert table.shape[0] == 12
    counts[30] = 0.9
    assert ratio_table(counts)[2] == 40 - RATIO_BINS // 2


# --- expected maxima -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 8, 30])
@pytest.mark.parametrize("mean_s", [0.02, 1.0, 5000.0])
def test_equal_clients_with_uniform_ratios(size, mean_s):
    """E max of k numbers of U(0, 2) is 2k / (k + 1); the last bin ends at 2.117, which large cohorts notice."""
    counts = histogram("uniform", num=400_000)
    exact = 2.0 * size / (size + 1.0)
    grid = 0.015 if size < 10 else 0.035
    assert expected_maximum(np.full(size, mean_s), counts) / mean_s == pytest.approx(exact, rel=grid)
    table, _, first = ratio_table(counts)
    assert batch_factor(table, first, size) == pytest.approx(exact, rel=grid)


@pytest.mark.parametrize("shape", SHAPES[:4])
def test_expected_maximum_against_monte_carlo(shape):
    counts = histogram(shape, num=400_000)
    rng = np.random.default_rng(4)
    for size in (1, 2, 5, 20):
        times = rng.lognormal(1.0, 0.8, size)
        drawn = (times * ratios(shape, rng, 40_000 * size).reshape(-1, size)).max(axis=1)
        noise = 4.5 * drawn.std() / math.sqrt(40_000)
        # Within a bin the ratios are taken to be evenly spread: two atoms are each moved by up to half a bin.
        grid = 0.06 if shape == "bimodal" else 0.02
        assert abs(expected_maximum(times, counts) - drawn.mean()) < noise + grid * drawn.mean()


def test_expected_maximum_does_not_depend_on_the_grid_of_times():
    counts = histogram("uniform")
    base = expected_maximum(np.array([1.0, 2.0, 3.0]), counts)
    for factor in np.exp(np.linspace(0.0, GRID_STEP, 7)):
        assert expected_maximum(factor * np.array([1.0, 2.0, 3.0]), counts) == pytest.approx(factor * base, rel=1e-3)


def test_batch_factor_grows_with_the_cohort():
    table, _, first = ratio_table(histogram("log-normal"))
    factors = [batch_factor(table, first, size) for size in range(1, 60)]
    assert (np.diff(factors) > 0).all()
    assert factors[0] == pytest.approx(1.0, abs=0.01)
    drawn = ratios("log-normal", np.random.default_rng(1), 50 * 40_000).reshape(-1, 50).max(axis=1).mean()
    assert factors[49] == pytest.approx(drawn, rel=0.02)


# --- every cohort of small instances -------------------------------------------------------------------------------


def instance(rng):
    """Prices of any size, or about a client's part of a round among its like, where every cohort is a near tie."""
    num = int(rng.integers(2, 11))
    size = int(rng.integers(1, min(num, 5) + 1))
    times = rng.lognormal(1.0, rng.choice([0.3, 0.8, 1.5]), num)
    if rng.random() < 0.3:
        prices = rng.choice([0.05, 0.3, 1.0]) * rng.exponential(1.0, num) * times - 0.1
    else:
        prices = rng.uniform(0.8, 2.0) / size * times * rng.lognormal(0.0, 0.5, num)
    must = np.zeros(num, np.bool_)
    if rng.random() < 0.4:
        must[rng.permutation(num)[: rng.integers(0, size + 1)]] = True
    return times, prices, size, must


def test_against_every_cohort():
    """Measured over 6,000 instances: 95 % exactly, mean gap 0.1 % of the longer round, largest 8 %."""
    rng = np.random.default_rng(0)
    tables = [histogram(shape) for shape in SHAPES]
    gaps, blind = [], []
    for case in range(300):
        times, prices, size, must = instance(rng)
        counts = tables[case % len(tables)]
        links = choose(times, prices, size, counts, must=must, seed=case)
        assert links.shape == (size,)
        assert must[links].sum() == must.sum()
        cohorts, means = cohort_means(times, counts, size)
        allowed = np.isin(cohorts, np.flatnonzero(must)).sum(axis=1) == must.sum()
        values = np.where(allowed, means - prices[cohorts].sum(axis=1), np.inf)

        def gap(cohort, cohorts=cohorts, means=means, values=values):
            found = (cohorts == np.sort(cohort)).all(axis=1)
            return ((values[found] - values.min()) / np.maximum(means[found], means[values.argmin()]))[0]

        gaps.append(gap(links))
        blind.append(gap(np.lexsort((times - prices, ~must))[:size]))
    assert min(gaps) >= 0.0
    assert np.mean(np.array(gaps) == 0.0) > 0.9
    assert np.mean(gaps) < 0.0015
    assert max(gaps) < 0.06
    assert np.mean(blind) > 0.01  # negative control: least times net of prices, whatever other clients there are


def distribution(members, log_table):
    """Logarithm of the distribution of a cohort's maximum, by its number in each bin, and the slowest bin."""
    log_cdf = np.zeros(len(members) + log_table.shape[0])
    for b in np.flatnonzero(members):
        log_cdf[b : b + log_table.shape[0]] += members[b] * log_table
    return log_cdf, np.flatnonzero(members)[-1]


def test_the_sweep_alone(monkeypatch):
    """Without improvement: the best of the cohorts "most valuable among those no slower", with those that must."""
    monkeypatch.setattr(module, "_IMPROVEMENTS", 0)
    rng = np.random.default_rng(2)
    table, log_table, first = ratio_table(histogram("half-normal"))
    width = table.shape[0]
    for case in range(150):
        times, prices, size, must = instance(rng)
        bins = bins_of(times)
        num_bins = bins.max() + 1
        points = times.min() * np.exp(GRID_STEP * (first + np.arange(num_bins + width)))

        def objective(cohort, bins=bins, num_bins=num_bins, points=points, prices=prices):
            log_cdf, slowest = distribution(np.bincount(bins[cohort], minlength=num_bins), log_table)
            cdf = np.zeros_like(log_cdf)
            return _expected_maximum(log_cdf, points, slowest, width, cdf) - prices[cohort].sum()

        forced, free = np.flatnonzero(must), np.flatnonzero(~must)
        best = math.inf
        for bin in range(num_bins):
            able = free[bins[free] <= bin]
            if able.size >= size - forced.size:
                able = able[np.argsort(-prices[able])][: size - forced.size]
                best = min(best, objective(np.concatenate((forced, able))))
        key = np.uint64(case)
        chosen = module.choose_cohort.py_func(times, prices, must, size, table, log_table, first, key)
        assert objective(chosen) == pytest.approx(best, abs=1e-6)


def test_marginal_costs():
    """What a client adds, or has added, is a difference of two expected maxima on the grid."""
    table, log_table, first = ratio_table(histogram("log-normal"))
    width, num_bins = table.shape[0], 12
    points = np.exp(GRID_STEP * (first + np.arange(num_bins + width)))

    def mean_of(members):
        log_cdf, slowest = distribution(members, log_table)
        cdf = np.zeros_like(log_cdf)
        return _expected_maximum(log_cdf, points, slowest, width, cdf), slowest, cdf, log_cdf

    members = np.array([3, 0, 0, 1, 0, 2, 0, 0, 2, 0, 0, 0])
    whole, slowest, cdf, _ = mean_of(members)
    for bin in range(num_bins):
        one = np.arange(num_bins) == bin
        adds = _marginal(cdf, points, slowest, width, table, bin, False)
        assert adds == pytest.approx(mean_of(members + one)[0] - whole, rel=0.02, abs=2e-3)
        if members[bin]:
            added = _marginal(cdf, points, slowest, width, table, bin, True)
            assert added == pytest.approx(whole - mean_of(members - one)[0], rel=0.02, abs=2e-3)
            assert added > adds
    for second in (10, 5, 0, -1):  # one alone in the slowest bin, the others' slowest near, far, or missing
        others = (np.arange(num_bins) == second).astype(np.int64)
        whole, slowest, _, log_cdf = mean_of(others + (np.arange(num_bins) == num_bins - 1))
        added = _marginal_of_slowest(log_cdf, points, slowest, second, log_table, table)
        rest = mean_of(others)[0] if second >= 0 else 0.0
        assert added == pytest.approx(whole - rest, rel=1e-12)


def test_step_ratios_are_p4():
    """Nothing known: the optimum of Huang et al.'s P4, up to the grid's factor of exp(1/8) on the largest time."""
    rng = np.random.default_rng(7)
    same = 0
    for case in range(400):
        num = int(rng.integers(1, 10))
        size = int(rng.integers(1, 6))
        times, prices = rng.lognormal(0.0, 1.0, num), rng.exponential(rng.choice([0.1, 1.0]), num)
        available = rng.random(num) < 0.8
        links = choose(np.where(available, times, np.inf), prices, size, seed=case)
        assert links.shape[0] == min(size, available.sum())
        assert available[links].all()
        best, winners = brute_force_p4(times, prices, available, size, 1.0)
        if not available.any():
            continue
        slowest = max(times[links].max(), *(times[winner].max() for winner in winners))
        assert p4_objective(times, prices, links, 1.0) <= best + (math.exp(GRID_STEP) - 1.0) * slowest + 1e-9
        same += links.tolist() in winners
    assert same > 0.85 * 400


def test_slow_clients_are_batched():
    """Of two fast and two slow ones with fair prices, two alike go together, never one of each."""
    counts = histogram("constant")
    assert choose([1.0, 8.0, 1.0, 8.0], [0.5, 4.8, 0.5, 4.8], 2, counts).tolist() == [1, 3]
    assert choose([1.0, 8.0, 1.0, 8.0], [0.5, 3.7, 0.5, 3.7], 2, counts).tolist() == [0, 2]


def test_a_slow_one_that_must_takes_others_along():
    counts = histogram("uniform")
    times, prices = np.array([1.0, 10.0, 1.0, 10.0]), np.array([0.5, 0.0, 0.5, 2.5])
    assert choose(times, prices, 2, counts).tolist() == [0, 2]
    must = np.array([False, True, False, False])
    assert choose(times, prices, 2, counts, must=must).tolist() == [0, 1]
    # A second slow one adds a third of the first one's 10 s: worth it above that price.
    assert choose(times, [0.5, 0.0, 0.5, 4.5], 2, counts, must=must).tolist() == [1, 3]


# --- edges ---------------------------------------------------------------------------------------------------------


def test_fewer_available_than_places():
    times = np.array([np.inf, 3.0, np.inf, 1.0, np.inf])
    assert choose(times, np.ones(5), 4, histogram("uniform")).tolist() == [1, 3]
    assert choose(times, [9.0, -5.0, 9.0, -5.0, 9.0], 4).tolist() == [1, 3]


def test_nobody_available():
    assert choose(np.full(6, np.inf), np.ones(6), 3).tolist() == []
    assert choose(np.empty(0), np.empty(0), 3).tolist() == []


def test_everybody():
    rng = np.random.default_rng(0)
    times, prices = rng.lognormal(size=9), rng.normal(size=9)
    assert choose(times, prices, 9, histogram("uniform")).tolist() == list(range(9))
    assert choose(times, prices, 50, histogram("uniform")).tolist() == list(range(9))


def test_all_places_are_taken():
    must = np.array([True, False, True, False])
    assert choose([9.0, 1.0, 9.0, 1.0], [0.0, 9.0, 0.0, 9.0], 2, must=must).tolist() == [0, 2]


def test_infinite_times_are_never_chosen():
    rng = np.random.default_rng(3)
    for case in range(200):
        num = int(rng.integers(1, 300))
        available = rng.random(num) < 0.5
        prices = np.where(available, rng.normal(size=num), 1e6)
        times = np.where(available, rng.lognormal(0, 3, num), np.inf)
        links = choose(times, prices, int(rng.integers(1, 40)), histogram("uniform", num=100), seed=case)
        assert available[links].all()


def test_times_over_any_range():
    """More than the 160 bins hold: what is slower than exp(20) times the fastest counts as that slow."""
    times = np.array([1e-9, 1e-3, 1e9, 1e30, 1e40])
    links = choose(times, np.zeros(5), 3, histogram("uniform"))
    assert links[:2].tolist() == [0, 1]
    assert links.shape == (3,)
    assert choose(times, [0.0, 0.0, 0.0, 0.0, 1e45], 1, histogram("uniform")).tolist() == [4]


@pytest.mark.parametrize("counts", [NOTHING, histogram("uniform")], ids=["step", "uniform"])
def test_ties_are_uniform(counts):
    """Twelve equal clients, four places: every one is as likely."""
    found = np.zeros(12)
    for seed in range(3000):
        found[choose(np.full(12, 2.0), np.full(12, 0.7), 4, counts, seed=seed)] += 1
    assert inclusion_p_value(found, 4, 3000) > 0.001


def test_ties_at_the_margin_only():
    """Two better ones are always there; the third place is drawn among the other four."""
    found = np.zeros(6)
    prices = np.array([1.0, 2.0, 1.0, 2.0, 1.0, 1.0])
    for seed in range(2000):
        found[choose(np.full(6, 3.0), prices, 3, histogram("uniform", num=1000), seed=seed)] += 1
    assert found[1] == found[3] == 2000
    assert inclusion_p_value(found[[0, 2, 4, 5]], 1, 2000) > 0.001


# --- many rows -----------------------------------------------------------------------------------------------------


def bins_of(times):
    """The solver's own bins, so that rows at a bin's edge are not a matter of the last digit."""
    finite = np.isfinite(times)
    origin = math.log(times[finite].min()) - 0.5 * GRID_STEP
    bins = np.full(times.shape[0], -1)
    for n in np.flatnonzero(finite):
        bins[n] = int((_log(times.view(np.int64)[n]) - origin) / GRID_STEP)
    return bins


def large_instance(kind, rng, num):
    times = rng.lognormal(1.0, 0.7, num)
    if kind == "independent":
        prices = rng.exponential(1.0, num)
    elif kind == "slow is worth more":
        prices = 0.2 * times * rng.uniform(0.5, 1.5, num)
    elif kind == "fast is worth more":
        prices = rng.uniform(0.5, 1.5, num) / times
    elif kind == "few stand out":
        prices = np.where(rng.random(num) < 0.002, 50.0, 0.1) * rng.random(num)
    else:  # the sampled rows alone are worth anything: their prices say nothing of the others'
        prices = rng.random(num)
        stride = num // 1024
        prices[stride // 2 :: stride] += 100.0
        times[stride // 2 :: stride] *= 3.0
    times[rng.random(num) < 0.2] = np.inf
    return times, prices


KINDS = ["independent", "slow is worth more", "fast is worth more", "few stand out", "unlucky sample"]


def essential(times, prices, must, size, bins):
    """Rows that can matter: the best of each bin, those that must, and the extremes that span grid and prices."""
    keep = must.copy()
    free = np.flatnonzero(np.isfinite(times) & ~must)
    order = free[np.lexsort((-prices[free], bins[free]))]
    rank = np.arange(order.shape[0]) - np.searchsorted(bins[order], bins[order])
    keep[order[rank < size]] = True
    usable = np.flatnonzero(np.isfinite(times))
    for extreme in (times[usable].argmin(), times[usable].argmax(), np.abs(prices[usable]).argmax()):
        keep[usable[extreme]] = True
    return np.flatnonzero(keep)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num", "size", "forced"), [(20_000, 40, 0), (30_000, 7, 3)])
def test_pruning_changes_nothing(kind, num, size, forced):
    """The same decision as among the few rows that can matter, which are too few to be pruned."""
    rng = np.random.default_rng(num + size)
    counts = histogram("uniform")
    times, prices = large_instance(kind, rng, num)
    must = np.zeros(num, np.bool_)
    must[rng.permutation(np.flatnonzero(np.isfinite(times)))[:forced]] = True
    bins = bins_of(times)
    rows = essential(times, prices, must, size, bins)
    assert rows.shape[0] < 4096
    links = choose(times, prices, size, counts, must=must)
    assert links.shape == (size,)
    assert must[links].sum() == forced
    few = choose(times[rows], prices[rows], size, counts, must=must[rows])
    np.testing.assert_array_equal(links, rows[few])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [5, 100])
def test_nobody_is_dominated(kind, size):
    """No chosen row has an unchosen one in a faster bin, or in its own, that is worth more."""
    rng = np.random.default_rng(size)
    times, prices = large_instance(kind, rng, 24_000)
    links = choose(times, prices, size, histogram("half-normal"))
    bins = bins_of(times)
    free = np.isfinite(times)
    free[links] = False
    best = np.full(bins.max() + 1, -np.inf)
    np.maximum.at(best, bins[free], prices[free])
    assert (prices[links] >= np.maximum.accumulate(best)[bins[links]]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_candidates(kind):
    """Few are left where the sample says enough; all of them where it was unlucky."""
    times, prices = large_instance(kind, np.random.default_rng(5), 40_000)
    must = np.zeros(40_000, np.bool_)
    bins = bins_of(times)
    count = int(np.isfinite(times).sum())
    origin = math.log(times.min()) - 0.5 * GRID_STEP
    rows, found = _candidates(times, times.view(np.int64), prices, must, origin, bins.max() + 1, count, 100)
    np.testing.assert_array_equal(found, bins[rows])
    if kind == "unlucky sample":
        np.testing.assert_array_equal(rows, np.flatnonzero(np.isfinite(times)))
    else:
        assert rows.shape[0] < count // 3
    # A client that is left out has 100 among the rest that are no slower and no less worth.
    out = np.isfinite(times)
    out[rows] = False
    for bin in range(bins.max() + 1):
        here = out & (bins == bin)
        if here.any():
            ahead = (found <= bin) & (prices[rows] >= prices[here].max())
            assert ahead.sum() >= 100


@pytest.mark.parametrize("num", [4096, 4097, 5000, 20_000])
def test_many_equal_rows(num):
    """All alike: the sample's threshold is everybody's price."""
    links = choose(np.full(num, 2.0), np.ones(num), 50, histogram("uniform"))
    assert links.shape == (50,)
    assert not np.array_equal(links, choose(np.full(num, 2.0), np.ones(num), 50, histogram("uniform"), seed=1))


def test_ties_among_many_rows_are_uniform():
    halves = np.zeros(10)
    for seed in range(60):
        links = choose(np.full(20_000, 2.0), np.ones(20_000), 100, histogram("uniform"), seed=seed)
        halves += np.bincount(links // 2000, minlength=10)
    assert ((halves - 600) ** 2 / 600).sum() < 27.9  # chi-square with 9 degrees of freedom, 0.1 %


# --- the urgent ----------------------------------------------------------------------------------------------------


def test_most_urgent_against_sorting():
    rng = np.random.default_rng(0)
    for case in range(500):
        num, size = int(rng.integers(1, 30)), int(rng.integers(1, 12))
        urgency = np.where(rng.random(num) < 0.5, rng.integers(0, 4, num) * 0.25, -1.0)
        must = most_urgent(urgency, size, tie_key(np.random.default_rng(case)))
        allowed = np.sort(urgency[urgency >= 0.0])[::-1]
        np.testing.assert_array_equal(np.sort(urgency[must])[::-1], allowed[:size])


def test_nobody_is_urgent():
    assert not most_urgent(np.full(5, -1.0), 3, np.uint64(1)).any()
    assert not most_urgent(np.empty(0), 3, np.uint64(1)).any()


@pytest.mark.parametrize("level", [0.0, 1.8, 5.9])
def test_ties_among_the_urgent_are_uniform(level):
    found = np.zeros(40)
    urgency = np.full(40, level)
    urgency[:2] = level + 0.15
    for seed in range(4000):
        must = most_urgent(urgency, 8, tie_key(np.random.default_rng(seed)))
        assert must[:2].all()
        found += must
    assert inclusion_p_value(found[2:], 6, 4000) > 0.001


# --- the logarithm -------------------------------------------------------------------------------------------------


def test_log_from_bits():
    rng = np.random.default_rng(0)
    numbers = np.concatenate((rng.lognormal(0, 20, 3000), 2.0 ** np.arange(-60, 60), np.nextafter(2.0**9, [0.0, 1e9])))
    worst = max(abs(_log(bits) - math.log(x)) for x, bits in zip(numbers, numbers.view(np.int64), strict=True))
    assert 0.0005 < worst < 0.003
    ordered = np.sort(numbers)
    assert (np.diff([_log(bits) for bits in ordered.view(np.int64)]) >= 0).all()
