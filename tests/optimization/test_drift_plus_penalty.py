"""P4: the solver against the printed algorithm, brute force and a heap, and its tie-breaking."""

import math

import numpy as np
import pytest

from fedroster.optimization.drift_plus_penalty import least_drift_plus_penalty
from reference import algorithm_1, brute_force_p4, heap_p4, inclusion_p_value, p4_objective


def solve(times, backlog, penalty, size, *, available=None, seed=0):
    times = np.asarray(times, float)
    if available is not None:
        times = np.where(available, times, np.inf)
    rng = np.random.default_rng(seed)
    return least_drift_plus_penalty(times, np.asarray(backlog, float), penalty=penalty, cohort_size=size, rng=rng)


def random_instance(rng):
    """A small instance; most kinds are full of ties and zeros, and some have too few clients."""
    num = int(rng.integers(1, 10))
    size = int(rng.integers(1, 6))
    kind = rng.integers(0, 5)
    if kind == 0:
        times, backlog = rng.lognormal(size=num), rng.exponential(size=num)
    elif kind == 1:
        times, backlog = rng.integers(0, 4, num) * 1.0, rng.integers(0, 4, num) * 1.0
    elif kind == 2:
        times, backlog = np.zeros(num), rng.integers(0, 3, num) * 0.5
    elif kind == 3:
        times, backlog = rng.integers(1, 6, num) * 0.25, np.zeros(num)
    else:
        times = rng.integers(0, 8, num) * 0.5
        backlog = times * rng.integers(0, 3)
    # Binary fractions keep sums exact, so that ties are ties in every order of summation.
    penalty = float(rng.choice([0.0, 0.25, 0.5, 1.0, 2.0, 16.0, 4096.0]))
    available = rng.random(num) < rng.choice([0.0, 0.5, 1.0], p=[0.02, 0.48, 0.5])
    return times, backlog, available, size, penalty, kind == 0


def check_feasible(links, available, size):
    assert links.dtype == np.int64
    assert len(links) == min(size, np.count_nonzero(available))
    assert (np.diff(links) > 0).all()
    assert np.asarray(available)[links].all()


def test_agrees_with_brute_force_and_with_the_printed_algorithm():
    rng = np.random.default_rng(20)
    several = few = empty = 0
    for case in range(2500):
        times, backlog, available, size, penalty, continuous = random_instance(rng)
        links = solve(times, backlog, penalty, size, available=available, seed=case)
        check_feasible(links, available, size)
        best, winners = brute_force_p4(times, backlog, available, size, penalty)
        value = p4_objective(times, backlog, links, penalty)
        printed = algorithm_1(times, backlog, available, size, penalty)
        if printed:
            least = min(objective for objective, _ in printed)
            if continuous:
                assert math.isclose(least, best, rel_tol=1e-12, abs_tol=1e-12)
            else:
                assert least == best
        else:
            assert not available.any()  # the printed procedure has no answer then
            empty += 1
        if continuous:
            assert math.isclose(value, best, rel_tol=1e-12, abs_tol=1e-12)
        else:
            assert value == best
            assert links.tolist() in winners
        several += len(winners) > 1
        few += np.count_nonzero(available) < size
    assert several > 300  # ties were among them
    assert few > 180  # and too few clients
    assert empty > 6


def test_a_wrong_solver_would_be_noticed():
    """Negative control: Algorithm 1 whose break ends the outer loop, and the greedy that looks at queues only."""
    rng = np.random.default_rng(22)
    wrong_break = wrong_greedy = 0
    for _ in range(600):
        times, backlog, available, size, penalty, _ = random_instance(rng)
        best, _ = brute_force_p4(times, backlog, available, size, penalty)
        printed = algorithm_1(times, backlog, available, size, penalty)
        if printed:
            wrong_break += printed[0][0] > best + 1e-9
            longest = sorted(np.flatnonzero(available), key=lambda n: -backlog[n])[:size]
            wrong_greedy += p4_objective(times, backlog, longest, penalty) > best + 1e-9
    assert wrong_break > 50
    assert wrong_greedy > 50


SHAPES = {
    "log-normal": lambda rng, num, V, m: (rng.lognormal(sigma=1.5, size=num), rng.exponential(5.0, num)),
    "heavy tail": lambda rng, num, V, m: (10.0 ** rng.uniform(-12, 12, num), rng.exponential(5.0, num)),
    "equal times": lambda rng, num, V, m: (np.full(num, 3.5), rng.exponential(5.0, num)),
    "equal queues": lambda rng, num, V, m: (rng.lognormal(size=num), np.full(num, 2.25)),
    "atom at zero": lambda rng, num, V, m: (
        np.where(rng.random(num) < 0.4, 0.0, rng.lognormal(size=num)),
        np.where(rng.random(num) < 0.3, 0.0, rng.exponential(5.0, num)),
    ),
    # The sum over the m chosen grows as fast as V times the slowest: all is close.
    "slow wait longest": lambda rng, num, V, m: (times := rng.uniform(1.0, 20.0, num), times * V / m),
    "slow wait longest, noisy": lambda rng, num, V, m: (
        times := rng.uniform(1.0, 20.0, num),
        times * V / m * rng.uniform(0.999, 1.001, num),
    ),
    "integers": lambda rng, num, V, m: (rng.integers(0, 50, num) * 1.0, rng.integers(0, 60, num) * 1.0),
    "two times": lambda rng, num, V, m: (
        np.where(rng.random(num) < 0.5, 1.0, np.nextafter(1.0, 2.0)),
        rng.exponential(5.0, num),
    ),
    "one fast": lambda rng, num, V, m: (
        np.where(np.arange(num) == rng.integers(num), 1e-3, 100.0 + rng.random(num)),
        rng.exponential(0.1, num),
    ),
    "rounds owed": lambda rng, num, V, m: (  # what virtual queues look like: few distinct values
        rng.gamma(4.0, 2.0, num),
        np.maximum(rng.binomial(40, 0.2, num) * 0.15 - rng.integers(0, 3, num), 0.0),
    ),
    "denormal": lambda rng, num, V, m: (rng.integers(0, 3, num) * 1e-310, rng.exponential(5.0, num)),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_many_clients_agree_with_a_heap(kind):
    rng = np.random.default_rng([23, [*SHAPES].index(kind)])
    cases = [(5_000, size, penalty) for size in (1, 7, 100, 2_500, 4_999) for penalty in (0.0, 0.01, 20.0, 1e6)]
    cases += [(int(rng.integers(4_097, 12_000)), int(rng.integers(1, 600)), 10 ** rng.uniform(-3, 3)) for _ in range(8)]
    cases += [(60_000, 100, 20.0), (60_000, 10_000, 300.0)]
    for case, (num, size, penalty) in enumerate(cases):
        times, backlog = SHAPES[kind](rng, num, penalty, size)
        if case % 2:
            times = np.where(rng.random(num) < 0.8, times, np.inf)
        count = int(np.isfinite(times).sum())
        links = solve(times, backlog, penalty, size, seed=case)
        check_feasible(links, np.isfinite(times), size)
        value = penalty * times[links].max() - math.fsum(backlog[links])
        least = heap_p4(times, backlog, min(size, count), penalty)
        scale = penalty * times[links].max() + math.fsum(backlog[links])
        assert value <= least + 1e-11 * scale, (kind, num, size, penalty, value, least)


def test_many_clients_exactly_with_integers():
    """Whole numbers leave no room for rounding: the optimum is met exactly, on either side of every size limit."""
    rng = np.random.default_rng(24)
    for case in range(60):
        num = int(rng.choice([4_096, 4_097, 5_000, 9_000, 20_000]))
        size = int(rng.choice([1, 2, 50, 300, 2_000, num - 1]))
        spread = int(rng.choice([3, 200, 100_000]))
        times = rng.integers(0, spread, num) * 1.0
        penalty = float(rng.choice([1, 3, 1_000]))
        backlog = np.floor(rng.integers(0, 40, num) + times * (penalty / size) * rng.choice([0, 1]))
        links = solve(times, backlog, penalty, size, seed=case)
        assert penalty * times[links].max() - backlog[links].sum() == heap_p4(times, backlog, size, penalty)


def inclusion_counts(times, backlog, penalty, size, draws, seed):
    rng = np.random.default_rng(seed)
    counts = np.zeros(len(times), np.int64)
    for _ in range(draws):
        counts[least_drift_plus_penalty(times, backlog, penalty=penalty, cohort_size=size, rng=rng)] += 1
    return counts


def test_the_tie_test_notices_an_order():
    """Negative control: a generator that favours the first half a little."""
    rng = np.random.default_rng(27)
    biased = np.zeros(40)
    weight = np.where(np.arange(40) < 20, 1.15, 1.0)
    for _ in range(4000):
        biased[np.argsort(rng.exponential(size=40) / weight)[:8]] += 1
    assert inclusion_p_value(biased, 8, 4000) < 1e-6


def test_ties_at_the_cut_are_fair():
    """Three longest queues are certain; the last two places are drawn among the ten that tie."""
    backlog = np.concatenate((np.full(3, 5.0), np.full(10, 2.0), np.full(7, 1.0)))
    order = np.random.default_rng(28).permutation(20)
    counts = inclusion_counts(np.ones(20), backlog[order], 1.0, 5, 3000, seed=29)
    assert (counts[backlog[order] == 5.0] == 3000).all()
    assert (counts[backlog[order] == 1.0] == 0).all()
    assert inclusion_p_value(counts[backlog[order] == 2.0], 2, 3000) > 0.001


def test_ties_are_fair_among_many_clients():
    """The same where rows are pruned, and only among those that are fast enough."""
    num, size, draws = 6_000, 600, 400
    times = np.where(np.arange(num) % 2 == 0, 1.0, 50.0)
    counts = inclusion_counts(times, np.full(num, 3.0), 10.0, size, draws, seed=30)
    assert (counts[times == 50.0] == 0).all()
    assert inclusion_p_value(counts[times == 1.0], size, draws) > 0.001


def test_equal_optima_are_equally_likely():
    """Ten thresholds: V t - Z_t = 0 for each single client; and among many either the fast one or one that waited."""
    values = np.arange(10.0)
    counts = inclusion_counts(values, values, 1.0, 1, 3000, seed=31)
    assert inclusion_p_value(counts, 1, 3000) > 0.001
    rng = np.random.default_rng(32)
    times, backlog = rng.uniform(200.0, 300.0, 5_000), np.zeros(5_000)
    times[[17, 4_000]] = 1.0, 3.0
    backlog[[17, 4_000]] = 0.0, 4.0
    counts = inclusion_counts(times, backlog, 2.0, 1, 600, seed=33)
    assert counts.sum() == counts[[17, 4_000]].sum()
    assert inclusion_p_value(counts[[17, 4_000]], 1, 600) > 0.001


def test_the_generator_is_left_alone_without_ties():
    rng = np.random.default_rng(35)
    times, backlog = rng.lognormal(size=50), rng.exponential(size=50)
    before = rng.bit_generator.state
    least_drift_plus_penalty(times, backlog, penalty=5.0, cohort_size=6, rng=rng)
    assert rng.bit_generator.state == before


def test_a_larger_penalty_is_never_slower():
    """The slowest chosen client's time falls with V, the queues served fall too: a property of the exact optimum."""
    rng = np.random.default_rng(37)
    for num in (60, 8_000):
        times, backlog = rng.lognormal(size=num), rng.exponential(5.0, num)
        times.flags.writeable = backlog.flags.writeable = False  # and inputs stay
        cohorts = [solve(times, backlog, penalty, 12) for penalty in (0.0, 0.1, 1.0, 5.0, 20.0, 100.0, 1e5)]
        slowest = [times[links].max() for links in cohorts]
        served = [backlog[links].sum() for links in cohorts]
        assert slowest == sorted(slowest, reverse=True)
        assert served == sorted(served, reverse=True)
        assert slowest[-1] == np.sort(times)[11]  # in the end the fastest
        assert np.isclose(served[0], np.sort(backlog)[-12:].sum())  # without a penalty those who waited longest
