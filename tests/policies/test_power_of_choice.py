"""Power-of-Choice against its definition."""

import numpy as np
import pytest
from scipy.stats import chisquare

from fedroster.policies import PowerOfChoice
from fedroster.policies.power_of_choice import PowerOfChoiceState
from fedroster.types import Streams
from reference import draw_orders
from rounds import context_of


def known(loss, sizes=None):
    count = len(loss)
    sizes = np.zeros(count) if sizes is None else np.array(sizes, np.float64)
    return PowerOfChoiceState(np.array(loss, np.float64), np.ones(count, np.int64), sizes)


def cohorts(policy, state, context, draws):
    for draw in range(draws):
        yield policy.select(state, context, rng=Streams(8).at("policy", draw)).links


def definition(loss, weight, d, size):
    """Probability of every cohort: all ordered candidate sets, then the greatest losses."""
    chance = {}
    for order, p in draw_orders(weight, d):
        best = tuple(sorted(sorted(order, key=lambda client: -loss[client])[:size]))
        chance[best] = chance.get(best, 0.0) + p
    return chance


def test_the_cohorts_have_the_probabilities_of_the_definition():
    loss, sizes = [0.5, 2.0, 1.0, 4.0, 3.0], [4.0, 1.0, 2.0, 1.0, 3.0]
    expected = definition(loss, sizes, 3, 2)
    assert sum(expected.values()) == pytest.approx(1.0)
    counts = dict.fromkeys(expected, 0)
    for links in cohorts(PowerOfChoice(d=3), known(loss, sizes), context_of(5, 2), 10_000):
        counts[tuple(links.tolist())] += 1
    chance = np.array(list(expected.values()))
    assert chisquare(list(counts.values()), chance * 10_000).pvalue > 0.001
    uniform = definition(loss, [1.0] * 5, 3, 2)  # negative control: candidates not by size
    wrong = np.array([uniform[cohort] for cohort in expected])
    assert chisquare(list(counts.values()), wrong * 10_000).pvalue < 1e-6


def test_twice_the_cohort_by_default():
    found = [cohorts(policy, known(range(8)), context_of(8, 2), 20) for policy in (PowerOfChoice(), PowerOfChoice(d=4))]
    np.testing.assert_array_equal(*map(list, found))


def test_the_unknown_go_first():
    state = known([5.0, np.inf, 7.0, np.inf])
    for links in cohorts(PowerOfChoice(d=4), state, context_of(4, 2), 20):
        assert links.tolist() == [1, 3]


def test_polling_asks_the_candidates_and_nobody_else():
    losses, asked = np.array([0.5, 2.0, 1.0, 4.0, 3.0, 9.0]), []

    def poll(rows):
        asked.append(rows)
        return losses[rows]

    policy, stale = PowerOfChoice(d=3, variant="pow-d"), known([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
    assert (policy.polls, PowerOfChoice().polls) == (True, False)
    context = context_of(6, 2, available=[True, True, True, True, True, False]).with_poll(poll)
    for links in cohorts(policy, stale, context, 50):
        assert asked[-1].shape == (3,)
        by_present_loss = asked[-1][np.argsort(losses[asked[-1]])]  # not by the last known
        assert set(links) == set(by_present_loss[-2:])
    assert set(np.concatenate(asked)) == {0, 1, 2, 3, 4}
    asked.clear()
    for _ in cohorts(PowerOfChoice(d=3), stale, context, 5):
        assert asked == []


def test_a_candidate_that_does_not_answer_goes_last():
    context = context_of(3, 2).with_poll(lambda rows: np.where(rows == 1, np.nan, 0.0))
    for links in cohorts(PowerOfChoice(d=3, variant="pow-d"), known([0.0, 5.0, 0.0]), context, 20):
        assert links.tolist() == [0, 2]


def test_nobody_is_polled_in_vain():
    """As many candidates as places: their losses decide nothing."""

    def poll(rows):
        raise AssertionError("asked")

    context = context_of(4, 3, available=[True, False, True, True]).with_poll(poll)
    for links in cohorts(PowerOfChoice(variant="pow-d"), known([1, 2, 3, 4]), context, 5):
        assert links.tolist() == [0, 2, 3]


def test_where_nobody_can_be_asked_the_last_known_losses_decide():
    for one, other in zip(
        cohorts(PowerOfChoice(d=4, variant="pow-d"), known([1, 9, 2, 3, 8]), context_of(5, 2), 20),
        cohorts(PowerOfChoice(d=4), known([1, 9, 2, 3, 8]), context_of(5, 2), 20),
        strict=True,
    ):
        assert one.tolist() == other.tolist()
