"""The estimator for all clients at once against the closed form, known answers and itself."""

import math

import numpy as np
import pytest

from fedroster.core import compiled, parallel
from fedroster.estimation import ridge as ridge_module
from fedroster.estimation.ridge import alpha_schedule, lower_bounds, observe, ridge_init
from reference import Ridge

DIMENSIONS = (1, 2, 3, 5)


def coefficients(state):
    """Estimates H^-1 b = L^-T z of all clients, shape (clients, D)."""
    num_features, num_clients = state.moment.shape
    theta = np.empty((num_clients, num_features))
    for i in reversed(range(num_features)):
        rest = state.moment[i].copy()
        for j in range(i + 1, num_features):
            rest -= state.factor[num_features + j * (j - 1) // 2 + i] * theta[:, j]
        theta[:, i] = rest * state.factor[i]
    return theta


def random_history(rng, num_clients, num_features, num_rows):
    client = rng.integers(0, num_clients, num_rows)
    features = rng.uniform(0.2, 5.0, (num_rows, num_features))
    target = rng.uniform(0.5, 40.0, num_rows)
    return client, features, target


@pytest.mark.parametrize(("num_features", "ridge"), [(1, 1.0), (2, 0.25), (3, 10.0), (5, 1.0)])
def test_agrees_with_the_closed_form_and_does_not_drift(num_features, ridge):
    """After 10,000 updates of one client the closed form, in extended precision, is still met."""
    rng = np.random.default_rng([41, num_features])
    client, features, target = random_history(rng, 3, num_features, 30_000)
    state = ridge_init(3, num_features, ridge=ridge)
    for low in range(0, 30_000, 100):
        rows = slice(low, low + 100)
        observe(state, client[rows], features[rows], target[rows])
    contexts = rng.uniform(0.2, 5.0, (3, num_features))
    for n in range(3):
        mine = client == n
        assert np.count_nonzero(mine) > 9_800
        exact = Ridge.of(features[mine], target[mine], ridge)
        np.testing.assert_allclose(coefficients(state)[n], exact.theta().astype(float), rtol=1e-9)
        for alpha in (0.0, 0.5, 3.0):
            bound = lower_bounds(state, contexts, alpha=alpha)[n]
            np.testing.assert_allclose(bound, float(exact.lower_bound(contexts[n], alpha)), rtol=1e-10)
        # Negative control: one observation of the ten thousand left out is noticed.
        without = Ridge.of(features[mine][1:], target[mine][1:], ridge)
        assert not np.allclose(coefficients(state)[n], without.theta().astype(float), rtol=1e-9)


def test_unavailable_links_are_infinite():
    state = ridge_init(4, 3, ridge=1.0)
    features = np.ones((4, 3))
    features[1] = np.nan  # a client that is away reports nothing
    available = np.array([True, False, True, False])
    np.testing.assert_array_equal(lower_bounds(state, features, alpha=0.1, available=available), [0, np.inf, 0, np.inf])


def test_a_client_may_occur_more_than_once():
    rng = np.random.default_rng(43)
    features, target = rng.uniform(0.5, 2.0, (6, 3)), rng.uniform(1.0, 9.0, 6)
    client = np.array([2, 0, 2, 2, 0, 1])
    together = observe(ridge_init(3, 3, ridge=1.0), client, features, target)
    apart = ridge_init(3, 3, ridge=1.0)
    for row in range(6):
        observe(apart, client[row : row + 1], features[row : row + 1], target[row : row + 1])
    assert together.factor.tobytes() == apart.factor.tobytes()
    assert together.moment.tobytes() == apart.moment.tobytes()
    exact = Ridge.of(features[client == 2], target[client == 2], 1.0)
    np.testing.assert_allclose(coefficients(together)[2], exact.theta().astype(float), rtol=1e-12)


def test_missing_times_are_skipped():
    rng = np.random.default_rng(44)
    client, features, target = random_history(rng, 5, 3, 40)
    seen = rng.random(40) < 0.6
    features[~seen] = np.where(rng.random((np.count_nonzero(~seen), 3)) < 0.5, np.nan, 1.0)
    with_gaps = observe(ridge_init(5, 3, ridge=1.0), client, features, np.where(seen, target, np.nan))
    without = observe(ridge_init(5, 3, ridge=1.0), client[seen], features[seen], target[seen])
    assert with_gaps.factor.tobytes() == without.factor.tobytes()
    assert with_gaps.moment.tobytes() == without.moment.tobytes()


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_that_name_their_clients(order):
    rng = np.random.default_rng(47)
    state = observe(ridge_init(50, 3, ridge=1.0), *random_history(rng, 50, 3, 400))
    features = rng.uniform(0.5, 3.0, (50, 3))
    whole = lower_bounds(state, np.asarray(features, order=order), alpha=0.1)
    client = rng.permutation(50)[:20]
    rows = lower_bounds(state, np.asarray(features[client], order=order), alpha=0.1, client=client)
    assert rows.tobytes() == whole[client].tobytes()


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_give_identical_bits(monkeypatch, threads):
    """A range split over threads at any place gives what one thread gives."""
    rng = np.random.default_rng(48)
    num = 40_003
    state = observe(ridge_init(num, 3, ridge=1.0), *random_history(rng, num, 3, 60_000))
    features, available = rng.uniform(0.5, 3.0, (num, 3)), rng.random(num) < 0.8
    monkeypatch.setattr(parallel, "num_threads", lambda: 1)
    alone = lower_bounds(state, features, alpha=0.1, available=available)
    monkeypatch.setattr(parallel, "num_threads", lambda: threads)
    monkeypatch.setattr(parallel, "MIN_ROWS_PER_THREAD", 1_000)
    ranges = []

    def spy(kernel, num_rows, *args):
        def recorded(*arguments):
            ranges.append(arguments[-2:])
            kernel(*arguments)

        parallel.for_ranges(recorded, num_rows, *args)

    monkeypatch.setattr("fedroster.estimation.ridge.for_ranges", spy)
    together = lower_bounds(state, features, alpha=0.1, available=available)
    assert len(ranges) == threads
    assert sorted(ranges)[0][0] == 0
    assert max(stop for _, stop in ranges) == num
    assert together.tobytes() == alone.tobytes()


def test_lemma_1_covers_the_truth():
    """With Lemma 1's alpha, (20) holds for every client in every round (seeded); with alpha = 0 it does not."""
    rng = np.random.default_rng(49)
    theta = rng.uniform(0.2, 1.0, (20, 3))
    state = ridge_init(20, 3, ridge=1.0)
    covered = missed = 0
    for t in range(1, 201):
        features = rng.uniform(0.1, 1.0, (20, 3))
        expected = (features * theta).sum(axis=1)
        alpha = alpha_schedule(
            t, noise=0.5, feature_norm=math.sqrt(3), coefficient_norm=math.sqrt(3), delta=0.05, ridge=1.0
        )
        covered += np.count_nonzero(lower_bounds(state, features, alpha=alpha) <= expected)
        missed += np.count_nonzero(lower_bounds(state, features, alpha=0.0) > expected)
        observe(state, np.arange(20), features, expected + rng.uniform(-0.5, 0.5, 20))
    assert covered == 20 * 200
    assert missed > 200


@pytest.mark.parametrize("feature", [1e50, 1e120, 1e160, 1.7e308])
def test_contexts_that_overflow_are_present_and_slow(feature):
    """A width that overflows would make a client look as fast as can be; they count as contexts of 1e50."""
    state = ridge_init(3, 3, ridge=1.0)
    usual = np.array([1.0, 0.5, 2.0])
    for _ in range(5):
        observe(state, np.arange(3), np.tile(usual, (3, 1)), np.array([3.0, 4.0, 5.0]))
    alone = lower_bounds(state, np.tile(usual, (3, 1)), alpha=0.01)
    bound = lower_bounds(state, np.array([usual, [feature] * 3, usual]), alpha=0.01)
    slow = lower_bounds(state, np.full((3, 3), 1e50), alpha=0.01)[1]
    assert 1e49 < slow < 1e51
    np.testing.assert_array_equal(bound, [alone[0], slow, alone[2]])


def test_numbers_of_any_size_leave_the_state_finite():
    state = ridge_init(3, 2, ridge=1.0)
    sizes = [5e-324, 1e-160, 1.0, 1e160, 1.79e308]
    for feature in sizes:
        for time_s in sizes:
            observe(state, np.arange(2), np.full((2, 2), feature), np.array([time_s, -time_s]))
            assert np.isfinite(state.factor).all()
            assert np.isfinite(state.moment).all()
            bound = lower_bounds(state, np.full((3, 2), feature), alpha=0.1)
            assert ((bound >= 0.0) & (bound <= 1e100)).all()
    assert (state.moment[:, 2] == 0.0).all()


def test_an_unknown_client_is_as_fast_as_can_be_whatever_its_context():
    """Choice A3."""
    state = ridge_init(1, 2, ridge=1e-300)
    for feature in (1e-300, 1.0, 1e160, 1.79e308):
        assert lower_bounds(state, np.full((1, 2), feature), alpha=0.1).tolist() == [0.0]


@pytest.mark.parametrize("num_features", DIMENSIONS)
def test_interpreted_and_compiled_are_the_same_bit_for_bit(monkeypatch, num_features):
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, 1e300, -1e300, 1e-300])

    def states():
        rng = np.random.default_rng([46, num_features])
        state = ridge_init(12, num_features, ridge=0.25)
        for _ in range(100):
            client = rng.integers(0, 12, 6)
            features = rng.standard_normal((6, num_features)) * 10.0 ** rng.uniform(-3, 3)
            features[0, 0] = rng.choice([1.0, *odd])
            target = rng.exponential(5.0, 6) + rng.choice([0.0, *odd])
            observe(state, client, features, target)
            contexts = rng.standard_normal((12, num_features))
            contexts[0, 0] = rng.choice([1.0, *odd])
            bounds = lower_bounds(state, contexts, alpha=0.1, available=rng.random(12) < 0.8)
            yield state.factor.tobytes(), state.moment.tobytes(), bounds.tobytes()

    monkeypatch.setattr(compiled, "INTERPRETED_ROWS", -1)
    found = [*states()]
    monkeypatch.setattr(compiled, "INTERPRETED_ROWS", 10**9)
    for name in ("_bounds_kernel", "_observe_kernel"):
        fresh = compiled.Kernel(getattr(ridge_module, name).py_func, {"error_model": "numpy"})
        monkeypatch.setattr(ridge_module, name, fresh)
    assert found == [*states()]
