"""Random-coefficients regression: its formulae written densely, and populations that are known."""

import numpy as np
import pytest

from fedroster.core.state import pack, reset
from fedroster.estimation.random_coefficients import (
    _guess,
    begin_round,
    coefficients_init,
    estimate_population,
    learn,
)


class Data:
    """Observations of clients, in the order in which they came."""

    def __init__(self, num_clients, num_features):
        self.rows = [([], []) for _ in range(num_clients)]
        self.num_features = num_features

    def add(self, client, features, time_s):
        for n, c, t in zip(client, features, time_s, strict=True):
            self.rows[n][0].append(c)
            self.rows[n][1].append(t)

    def of(self, n, memory):
        """Contexts, times, and what each observation still counts for."""
        contexts, times = np.reshape(self.rows[n][0], (-1, self.num_features)), np.array(self.rows[n][1])
        return contexts, times, (1.0 - 1.0 / memory) ** np.arange(len(times))[::-1]


def observe(state, data, client, features, time_s, *, scale_s, memory=1e12):
    client = np.asarray(client, np.int64)
    data.add(client, features, time_s)
    return learn(state, client, features, np.asarray(time_s), scale_s=scale_s[client], memory=memory)


def some_history(*, seed=0, num_clients=7, num_features=3, rounds=12, memory=1e12):
    """A state with a population, and what it was learned from; the last client was never seen."""
    rng = np.random.default_rng(seed)
    data, state = Data(num_clients, num_features), coefficients_init(num_clients, num_features)
    theta = rng.lognormal(0.0, 0.5, (num_clients, num_features))
    scale_s = theta.sum(axis=1) * 1.5
    for _ in range(rounds):
        client = np.sort(rng.permutation(num_clients - 1)[:3])
        features = rng.uniform(0.5, 2.0, (3, num_features))
        time_s = (features * theta[client]).sum(axis=1) * rng.uniform(0.5, 1.5, 3)
        state = observe(state, data, client, features, time_s, scale_s=scale_s, memory=memory)
    return state, data, scale_s


def assert_finite(state):
    assert all(np.isfinite(value).all() for value in pack(state).values())


def dense_posterior(contexts, times, weights, scale_s, noise, mean, covariance):
    """V and the estimate, as the module's first formulae have them."""
    information = (contexts.T * weights) @ contexts / scale_s**2
    moment = contexts.T @ (weights * times) / scale_s**2
    spread = np.linalg.inv(information / noise + np.linalg.inv(covariance))
    return spread, spread @ (moment / noise + np.linalg.inv(covariance) @ mean)


@pytest.mark.parametrize("memory", [1e12, 5.0, 1.0])
@pytest.mark.parametrize("num_features", [1, 2, 3, 5])
def test_estimates_are_the_posterior_means(memory, num_features):
    state, data, scale_s = some_history(num_features=num_features, memory=memory)

    def check(state, clients):
        for n in clients:
            known = state.noise, state.mean, state.covariance
            _, expected = dense_posterior(*data.of(n, memory), scale_s[n], *known)
            np.testing.assert_allclose(state.coefficients[:, n], expected, rtol=1e-5)

    state = estimate_population(state, scale_s=scale_s)
    check(state, range(7))
    # And right after further observations, for their clients; the others stand.
    before = state.coefficients.copy()
    features = np.random.default_rng(1).uniform(0.5, 2.0, (2, num_features))
    state = observe(state, data, [1, 4], features, [3.0, 0.5], scale_s=scale_s, memory=memory)
    check(state, (1, 4))
    assert (state.coefficients[:, [1, 4]] != before[:, [1, 4]]).any(axis=0).all()
    others = [0, 2, 3, 5, 6]
    np.testing.assert_array_equal(state.coefficients[:, others], before[:, others])


def test_one_step_of_the_population():
    """The whole of an estimate, three steps with one pseudo-client and one pseudo-observation, once more."""
    state, data, scale_s = some_history(seed=5)
    power = sum((data.of(n, 1e12)[0] ** 2).sum(axis=0) for n in range(6))
    square = sum((data.of(n, 1e12)[1] ** 2).sum() for n in range(6))
    guess = np.sqrt(square / (3.0 * power))
    np.testing.assert_allclose(_guess(state), guess, rtol=1e-12)
    mean, covariance, noise = guess, np.diag(guess**2), 0.5
    for _ in range(3):
        left, target = np.diag(guess**-2.0), guess**-2.0 * guess
        posteriors, residual, observations = [], 0.0, 0
        for n in range(6):
            contexts, times, weights = data.of(n, 1e12)
            marginal = contexts @ covariance @ contexts.T + noise * scale_s[n] ** 2 * np.eye(len(times))
            left += contexts.T @ np.linalg.solve(marginal, contexts)
            target += contexts.T @ np.linalg.solve(marginal, times)
            spread, theta = dense_posterior(contexts, times, weights, scale_s[n], noise, mean, covariance)
            posteriors.append((spread, theta))
            residual += ((times - contexts @ theta) ** 2).sum() / scale_s[n] ** 2
            residual += np.trace(contexts.T @ contexts @ spread) / scale_s[n] ** 2
            observations += len(times)
        mean = np.linalg.solve(left, target)
        around = sum(spread + np.outer(theta - mean, theta - mean) for spread, theta in posteriors)
        covariance = (around + np.diag(guess**2)) / 7.0
        noise = (residual + noise) / (observations + 1.0)
    state = estimate_population(state, scale_s=scale_s)
    np.testing.assert_allclose(state.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(state.covariance, covariance, rtol=1e-4, atol=1e-7)
    assert state.noise == pytest.approx(noise, rel=1e-5)


def test_the_mean_time_forgets_an_outlier():
    """Until the memory of all clients is full it is the plain mean; then one time of 1e9 s fades."""
    state, one = coefficients_init(2, 1), np.ones(1)
    times_s = [1e9, *[2.0] * 19]
    for time_s in times_s:
        state = learn(begin_round(state), np.array([0]), one[:, None], np.array([time_s]), scale_s=one, memory=10.0)
    assert state.mean_time_s == sum(times_s) / 20
    for _ in range(800):
        state = learn(begin_round(state), np.array([1]), one[:, None], np.array([2.0]), scale_s=one, memory=10.0)
    assert state.mean_time_s == pytest.approx(2.0, rel=1e-2)


@pytest.mark.parametrize(
    ("factor", "units"),
    [
        *((factor, [1.0, 1.0, 1.0]) for factor in (1e-6, 60.0, 1e9)),
        *((1.0, units) for units in ([1e7, 1.0, 1.0], [1.0, 1e-6, 1e6], [1e-4, 1e-4, 1e4])),
    ],
)
def test_the_units_of_time_and_of_features_do_not_matter(factor, units):
    """Bits instead of megabits, hertz instead of seconds."""
    results, units = [], np.array(units)
    for unit, scale in ((1.0, np.ones(3)), (factor, units)):
        rng = np.random.default_rng(0)
        state, scale_s = coefficients_init(6, 3), rng.uniform(1.0, 3.0, 6) * unit
        for _ in range(10):
            features, time_s = rng.uniform(0.5, 2.0, (6, 3)) * scale, rng.lognormal(0.0, 0.5, 6) * unit
            state = learn(state, np.arange(6), features, time_s, scale_s=scale_s, memory=50.0)
            state = estimate_population(state, scale_s=scale_s)
        results.append(state)
    small, large = results
    covariance = units[:, None] * units * large.covariance
    np.testing.assert_allclose(units[:, None] * large.coefficients, factor * small.coefficients, rtol=1e-6)
    np.testing.assert_allclose(covariance, factor**2 * small.covariance, rtol=1e-6, atol=1e-12 * factor**2)
    assert large.noise == pytest.approx(small.noise, rel=1e-6)


def settled(features_of, *, num_clients=5, rounds=30, seed=0, spread=0.1):
    """Play rounds with given contexts and times of 2 s per client number; return state and last contexts."""
    rng = np.random.default_rng(seed)
    state, client = None, np.arange(num_clients)
    scale_s = 2.0 * (client + 1.0)
    for _ in range(rounds):
        features = features_of(rng, num_clients)
        state = coefficients_init(num_clients, features.shape[1]) if state is None else state
        time_s = scale_s * rng.uniform(1 - spread, 1 + spread, num_clients)
        state = learn(state, client, features, time_s, scale_s=scale_s, memory=100.0)
        if state.observations >= state.estimate_at:
            state = estimate_population(state, scale_s=scale_s)
    return state, features, scale_s


AWKWARD = {
    "constant": lambda rng, num: np.ones((num, 3)),
    "collinear": lambda rng, num: rng.uniform(0.9, 1.1, (num, 1)) * np.array([[1.0, 2.0, 3.0]]),
    "always zero": lambda rng, num: np.column_stack((np.ones(num), np.zeros(num), np.ones(num))),
    "one": lambda rng, num: np.ones((num, 1)),
    "of many sizes": lambda rng, num: rng.uniform(0.9, 1.1, (num, 1)) * np.array([[1e-6, 1.0, 1e6]]),
}


@pytest.mark.parametrize("kind", AWKWARD)
@pytest.mark.parametrize("num_clients", [1, 5])
def test_awkward_features(kind, num_clients):
    """Coefficients may not be identified; predictions are."""
    state, features, scale_s = settled(AWKWARD[kind], num_clients=num_clients)
    assert_finite(state)
    predicted = (features * state.coefficients.T).sum(axis=1)
    np.testing.assert_allclose(predicted, scale_s, rtol=0.2)
    assert np.linalg.eigvalsh(state.covariance).min() >= 0.0


def test_features_that_are_all_zero_teach_nothing_and_break_nothing():
    state, features, _ = settled(lambda rng, num: np.zeros((num, 2)))
    assert_finite(state)
    assert state.is_known
    assert ((features * state.coefficients.T).sum(axis=1) == 0.0).all()


@pytest.mark.parametrize("known", [False, True])
def test_when_all_that_were_observed_are_forgotten(known):
    """The population that was known stays; without one, the next observation makes the first estimate."""
    state, _, scale_s = some_history()
    if known:
        state = estimate_population(state, scale_s=scale_s)
    mean = state.mean.copy()
    reset(state, coefficients_init(7, 3), np.arange(7))
    state = estimate_population(state, scale_s=scale_s)
    np.testing.assert_array_equal(state.mean, mean)
    assert state.is_known == known
    state = learn(state, np.array([2]), np.ones((1, 3)), np.array([4.0]), scale_s=np.full(1, 4.0), memory=100.0)
    state = estimate_population(state, scale_s=np.full(7, 4.0))
    assert_finite(state)
    assert state.coefficients[:, 2].sum() > 0.0


def test_exact_times_do_not_break_it():
    """No noise at all: the estimate of it ends at its floor, and estimates are finite."""
    state, _, scale_s = settled(AWKWARD["one"], rounds=300, spread=0.0)
    for _ in range(60):
        state = estimate_population(state, scale_s=scale_s)
    assert 0.0 < state.noise < 1e-2
    np.testing.assert_allclose(state.coefficients[0], scale_s, rtol=0.05)


@pytest.mark.parametrize("extreme_s", [1e-12, 1e-3, 1e4])
def test_one_extreme_in_the_first_round(extreme_s):
    """One of eight first times is nearly nothing, or enormous: the other predictions stay within what was seen."""
    rng = np.random.default_rng(0)
    state, client = coefficients_init(20, 3), np.arange(8)
    features = rng.uniform(0.5, 2.0, (8, 3))
    time_s = features.sum(axis=1) * rng.uniform(0.5, 1.5, 8)
    time_s[3] = extreme_s
    mean_s = time_s.mean()
    state = learn(state, client, features, time_s, scale_s=np.full(8, mean_s), memory=100.0)
    state = estimate_population(state, scale_s=np.full(20, mean_s))
    predicted = rng.uniform(0.5, 2.0, (20, 3)) * state.coefficients.T
    assert_finite(state)
    assert (predicted.sum(axis=1)[8:] > 0.05 * mean_s).all()  # the unseen
    assert (predicted.sum(axis=1) < 12.0 * mean_s).all()
    ordinary = [n for n in range(8) if n != 3]
    if extreme_s < 1.0:
        own = (features * state.coefficients[:, :8].T).sum(axis=1)
        assert (own[ordinary] > 0.3 * time_s[ordinary]).all()
        assert (own[ordinary] < 3.0 * time_s[ordinary]).all()
        assert own[3] < own[ordinary].mean()


def test_of_a_single_time_every_feature_has_an_equal_part():
    state, context = coefficients_init(3, 3), np.array([[1.0, 0.5, 4.0]])
    state = learn(state, np.array([1]), context, np.array([6.0]), scale_s=np.ones(1), memory=100.0)
    assert state.observations == state.estimate_at == 1
    assert not state.is_known
    assert not state.coefficients.any()
    state = estimate_population(state, scale_s=np.full(3, 6.0))
    assert state.is_known
    assert (state.mean_time_s, state.estimate_at) == (6.0, 1.1)  # again when there is a tenth more
    assert (state.coefficients > 0.0).all()
    np.testing.assert_allclose(state.mean * context[0], np.full(3, state.mean @ context[0] / 3.0), rtol=1e-6)


@pytest.mark.parametrize("factor", [1e9, 1e12, 1e40, 1e-12])
def test_contexts_that_lie_cost_the_others_little(factor):
    """One client's contexts are out of all proportion; what is known of the others stays near what is true."""
    rng = np.random.default_rng(3)
    num_clients, liar = 20, 4
    theta = rng.lognormal(0.0, 0.3, (num_clients, 3))
    errors = {}
    for lie in (1.0, factor):
        drawn = np.random.default_rng(4)
        state = coefficients_init(num_clients, 3)
        for t in range(40):
            client = np.sort(drawn.permutation(num_clients)[:5])
            features = drawn.uniform(0.5, 2.0, (5, 3))
            time_s = (features * theta[client]).sum(axis=1) * drawn.uniform(0.8, 1.2, 5)
            features[client == liar] *= lie
            state = learn(state, client, features, time_s, scale_s=np.full(5, 4.0), memory=100.0)
            if t % 4 == 0:
                state = estimate_population(state, scale_s=np.full(num_clients, 4.0))
        assert np.isfinite(state.coefficients).all()
        assert np.isfinite(state.covariance).all()
        asked = drawn.uniform(0.5, 2.0, (200, 3))
        predicted, true = asked @ state.coefficients, asked @ theta.T
        errors[lie] = np.abs(predicted / true - 1.0).mean(axis=0)
    others = np.arange(num_clients) != liar
    assert errors[1.0][others].mean() < 0.1
    assert errors[factor][others].mean() < 0.2
