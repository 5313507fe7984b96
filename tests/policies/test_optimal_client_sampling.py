"""Optimal client sampling: probabilities by hand and against a search, its estimate, and the two legs of a round."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroster import make_policy
from fedroster.core.errors import ConfigurationError
from fedroster.lab.worlds.network import TraceNetwork
from fedroster.networks import FlatNetwork
from fedroster.networks.volatile import VolatileNetwork
from fedroster.policies import OptimalClientSampling
from fedroster.policies.optimal_client_sampling import approximate, optimal
from fedroster.policies.size_weighted import SizesState
from fedroster.simulation import simulate
from fedroster.types import Outcome, Streams
from reference import ocs_probabilities
from rounds import context_of, drawn_weights

NORMS = st.lists(st.floats(0.0, 1e6) | st.integers(0, 3), min_size=1, max_size=12)


@pytest.mark.parametrize("find", [optimal, approximate])
@pytest.mark.parametrize(
    ("norm", "size", "expected"),
    [
        ([1, 2, 3, 10], 2, [1 / 6, 1 / 3, 1 / 2, 1]),  # a public implementation has 1.667 for the last
        ([3, 3, 3, 3, 3], 2, [0.4] * 5),
        ([10, 1, 3, 2], 2, [1, 1 / 6, 1 / 2, 1 / 3]),
        ([0, 0, 0], 2, [0, 0, 0]),
    ],
)
def test_probabilities_by_hand(find, norm, size, expected):
    np.testing.assert_allclose(find(np.array(norm, np.float64), size), expected, atol=1e-12)


@settings(max_examples=300)
@given(NORMS, st.integers(1, 12))
def test_probabilities_are_the_optimal_ones(norm, size):
    """No probability exceeds 1; their sum is m or the number of positive norms; enough passes find the same."""
    norm = np.array(norm, np.float64)
    norm /= max(norm.max(), 1.0)
    norm[norm < 1e-9] = 0.0
    found = optimal(norm, size)
    assert ((found >= 0.0) & (found <= 1.0)).all()
    assert found.sum() == pytest.approx(min(size, np.count_nonzero(norm)))
    np.testing.assert_allclose(found, ocs_probabilities(norm.tolist(), size), atol=1e-9)
    few, many = approximate(norm, size), approximate(norm, size, passes=100)
    assert ((few >= 0.0) & (few <= 1.0)).all()
    assert few.sum() <= found.sum() + 1e-9
    np.testing.assert_allclose(many, found, atol=1e-6)


@pytest.mark.parametrize("variant", ["exact", "aocs"])
def test_the_estimate_is_that_of_the_candidates_by_samples(variant):
    policy, sizes, norm = OptimalClientSampling(variant=variant), [10, 20, 30, 40, 100], [4.0, 0.5, 1.0, 2.0, 0.1]
    found = drawn_weights(policy, sizes, 2, norm=norm)
    np.testing.assert_allclose(found.mean(axis=0), np.array(sizes) / 200, rtol=0.08)
    chance = (found > 0.0).mean(axis=0)
    np.testing.assert_allclose(chance, optimal(np.array(sizes) * norm, 2), atol=0.03)
    there = drawn_weights(policy, sizes, 2, norm=norm, available=[True, True, False, True, False])
    np.testing.assert_allclose(there.mean(axis=0), np.array([10, 20, 0, 40, 0]) / 70, rtol=0.08, atol=1e-9)


def test_candidates_that_do_not_answer_or_have_not_changed_do_not_upload():
    policy, sizes = OptimalClientSampling(), [10.0] * 4
    found = drawn_weights(policy, sizes, 3, norm=[np.nan, 0.0, 1.0, 1.0], rounds=20)
    np.testing.assert_allclose(found, [[0.0, 0.0, 1 / 3, 1 / 3]] * 20)
    assert drawn_weights(policy, sizes, 3, norm=[0.0] * 4, rounds=3).sum() == 0.0
    asked = []
    context = context_of(9, 2).with_poll(lambda rows: asked.append(rows) or np.ones(rows.shape[0]))
    OptimalClientSampling(candidates=4).select(SizesState(np.zeros(9)), context, rng=Streams(0).at("p"))
    assert asked[0].shape == (4,)
    few = OptimalClientSampling(candidates=1).select(SizesState(np.zeros(9)), context, rng=Streams(0).at("p"))
    assert few.links.shape == (2,)  # fewer candidates than places are as many


def played(network, **options):
    """Rounds with norms that grow with the client, and the network's rounds as they would be in one leg."""
    policy = make_policy("optimal-client-sampling:candidates=6")
    asked = []
    rounds = simulate(
        policy, network, rounds=12, seed=3, ask=lambda _, rows: asked.append(rows) or 1.0 + rows, **options
    )
    return list(rounds), asked


def test_a_round_lasts_until_the_last_candidate_has_trained_and_the_last_upload_has_come():
    network = FlatNetwork(num_clients=10, cohort_size=2)
    rounds, asked = played(network)
    state = network.init(rng=Streams(3).at("environment-init"))
    for one, rows in zip(rounds, asked, strict=True):
        context, whole = network.observe(state, one.context.round, rng=Streams(3).at("environment", one.context.round))
        part = whole.expected_upload_s / whole.expected_time_s
        wait_s = (whole.exchange_time_s * (1.0 - part))[rows].max()
        upload_s = (whole.exchange_time_s * part)[one.selection.links].max()
        assert one.time_s == pytest.approx(wait_s + upload_s)
        assert one.time_s > whole.exchange_time_s[one.selection.links].max() - 1e-9
        np.testing.assert_array_equal(one.selection.polled, rows)
        state = network.advance(state, context, one.selection)


def test_a_client_that_leaves_before_it_has_trained_reports_no_norm():
    rounds, asked = played(VolatileNetwork(num_clients=30, cohort_size=3, stay_s=3.0))
    num_asked = sum(one.selection.polled.shape[0] for one in rounds)
    assert sum(rows.shape[0] for rows in asked) < num_asked
    dropped, told = played(FlatNetwork(num_clients=10, cohort_size=2, dropout=0.5))
    for one, rows in zip(dropped, told, strict=True):
        assert one.outcome.responds[rows].all()


def test_the_deadline_is_one_of_both_legs():
    rest = {"responds": np.ones(3, np.bool_), "deadline_s": 5.0}
    outcome = Outcome(np.array([4.0, 6.0, 8.0]), np.full(3, 4.0), np.full(3, 1.0), **rest)
    np.testing.assert_allclose(outcome.training_s, [3.0, 4.5, 6.0])
    after = outcome.after_training(4.5)
    np.testing.assert_allclose(after.exchange_time_s, [1.0, 1.5, 2.0])
    assert after.deadline_s == 0.5
    assert not after.in_time.any()


def test_a_network_with_a_clock_of_its_own_is_refused():
    with pytest.raises(ConfigurationError, match="asks for norms between training and upload"):
        played(TraceNetwork(num_clients=20, cohort_size=2))
