"""The flat network: Table 1, section 6.1.1 and Choices A1, A2 and A7."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from fedroster.networks import FlatNetwork
from fedroster.networks.flat import scatter
from fedroster.policies import RBCSF
from fedroster.simulation import simulate
from fedroster.testing import EnvironmentContract
from fedroster.types import Outcome, Selection, Streams
from variants import check_variant, play


class FlatContract(EnvironmentContract):
    def exogenous(self, context, outcome):
        """The cold start is history; availability, the other features, uploads and answers are not."""
        return {
            "available": context.available,
            "compute": context.features[:, 0],
            "bandwidth": context.features[:, 2],
            "upload": outcome.expected_upload_s,
            "responds": outcome.responds,
        }


@pytest.mark.usefixtures("resumes_in_forks")
class TestFlatNetwork(FlatContract):
    def environment(self):
        return FlatNetwork()


@pytest.mark.parametrize(
    "network",
    [
        FlatNetwork(num_clients=7, cohort_size=3, availability=0.5, noise=0.3, dropout=0.4, log_base="e"),
        FlatNetwork(noise_shape="half-normal", drift=0.5, drift_rounds=40.0, churn=0.3, churn_rounds=30.0),
        FlatNetwork(num_clients=9, cohort_size=3, noise_shape="log-normal", dropout=0.2, drift=1.0, churn=0.5),
        FlatNetwork(noise_shape="bimodal", noise=0.6),
    ],
    ids=["drop-outs", "changes", "long tail", "two minds"],
)
def test_variants(network):
    check_variant(FlatContract, network)


class Tells(Outcome):
    """Reveals the times of clients that do not answer."""

    def reveal(self, context, selection):
        honest = Outcome.reveal(self, context, selection)
        return dataclasses.replace(honest, exchange_time_s=self.exchange_time_s[selection.links])


def changed(kind=Outcome, **changes):
    """Makes another outcome of one, in which these fields follow from the times of exchanges."""

    def of(outcome):
        fields = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
        return kind(**fields | {name: change(outcome.exchange_time_s) for name, change in changes.items()})

    return of


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (changed(exchange_time_s=lambda time_s: time_s * 1.03), "expectations_are_the_mean_of_what_happens"),
        (changed(exchange_time_s=lambda time_s: time_s - 2.0), "shapes_types_and_ranges"),
        (changed(exchange_time_s=lambda time_s: time_s.astype(np.float32)), "shapes_types_and_ranges"),
        (changed(expected_upload_s=lambda time_s: time_s * 9.0), "shapes_types_and_ranges"),
        (changed(stay_s=lambda time_s: time_s / 2.0), "shapes_types_and_ranges"),  # it answers although it has left
        (changed(stay_s=lambda time_s: time_s[:, None]), "shapes_types_and_ranges"),
        (changed(Tells), "reveal_shows_only_the_chosen"),
        ("unseeded", "the_seed_decides"),
        ("writes", "observing_changes_nothing"),
    ],
)
def test_the_contract_notices(broken, test):
    """Negative controls: each network breaks one rule."""

    @dataclasses.dataclass(frozen=True)
    class Broken(FlatNetwork):
        def observe(self, state, round, /, *, rng):
            rng = np.random.default_rng() if broken == "unseeded" else rng
            context, outcome = FlatNetwork.observe(self, state, round, rng=rng)
            state.cold[0] ^= broken == "writes"
            return context, broken(outcome) if callable(broken) else outcome

    class Contract(FlatContract):
        def environment(self):
            return Broken(dropout=0.2)

    with pytest.raises(AssertionError):
        getattr(Contract(), f"test_{test}")()


def rounds(network, num_rounds):
    return [(context, outcome) for context, outcome, _ in play(network, num_rounds)]


def test_the_logarithm_is_selectable():
    """Choice A2."""
    natural = FlatNetwork(log_base="e").spectral_efficiency
    np.testing.assert_allclose(natural, np.log([1001, 101, 11, 2]), rtol=1e-15)
    assert FlatNetwork(log_base="e").max_expected_time_s == pytest.approx(9 + 10 / math.log(2))


@pytest.mark.parametrize(("drift", "part"), [(0.0, 0.8), (0.7, 0.7)])
def test_the_bounds_hold_and_are_met(drift, part):
    """L and S bound what is drawn, and K the expected times, none by much more than a fifth."""
    network = FlatNetwork(drift=drift, drift_rounds=30.0)
    drawn = rounds(network, 300)
    norm = max(np.linalg.norm(context.features, axis=1).max() for context, _ in drawn)
    longest = max(outcome.expected_time_s.max() for _, outcome in drawn)
    theta = network.init(rng=Streams(0).at("environment-init")).coefficients
    assert 0.8 * network.feature_norm < norm <= network.feature_norm
    assert part * network.max_expected_time_s < longest <= network.max_expected_time_s
    assert network.coefficient_norm == pytest.approx(math.exp(drift) * np.linalg.norm(theta, axis=0).max(), rel=1e-12)
    assert drawn[0][0].features.flags.f_contiguous  # what the estimator reads without a copy


@pytest.mark.parametrize("num_clients", [1, 3, 4, 5, 7, 40, 41, 1000])
def test_classes_are_equal_blocks(num_clients):
    classes = FlatNetwork(num_clients=num_clients).client_class
    assert classes.shape == (num_clients,)
    assert (np.diff(classes) >= 0).all()
    sizes = np.bincount(classes, minlength=4)
    assert sizes.shape == (4,)
    assert sizes.max() - sizes.min() <= 1


def test_other_classes():
    network = FlatNetwork(num_clients=6, train_time_s=(1.0, 9.0), cold_start_s=(0.0, 2.0), snr=(3.0, 1.0))
    np.testing.assert_array_equal(network.client_class, [0, 0, 0, 1, 1, 1])
    theta = network.init(rng=Streams(0).at("environment-init")).coefficients
    np.testing.assert_allclose(theta[:, [0, 5]].T, [[1.0, 0.0, 0.5], [9.0, 2.0, 1.0]])


def test_the_defaults_draw_what_they_always_drew():
    """Tables 1 and 2 and section 6.1.1 once more, bit for bit: mu, B, I, noise, answers, in this order."""
    network = FlatNetwork(dropout=0.1)
    assert (network.spec.num_clients, network.spec.cohort_size, network.spec.num_features) == (40, 8, 3)
    streams = Streams(9)
    state = network.init(rng=streams.at("environment-init"))
    train_s, eta = np.repeat([1.0, 2.0, 3.0, 4.0], 10), np.repeat(np.log1p([1000.0, 100.0, 10.0, 1.0]), 10)
    for t in range(1, 6):
        context, outcome = network.observe(state, t, rng=streams.at("environment", t))
        rng = streams.at("environment", t)
        mu, bandwidth = rng.uniform(0.5, 2.0, 40), rng.uniform(2e6, 4e6, 40)
        available, noise, responds = rng.random(40) < 0.8, rng.random(40), rng.random(40) >= 0.1
        upload_s = (1.0 / (eta / math.log(2.0))) * (20e6 / bandwidth)
        expected_s = train_s * (1.0 / mu) + 1.0 + upload_s
        np.testing.assert_array_equal(outcome.expected_upload_s, upload_s)
        np.testing.assert_array_equal(outcome.expected_time_s, expected_s)
        np.testing.assert_array_equal(outcome.exchange_time_s, (noise * -2.0 + 2.0) * expected_s)
        np.testing.assert_array_equal(outcome.responds, responds)
        np.testing.assert_array_equal(context.available, available)
        assert context.members is None


SHAPES = ["uniform", "half-normal", "log-normal", "bimodal"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("amount", [0.0, 0.3, 1.0])
def test_scatter_has_mean_one_and_the_deviation_of_the_uniform(shape, amount):
    """By integration over the uniform numbers."""
    uniform = (np.arange(400_000) + 0.5) / 400_000
    ratio = scatter(uniform, amount, shape)
    assert ratio.mean() == pytest.approx(1.0, abs=1e-4)
    assert ratio.std() == pytest.approx(amount / math.sqrt(3.0), rel=2e-3, abs=1e-12)
    assert (ratio > 0.0).all()


@pytest.mark.parametrize("amount", [0.25, 1.0])
def test_the_ranges_of_scatter(amount):
    """As documented; and not even the extremes of a generator make a time zero or infinite."""
    extremes = np.array([0.0, 2.0**-53, 0.5, 0.8, 1.0 - 2.0**-53])
    for shape in SHAPES:
        ratio = scatter(extremes, amount, shape)
        assert (ratio > 0.0).all()
        assert np.isfinite(ratio).all()
    assert scatter(extremes, amount, "half-normal")[0] == pytest.approx(1.0 - 0.76 * amount, abs=0.01)
    assert (np.diff(scatter(extremes, amount, "half-normal")) > 0.0).all()
    low, high = 1.0 - 0.29 * amount, 1.0 + 1.15 * amount
    np.testing.assert_allclose(scatter(extremes, amount, "bimodal"), [low, low, low, high, high], atol=0.01)
    sample = scatter(np.random.default_rng(1).random(100_000), amount, "bimodal")
    assert binomtest(int((sample > 1.0).sum()), 100_000, 0.2).pvalue > 0.001


@pytest.mark.parametrize("shape", SHAPES)
def test_the_network_scatters_so(shape):
    for context, outcome in rounds(FlatNetwork(noise_shape=shape, noise=0.7), 3):
        rng = Streams(0).at("environment", context.round)
        for draw in (rng.uniform, rng.uniform, rng.random):
            draw(size=40)
        ratio = scatter(rng.random(40), 0.7, shape)
        np.testing.assert_allclose(outcome.exchange_time_s / outcome.expected_time_s, ratio, rtol=1e-14)


def test_drift():
    """Every expected time is multiplied by exp(d sin 2 pi (t / P + phi_n)), and nothing else changes."""
    still, moving = FlatNetwork(), FlatNetwork(drift=0.6, drift_rounds=20.0)
    phase = moving.init(rng=Streams(0).at("environment-init")).phase
    assert kstest(phase, "uniform").pvalue > 0.001
    factors = []
    for (context, steady), (same, drifted) in zip(rounds(still, 40), rounds(moving, 40), strict=True):
        factor = np.exp(0.6 * np.sin(2.0 * np.pi * (context.round / 20.0 + phase)))
        np.testing.assert_array_equal(context.features, same.features)
        np.testing.assert_array_equal(context.available, same.available)
        np.testing.assert_allclose(drifted.expected_time_s, factor * steady.expected_time_s, rtol=1e-13)
        np.testing.assert_allclose(drifted.expected_upload_s, factor * steady.expected_upload_s, rtol=1e-13)
        np.testing.assert_allclose(drifted.exchange_time_s, factor * steady.exchange_time_s, rtol=1e-13)
        factors.append(factor)
    np.testing.assert_allclose(factors[0], factors[20], rtol=1e-12)  # a cycle of 20 rounds
    assert np.max(factors) == pytest.approx(math.exp(0.6), rel=0.02)
    assert np.min(factors) == pytest.approx(math.exp(-0.6), rel=0.02)


def test_polls_drift_as_exchanges_do():
    """Without training a poll is an exchange; its time is that of the round, of each client."""
    quick, still = {"train_time_s": (0.0,) * 4, "noise": 0.0}, FlatNetwork(drift_rounds=20.0)
    moving = FlatNetwork(drift=0.6, drift_rounds=20.0, **quick)
    state, some = moving.init(rng=Streams(0).at("environment-init")), np.array([31, 0, 7])
    seen = []
    for context, outcome in rounds(moving, 20):
        poll_s = moving.poll_times(state, context, some)
        np.testing.assert_allclose(poll_s, outcome.exchange_time_s[some], rtol=1e-13)
        seen.append(poll_s / FlatNetwork(**quick).poll_times(state, context, some))
    assert np.ptp(seen, axis=0).min() > 1.0  # negative control: the factor changes
    context, outcome = rounds(still, 1)[0]
    np.testing.assert_array_equal(  # and without drift nothing does
        still.poll_times(state, context, some),
        dataclasses.replace(still, drift_rounds=3.0).poll_times(state, context, some),
    )


@pytest.mark.parametrize("drift", [10.0, 100.0])
def test_the_largest_drift_leaves_numbers_finite(drift):
    """Pytest makes a warning of an overflow an error."""
    network = FlatNetwork(drift=drift, drift_rounds=4.0, noise_shape="log-normal")
    for _, outcome in rounds(network, 8):
        assert np.isfinite(np.square(outcome.exchange_time_s)).all()
        assert (outcome.exchange_time_s > 0.0).all()
    for played in simulate(RBCSF(), network, rounds=20, seed=0):
        assert math.isfinite(played.time_s)
    assert math.isfinite(network.max_expected_time_s)


def test_churn():
    """A client is away for a share of its cycle, in one piece; who is away is never available."""
    network = FlatNetwork(num_clients=400, churn=0.3, churn_rounds=50.0)
    drawn = rounds(network, 100)
    members = np.array([context.members for context, _ in drawn])
    available = np.array([context.available for context, _ in drawn])
    phase = network.init(rng=Streams(0).at("environment-init")).phase
    clock = (np.arange(1, 101)[:, None] / 50.0 + phase) % 1.0
    np.testing.assert_array_equal(members, clock >= 0.3)
    assert not (available & ~members).any()
    assert (~members).mean(axis=0) == pytest.approx(0.3, abs=0.011)
    assert ((~members).sum(axis=1) / 400).mean() == pytest.approx(0.3, abs=0.02)
    assert (members[1:] & ~members[:-1]).sum(axis=0).max() <= 2  # it comes back once a cycle
    assert binomtest(int(available.sum()), int(members.sum()), 0.8).pvalue > 0.001
    # What is drawn is what is drawn without churn.
    for (context, outcome), (plain, same) in zip(drawn, rounds(FlatNetwork(num_clients=400), 100), strict=True):
        np.testing.assert_array_equal(outcome.exchange_time_s, same.exchange_time_s)
        np.testing.assert_array_equal(context.available, plain.available & context.members)


def test_everybody_is_cold_at_first_and_after_a_pause():
    """Choice A1: s = 1 when the client did not take part in the previous round.  Its phase stays."""
    network = FlatNetwork(num_clients=5, cohort_size=2, drift=0.5)
    state = network.init(rng=Streams(0).at("environment-init"))
    phase = state.phase.copy()
    expected = [[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [1, 1, 0, 0, 1], [1, 1, 1, 1, 1]]
    for number, chosen in enumerate(([1, 3], [2, 3], [], [0]), start=1):
        context, _ = network.observe(state, number, rng=Streams(0).at("environment", number))
        np.testing.assert_array_equal(context.features[:, 1], expected[number - 1])
        state = network.advance(state, context, Selection(number, np.array(chosen, np.int64)))
        np.testing.assert_array_equal(state.phase, phase)
