"""E3CS against its equations: exact allocation, inclusion probabilities, weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from fedroster.core.problem import ProblemSpec, Status
from fedroster.policies import E3CS
from fedroster.policies.e3cs import E3CSState, allocate
from rounds import context_of, counts, report


def allocation_by_root(weight, size, quota):
    """The definition: alpha by root finding, then the probabilities."""
    shared = size - len(weight) * quota
    plain = [quota + shared * value / sum(weight) for value in weight]
    if max(plain) <= 1.0:
        return plain

    def excess(alpha):
        return shared * alpha - sum(min(value, (1.0 - quota) * alpha) for value in weight)

    # Zero is a root too; below the least weight the excess is shared alpha - K (1 - sigma) alpha < 0.
    alpha = brentq(excess, min(weight) / 2.0, 2.0 * max(weight) / (1.0 - quota) + 1.0, xtol=1e-14, rtol=1e-14)
    capped = [min(value, (1.0 - quota) * alpha) for value in weight]
    return [quota + shared * value / sum(capped) for value in capped]


@settings(max_examples=300)
@given(
    st.lists(st.floats(0.01, 100.0), min_size=2, max_size=20),
    st.integers(1, 19),
    st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0]),
)
def test_the_allocation_is_the_definition(weight, size, share):
    if size >= len(weight):
        return
    quota = share * size / len(weight)
    found, overflow = allocate(np.log(weight), size, quota)
    assert found.sum() == pytest.approx(size, rel=1e-12)
    assert (found >= quota * (1 - 1e-12)).all()
    assert (found <= 1.0).all()
    assert (found[overflow] == 1.0).all()
    np.testing.assert_allclose(found, allocation_by_root(weight, size, quota), rtol=1e-6, atol=1e-9)
    order = np.argsort(weight)
    assert (np.diff(found[order]) >= -1e-12).all()  # a greater weight is never chosen less often


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e9, 1e17])
def test_weights_may_differ_by_any_factor(scale):
    log_weight = scale * np.array([1.0, 7.0, 3.0, 7.0, 2.0, 0.0, -50.0])
    found, overflow = allocate(log_weight, 3, 0.0)
    assert found.sum() == pytest.approx(3.0)
    assert found[[1, 3]].tolist() == [1.0, 1.0]
    assert found[2] > 0.64
    assert overflow[[1, 3]].all()


@pytest.mark.parametrize("log_weight", [-4.6e18, 0.0, 1e300])
def test_equal_weights_share_alike_wherever_they_are(log_weight):
    found, _ = allocate(np.full(8, log_weight), 3, 0.0)
    np.testing.assert_allclose(found, 3 / 8)
    found, _ = allocate(np.array([log_weight + 1e17, *[log_weight] * 7]), 3, 0.0)
    assert found.sum() == pytest.approx(3.0)


def with_weights(weight):
    nothing = np.zeros(0, np.int64)
    return E3CSState(nothing, nothing, np.zeros(0), np.log(weight))


def test_clients_are_included_as_often_as_allocated():
    policy, weight = E3CS(fairness=0.5), np.array([0.5, 1.0, 1.5, 2.0, 3.0, 9.0, 9.0, 4.0])
    state, context = with_weights(weight), context_of(8, 3, available=[1, 1, 1, 1, 1, 1, 1, 0])
    draws = 10_000
    found = counts(policy, state, context, draws, seed=1)
    expected = np.array([*allocation_by_root(weight[:7].tolist(), 3, 0.5 * 3 / 7), 0.0])
    deviation = np.sqrt(draws * expected * (1 - expected))
    assert (np.abs(found - draws * expected) <= 4.0 * deviation + 1e-9).all()


@pytest.mark.parametrize("fairness", [0.0, 0.5])
def test_weights_grow_as_published(fairness):
    """Round after round beside a loop over clients."""
    policy, rng = E3CS(fairness=fairness, eta=0.7), np.random.default_rng(2)
    count, size = 9, 3
    state = policy.init(ProblemSpec(count, size, 1), rng=rng)
    log_weight = [0.0] * count
    overflowed = 0
    for number in range(1, 80):
        here = rng.random(count) < 0.8
        here[0] = True
        context = context_of(count, size, round=number, available=here)
        clients = np.flatnonzero(here).tolist()
        selection = policy.select(state, context, rng=rng)
        state = policy.commit(state, context, selection)
        success = rng.random(count) < np.linspace(0.1, 0.9, count)
        links = selection.links
        status = np.where(success[links], Status.COMPLETED, rng.choice([Status.LATE, Status.DROPPED, Status.FAILED]))
        state = policy.update(state, report(links, round=number, status=status))
        if len(clients) > size:
            quota = fairness * size / len(clients)
            probability, overflow = allocate(np.array([log_weight[n] for n in clients]), size, quota)
            overflowed += int(overflow.any())
            for n, p, over in zip(clients, probability, overflow, strict=True):
                if n in links and success[n] and not over:
                    log_weight[n] += (size - len(clients) * quota) * policy.eta * (1.0 / p) / len(clients)
        np.testing.assert_allclose(state.log_weight, log_weight, rtol=1e-12)
        assert state.open_round.size == 0
    assert overflowed > 0
    assert np.argmax(state.log_weight) > 4


def test_late_feedback_counts_with_the_odds_of_its_own_round():
    policy = E3CS(fairness=0.0)
    state = with_weights(np.array([1.0, 1.0, 2.0, 4.0]))
    gains = {}
    for number in (1, 2):
        context = context_of(4, 2, round=number, available=[True, True, number == 1, True])
        rows, probability, _, step = policy.allocation(state, context)
        gains[number] = dict(zip(rows.tolist(), step / probability, strict=True))
        selection = type("Chosen", (), {"links": np.array([0, 1])})
        state = policy.commit(state, context, selection)
    assert gains[1][0] != pytest.approx(gains[2][0])
    assert state.open_client.tolist() == [0, 1, 0, 1]
    before = state.log_weight.copy()
    state = policy.update(state, report([1, 0], round=2, status=[Status.COMPLETED] * 2))
    state = policy.update(state, report([0], round=1, status=[Status.COMPLETED]))
    np.testing.assert_allclose(state.log_weight - before, [gains[1][0] + gains[2][0], gains[2][1], 0.0, 0.0])
    assert state.open_client.tolist() == [1]
    state = policy.update(state, report([1], round=1, status=[Status.LATE]))
    assert state.open_client.size == 0
    np.testing.assert_allclose(state.log_weight[1] - before[1], gains[2][1])


def test_what_is_never_answered_is_forgotten():
    policy, rng = E3CS(), np.random.default_rng(3)
    state = policy.init(ProblemSpec(5, 2, 1), rng=rng)
    for number in range(1, 600):
        context = context_of(5, 2, round=number)
        state = policy.commit(state, context, policy.select(state, context, rng=rng))
    assert state.open_round.size == 2 * 256
    assert state.open_round.min() == 600 - 256
    before = state.log_weight.copy()
    state = policy.update(state, report([0, 1], round=1, status=[Status.COMPLETED] * 2))
    np.testing.assert_array_equal(state.log_weight, before)


def test_the_schedules():
    increasing = E3CS(schedule="increasing", horizon=100, fairness=0.3)
    assert [increasing.fairness_at(number) for number in (1, 25, 26, 100)] == [0.0, 0.0, 1.0, 1.0]
    assert [E3CS(fairness=0.3).fairness_at(number) for number in (1, 1000)] == [0.3, 0.3]
    late = context_of(6, 2, round=90)
    np.testing.assert_allclose(increasing.allocation(with_weights(np.arange(1.0, 7.0)), late)[1], 1 / 3)
