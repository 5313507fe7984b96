import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import log_ndtr

from fedroster.core.errors import ConfigurationError
from fedroster.core.state import pack, reset, unpack
from fedroster.estimation.probit import (
    _normal_tail,
    begin_round,
    learn,
    predict,
    prior_covariance,
    probit_init,
    settle,
)

SIX = {"variance": (0.0, 0.3, 1.0), "memory": (math.inf, math.inf, 5.0)}


def phi(z):
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


class Reference:
    """The same, with dense vectors and dictionaries, written from the equations."""

    def __init__(self, num_features, intervals, variance, memory):
        self.intervals, self.num_features = intervals, num_features
        self.prior = prior_covariance(num_features, intervals)
        self.models = [
            {
                "mu": np.zeros(len(self.prior)),
                "cov": self.prior.copy(),
                "s2": s2,
                "rho": math.exp(-1.0 / tau),
                "parts": {},
                "log": 0.0,
            }
            for s2, tau in zip(variance, memory, strict=True)
        ]
        self.knots = None

    def design(self, feature):
        def hats(rank, parts):
            return np.maximum(1.0 - np.abs(rank * parts - np.arange(parts + 1)), 0.0)

        vector = np.zeros(len(self.prior))
        vector[0] = 1.0
        if self.knots is None or not self.intervals:
            return vector
        ranks = [np.interp(x, knot, np.linspace(0, 1, len(knot))) for x, knot in zip(feature, self.knots, strict=True)]
        blocks = [np.ones(1)] + [hats(rank, self.intervals) for rank in ranks]
        if self.intervals > 1:
            blocks += [
                np.kron(hats(ranks[i], 4), hats(ranks[j], 4))
                for i in range(len(ranks))
                for j in range(i + 1, len(ranks))
            ]
        return np.concatenate(blocks)

    def belief(self, model, n, m, feature):
        x = self.design(feature)
        parts = [model["parts"].setdefault(key, [0.0, model["s2"]]) for key in (("c", n), ("s", m), (n, m))]
        mean = x @ model["mu"] + sum(part[0] for part in parts)
        return x, parts, mean, x @ model["cov"] @ x + sum(part[1] for part in parts)

    def predict(self, n, m, feature):
        weight = np.exp([model["log"] for model in self.models])
        each = []
        for model in self.models:
            _, _, mean, variance = self.belief(model, n, m, feature)
            each.append(phi(mean / math.sqrt(1.0 + variance)))
        return float(weight @ each / weight.sum())

    def begin(self, contexts, share):
        if self.knots is None:
            grid = np.linspace(0, 1, self.intervals + 1)
            self.knots = [np.unique(np.quantile(column, grid)) for column in contexts.T]
        weight = np.exp([model["log"] for model in self.models])
        weight = (1.0 - share) * weight / weight.sum() + share / len(weight)
        for model, each in zip(self.models, weight, strict=True):
            model["log"] = math.log(each)
            rho = model["rho"]
            for part in model["parts"].values():
                part[0] *= rho
                part[1] = model["s2"] + rho**2 * (part[1] - model["s2"])
            model["mu"] *= rho**0.1
            model["cov"] = self.prior + rho**0.2 * (model["cov"] - self.prior)

    def learn(self, n, m, feature, success):
        y = 1.0 if success else -1.0
        for model in self.models:
            x, parts, mean, variance = self.belief(model, n, m, feature)
            root = math.sqrt(1.0 + variance)
            z = y * mean / root
            ratio = math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / phi(z)
            model["log"] += math.log(phi(z))
            cross = model["cov"] @ x
            model["mu"] = model["mu"] + y * cross * ratio / root
            model["cov"] = model["cov"] - np.outer(cross, cross) * ratio * (ratio + z) / (1.0 + variance)
            for part in parts:
                old = part[1]
                part[0] += y * old * ratio / root
                part[1] = old - old * old * ratio * (ratio + z) / (1.0 + variance)


def started(num_clients=8, num_servers=2, num_features=2, *, intervals=8, contexts=None, seed=0, **models):
    """A state with knots and a tag for every client."""
    state = probit_init(num_clients, num_servers, num_features, intervals=intervals, **(models or SIX))
    if contexts is None:
        contexts = np.random.default_rng(seed).random((100, num_features))
    return begin_round(state, np.arange(num_clients), contexts, round=1, share=0.0)


def fed(state, contexts, success, *, client=None, server=None):
    rows = len(contexts)
    client = np.zeros(rows, np.int64) if client is None else client
    server = np.zeros(rows, np.int64) if server is None else server
    return settle(learn(state, client, server, contexts, success, round=state.round))


def asked(state, contexts, *, client=0, server=0, round=None):
    rows = len(contexts)
    where = np.full(rows, client), np.full(rows, server)
    return predict(state, *where, contexts, round=state.round if round is None else round)


class TestPrior:
    @pytest.mark.parametrize(
        ("features", "intervals", "size"), [(2, 8, 44), (1, 8, 10), (2, 1, 5), (3, 0, 1), (9, 8, 82)]
    )
    def test_size_and_definiteness(self, features, intervals, size):
        covariance = prior_covariance(features, intervals)
        assert covariance.shape == (size, size)
        assert np.linalg.eigvalsh(covariance)[0] > 0.0

    @pytest.mark.parametrize(
        "wrong",
        [
            {"intervals": -1},
            {"variance": (), "memory": ()},
            {"variance": (1.0,), "memory": (1.0, 2.0)},
            {"variance": (-1.0,), "memory": (1.0,)},
            {"variance": (1.0,), "memory": (0.0,)},
            {"num_clients": 2**40, "num_servers": 2**40},
        ],
    )
    def test_refuses(self, wrong):
        sizes = {"num_clients": 2, "num_servers": 1, "num_features": 1}
        with pytest.raises(ConfigurationError, match="expected"):
            probit_init(**(sizes | {"intervals": 2, "variance": (1.0,), "memory": (1.0,)} | wrong))


class TestMoments:
    @pytest.mark.parametrize("success", [True, False])
    def test_every_part_by_quadrature(self, success):
        """Mean and variance of the curve here, of client, server and pair, each over the other three's sum."""
        state = started(num_clients=1, num_servers=1, variance=(0.7,), memory=(math.inf,))
        here = np.array([[0.3, 0.6]])
        state = fed(state, here, np.array([True]))  # means are not zero any more
        x, weights = np.polynomial.hermite_e.hermegauss(80)
        slot = int(np.flatnonzero(state.key >= 0)[0])

        def parts(state):
            design = Reference(2, 8, (0.7,), (math.inf,))
            design.knots = [knot[:count] for knot, count in zip(state.knot, state.num_knots, strict=True)]
            vector = design.design(here[0])
            return np.array(
                [
                    (vector @ state.mean[0], vector @ state.covariance[0] @ vector),
                    (state.client_mean[0, 0], state.client_variance[0, 0]),
                    (state.server_mean[0, 0], state.server_variance[0, 0]),
                    (state.pair_mean[slot, 0], state.pair_variance[slot, 0]),
                ]
            )

        before, after = parts(state), parts(fed(state, here, np.array([success])))
        total = before.sum(axis=0)
        for (mean, variance), found in zip(before, after, strict=True):
            part = mean + math.sqrt(variance) * x
            others = total[0] - mean + math.sqrt(total[1] - variance) * x
            sign = 1.0 if success else -1.0
            mass = np.outer(weights, weights) * [[phi(sign * (a + b)) for b in others] for a in part]
            mass = mass.sum(axis=1) / mass.sum()
            assert_allclose(found, (mass @ part, mass @ (part - mass @ part) ** 2), rtol=1e-6)

    @pytest.mark.parametrize("z", [3.0, 0.0, -5.0, -11.9999, -12.0001, -20.0, -38.0, -200.0])
    def test_tail(self, z):
        """Logarithm of Phi, and the ratio of density to it, on both sides of where the series takes over."""
        log_mass, ratio = _normal_tail(z)
        assert_allclose(log_mass, log_ndtr(z), rtol=1e-7)
        assert_allclose(ratio, math.exp(-0.5 * z * z - 0.5 * math.log(2 * math.pi) - log_ndtr(z)), rtol=1e-6)

    @settings(max_examples=15, deadline=None)
    @given(seed=st.integers(0, 10_000), features=st.integers(1, 3), intervals=st.integers(0, 5))
    def test_against_the_reference(self, seed, features, intervals):
        rng = np.random.default_rng(seed)
        contexts = rng.random((80, features))
        contexts[:, 0] = np.minimum(contexts[:, 0], 0.6)  # an atom: quantiles coincide
        state = probit_init(6, 2, features, intervals=intervals, **SIX)
        slow = Reference(features, intervals, **SIX)
        for number in range(1, 6):
            state = begin_round(state, np.arange(6), contexts, round=number, share=0.01)
            slow.begin(contexts, 0.01)
            client, server = rng.permutation(6)[:4], rng.integers(0, 2, 4)
            feature = rng.random((4, features)) * 1.2 - 0.1
            success = rng.random(4) < 0.4
            state = learn(state, client, server, feature, success, round=number)
            for row in np.argsort(client):  # the tags' order
                slow.learn(client[row], server[row], feature[row], success[row])
        asked_of = rng.integers(0, 6, 10), rng.integers(0, 2, 10), rng.random((10, features))
        expected = [slow.predict(*where) for where in zip(*asked_of, strict=True)]
        assert_allclose(predict(state, *asked_of, round=5), expected, rtol=1e-9)
        assert_allclose(np.exp(settle(state).log_weight), np.exp([model["log"] for model in slow.models]), rtol=1e-9)

    @pytest.mark.parametrize("kept", [(0,), (2, 5), (0, 1, 2, 3), (1, 2, 3, 4, 5)])
    def test_models_of_no_weight_are_not_asked(self, kept):
        rng = np.random.default_rng(0)
        contexts = rng.random((40, 2))
        models = {"variance": (0.0, 0.1, 0.3, 0.5, 1.0, 2.0), "memory": (math.inf, 9.0, math.inf, 5.0, 30.0, 20.0)}
        state = fed(started(**models), contexts, contexts[:, 0] > 0.3, client=rng.integers(0, 8, 40))

        def of(*models):
            weight = np.full(6, -1e3)
            weight[list(models)] = -0.1 * np.arange(1, len(models) + 1)
            return asked(replace(state, log_weight=weight), contexts, client=3, round=state.round + 4)

        weight = np.exp(-0.1 * np.arange(1, len(kept) + 1))
        expected = sum(share * of(model) for share, model in zip(weight / weight.sum(), kept, strict=True))
        assert_allclose(of(*kept), expected, rtol=1e-12)

    def test_a_thousand_models_and_more_are_asked(self):
        many = {"variance": (0.5,) * 1001, "memory": (math.inf,) * 1001}
        chance = asked(started(num_clients=1, num_features=1, intervals=0, **many), np.zeros((1, 1)))
        assert_allclose(chance, 0.5)

    def test_asking_ahead_equals_waiting(self):
        state = fed(started(), np.full((9, 2), 0.5), np.zeros(9, np.bool_))
        here, curve = np.full((1, 2), 0.5), {"mean": state.mean.copy(), "covariance": state.covariance.copy()}
        now, ahead = asked(state, here), asked(state, here, round=4)
        waited = begin_round(state, np.zeros(0, np.int64), np.zeros((0, 2)), round=4, share=0.0)
        assert_allclose(asked(replace(waited, **curve), here), ahead, rtol=1e-12)  # a curve fades when a round begins
        assert ahead[0] > now[0] + 0.001


class TestCurve:
    @pytest.mark.parametrize("scale", [1.0, 1e-6, -40.0])
    def test_scale_and_origin_do_not_matter(self, scale):
        rng = np.random.default_rng(3)
        contexts, success = rng.random((200, 2)), rng.random(200) < 0.5
        plain = fed(started(contexts=contexts), contexts, success)
        moved = fed(started(contexts=7.0 + scale * contexts), 7.0 + scale * contexts, success)
        # Mirrored ranks, too: the prior is symmetric.
        assert_allclose(asked(moved, 7.0 + scale * contexts), asked(plain, contexts), rtol=1e-6)

    @pytest.mark.parametrize(("intervals", "finds"), [(8, True), (1, False)])
    @pytest.mark.parametrize("shape", ["hump", "exclusive"])
    def test_any_shape(self, intervals, finds, shape):
        """A hump, and a success that needs both features low or both high; straight lines find neither."""
        rng = np.random.default_rng(4)
        contexts = rng.random((1500, 2))

        def truth(x):
            if shape == "hump":
                return np.where(np.abs(x[:, 0] - 0.5) < 0.25, 0.9, 0.1)
            return np.where((x[:, 0] > 0.5) == (x[:, 1] > 0.5), 0.9, 0.1)

        state = started(contexts=contexts, intervals=intervals, variance=(0.0,), memory=(math.inf,))
        state = fed(state, contexts, rng.random(1500) < truth(contexts))
        centres = np.array([[x, y] for x in (0.12, 0.37, 0.63, 0.88) for y in (0.12, 0.88)])
        error = np.abs(asked(state, centres) - truth(centres)).max()
        assert error < 0.3 if finds else error > 0.35

    def test_knots_wait_for_enough_contexts(self):
        state = probit_init(2, 1, 1, intervals=4, **SIX)
        for number in range(1, 9):  # 64 contexts are enough
            assert not state.num_knots.any()
            state = begin_round(state, np.arange(1), np.linspace(0, 1, 8)[:, None], round=number, share=0.0)
            state = fed(state, np.zeros((1, 1)), np.ones(1, np.bool_))
        assert_allclose(state.knot[0], np.linspace(0, 1, 5), atol=0.07)
        assert state.sample.shape == (0, 1)

    def test_features_that_vary_later_get_knots_then(self):
        """What is not measured yet is the same for everybody; it is no reason to ignore it for ever."""
        rng = np.random.default_rng(2)
        state = started(contexts=np.column_stack((np.full(100, 7.0), rng.random(100))))
        assert state.num_knots.tolist() == [1, 9]
        second = state.knot[1].copy()
        contexts = rng.random((90, 2))
        for number, rows in ((2, slice(0, 30)), (3, slice(30, 90))):
            assert state.num_knots.tolist() == [1, 9]
            state = begin_round(state, np.zeros(0, np.int64), contexts[rows], round=number, share=0.0)
        assert state.num_knots.tolist() == [9, 9]
        assert_allclose(state.knot[0], np.quantile(contexts[:, 0], np.linspace(0, 1, 9)))
        assert_allclose(state.knot[1], second)
        assert state.sample.shape == (0, 2)
        state = fed(state, contexts, contexts[:, 0] > 0.5)
        chance = asked(state, np.array([[0.1, 0.5], [0.9, 0.5]]))
        assert chance[0] < 0.2 < 0.8 < chance[1]

    def test_constant_features_are_harmless(self):
        contexts = np.full((100, 2), 3.0)
        state = fed(started(contexts=contexts), contexts, np.arange(100) % 4 > 0)
        assert_allclose(asked(state, contexts[:1]), 0.75, atol=0.06)
        assert np.isfinite(asked(state, np.array([[1e300, -1e300]]))).all()

    def test_contexts_at_the_ends_of_all_numbers(self):
        contexts = np.where(np.arange(100) % 2, 1.7e308, -1.7e308)[:, None]
        state = started(num_features=1, contexts=contexts, intervals=1)
        state = fed(state, contexts, contexts[:, 0] > 0.0)
        low, middle, high = asked(state, np.array([[-1.7e308], [1e290], [1.7e308]]))
        assert low < 0.2 < middle < 0.8 < high


class TestNumbers:
    def test_long_runs_stay_sound(self):
        rng = np.random.default_rng(9)
        state = started(num_clients=3)
        for number in range(2, 42):
            state = begin_round(state, np.zeros(0, np.int64), np.zeros((0, 2)), round=number, share=1e-3)
            state = fed(state, rng.random((500, 2)), np.full(500, number % 10 > 0), client=rng.integers(0, 3, 500))
        assert np.isfinite(np.concatenate([np.ravel(array) for array in pack(state).values()])).all()
        for covariance in state.covariance:
            assert_allclose(covariance, covariance.T, atol=1e-12)
            assert np.linalg.eigvalsh(covariance)[0] > -1e-9
        assert (state.pair_variance >= 0.0).all()
        chance = asked(state, rng.random((100, 2)))
        assert ((chance >= 0.0) & (chance <= 1.0)).all()

    def test_what_cannot_be_happens(self):
        """After thousands of successes, failures: the tail of the normal distribution underflows, nothing breaks."""
        state = started(num_clients=1, variance=(0.0,), memory=(math.inf,))
        certain = replace(state, mean=state.mean + 30.0, covariance=state.covariance * 1e-9)
        certain = fed(certain, np.full((5, 2), 0.5), np.zeros(5, np.bool_))
        assert np.isfinite(certain.log_weight).all()
        assert np.isfinite(certain.mean).all()
        assert certain.log_weight[0] < -1e3


class TestOrder:
    def test_earlier_rounds_first(self):
        """Feedback of round 1 that comes after that of round 2, within one round, is learned from before it."""
        contexts, success = np.array([[0.2, 0.5], [0.8, 0.5]]), np.array([True, False])
        start = started(num_clients=2)
        late = learn(start, np.array([0]), None, contexts[:1], success[:1], round=2)
        late = learn(late, np.array([1]), None, contexts[1:], success[1:], round=1)
        assert late.new_round.tolist() == [1, 2]
        assert late.new_tag.tolist() == [1, 0]
        assert late.new_success.tolist() == [False, True]

    def test_forgotten_before_it_is_learned(self):
        start, contexts = started(num_clients=3), np.array([[0.1, 0.5], [0.5, 0.5], [0.9, 0.5]])
        rows = np.array([0, 2])
        without = settle(learn(start, rows, None, contexts[rows], np.zeros(2, np.bool_), round=1))
        all_three = learn(start, np.arange(3), None, contexts, np.zeros(3, np.bool_), round=1)
        forgotten = settle(reset(all_three, probit_init(3, 2, 2, intervals=8, **SIX), np.array([1])))
        assert forgotten.num_pairs == 2
        assert_allclose(asked(forgotten, contexts), asked(without, contexts), rtol=1e-12)


class TestMemory:
    @pytest.mark.parametrize("count", [10, 100])
    def test_contexts_below_zero_are_read_back(self, count):
        """From a file, before the knots are known and after."""
        contexts = np.linspace(-3.0, 1.0, 2 * count).reshape(count, 2)
        state = learn(started(contexts=contexts), np.arange(1), None, contexts[:1], np.ones(1, np.bool_), round=1)
        again = unpack(probit_init(8, 2, 2, intervals=8, **SIX), pack(state), round=1)
        assert_allclose(asked(again, contexts), asked(state, contexts), rtol=0.0)

    def test_many_pairs(self):
        """The table grows, and finds what was there before."""
        rng = np.random.default_rng(10)
        state = started(num_clients=500, num_servers=4, variance=(0.5,), memory=(math.inf,), intervals=0)
        for server in range(4):
            where = {"client": np.arange(500), "server": np.full(500, server)}
            state = fed(state, rng.random((500, 2)), np.arange(500) % 2 == server % 2, **where)
        assert state.num_pairs == 2000
        assert state.key.shape[0] == 4096
        chance = predict(state, np.arange(500), np.zeros(500, np.int64), np.zeros((500, 2)), round=1)
        assert chance[::2].min() > chance[1::2].max()

    def test_forgotten_clients_leave_the_table(self):
        fresh = started(num_clients=400, intervals=0, variance=(0.5,), memory=(math.inf,))
        initial = probit_init(400, 2, 2, intervals=0, variance=(0.5,), memory=(math.inf,))
        state = fed(fresh, np.zeros((400, 2)), np.zeros(400, np.bool_), client=np.arange(400))
        state = reset(state, initial, np.arange(300))
        stranger = predict(state, np.array([0, 399]), None, np.zeros((2, 2)), round=1)
        assert stranger[0] > stranger[1]
        assert fed(state, np.zeros((1, 2)), np.ones(1, np.bool_)).num_pairs == 400  # no tag: ignored
        state = begin_round(state, np.arange(300), np.zeros((0, 2)), round=2, share=0.0)
        state = fed(state, np.zeros((300, 2)), np.zeros(300, np.bool_), client=np.arange(300))
        assert state.num_pairs == 400
