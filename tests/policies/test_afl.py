"""AFL against its law: who is left out, who is drawn by value, and who at random."""

import numpy as np
import pytest

from fedroster.policies import AFL
from fedroster.policies.afl import valuations
from fedroster.policies.power_of_choice import PowerOfChoiceState
from fedroster.types import ProblemSpec, Streams
from reference import afl_inclusion
from rounds import context_of, counts, report


def known(loss, num_samples=100.0):
    loss = np.array(loss, np.float64)
    return PowerOfChoiceState(loss, np.ones(loss.shape[0], np.int64), np.full(loss.shape[0], num_samples))


def test_a_value_is_the_root_of_the_size_times_the_loss():
    assert valuations(np.array([3.0, 0.5]), np.array([100.0, 16.0])).tolist() == [30.0, 2.0]
    assert valuations(np.array([1.0, np.inf, 1.0]), np.array([4.0, 0.0, 16.0])).tolist() == [2.0, np.inf, 4.0]


def test_the_part_that_is_left_out_is_not_rounded_down():
    """0.29 x 100 is 28.999999999999996."""
    found = counts(AFL(alpha_1=0.29, alpha_3=0.0), known(range(1, 101)), context_of(100, 60), 20)
    assert not found[:29].any()


@pytest.mark.parametrize(
    ("size", "alphas"), [(3, (0.5, 0.05, 0.34)), (4, (0.2, 0.02, 0.5)), (4, (0.75, 0.01, 0.0)), (3, (0.0, 0.0, 0.1))]
)
def test_inclusion_is_that_of_the_paper(size, alphas):
    """By all orders of draws; the third case has fewer clients left than are to be drawn by value."""
    value = np.array([3.0, 1.0, 8.0, 5.0, 6.5, 2.0, 7.0])
    found = counts(AFL(*alphas), known(value), context_of(7, size), 3000, seed=4) / 3000
    np.testing.assert_allclose(found, afl_inclusion(10.0 * value, size, *alphas), atol=0.03)


def test_nine_of_ten_are_drawn_by_value():
    """63 of 90 with a share of 0.3 at random, although 0.7 x 90 is a little less than 63 in floating point."""
    state, context = known(np.where(np.arange(400) < 63, 1e4, 0.0)), context_of(400, 90)
    links = AFL(alpha_1=0.5, alpha_3=0.3).select(state, context, rng=Streams(1).at("policy")).links
    assert set(range(63)) <= set(links.tolist())


def test_clients_without_a_loss_go_first_and_the_latest_loss_counts():
    policy = AFL()
    state = policy.init(ProblemSpec(6, 2, 3), rng=np.random.default_rng(0))
    state = policy.update(state, report([0, 1, 2], loss=[9.0, 9.0, np.nan], num_samples=[5, 5, 5], round=3))
    state = policy.update(state, report([0], loss=[1.0], round=2))
    assert state.loss.tolist() == [9.0, 9.0, np.inf, np.inf, np.inf, np.inf]
    assert state.num_samples.tolist() == [5.0, 5.0, 5.0, 0.0, 0.0, 0.0]
    policy, context = AFL(alpha_1=0.0, alpha_3=0.0), context_of(6, 2, available=[True, True, False, True, True, False])
    assert policy.select(state, context, rng=Streams(1).at("policy")).links.tolist() == [3, 4]
