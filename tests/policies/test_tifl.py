"""TiFL: tiers, credits and probabilities against slow readings of the paper."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedroster.networks import FlatNetwork
from fedroster.policies import TiFL
from fedroster.policies.tifl import changed_probabilities, mean_losses, tiers_of
from fedroster.simulation import simulate
from fedroster.types import ProblemSpec, Streams
from rounds import context_of, report


def profiled(policy, time_s, *, loss=None, seed=0):
    """A state in which every client was asked once; NaN for those that did not answer."""
    count = len(time_s)
    state = policy.init(ProblemSpec(count, 1, 1), rng=np.random.default_rng(seed))
    state.asked[:] = 1
    return policy.update(state, report(range(count), time_s=time_s, loss=loss))


def test_tiers_are_equal_parts_of_the_sorted_times():
    rng = np.random.default_rng(1)
    for count, num_tiers in ((10, 5), (13, 5), (50, 4), (7, 1), (1, 3), (100, 10)):
        measured = rng.integers(1, 5, count)
        total_s = rng.lognormal(1.0, 1.0, count)
        tier = tiers_of(measured, total_s, num_tiers)
        for place, client in enumerate(np.argsort(total_s / measured)):
            assert (
                tier[client] == sum(place >= count * t // num_tiers for t in {*range(1, num_tiers)})
                or count < num_tiers
            )
        if count >= num_tiers:
            sizes = np.bincount(tier, minlength=num_tiers)
            assert sizes.max() - sizes.min() <= 1


def test_clients_without_a_time_are_in_no_tier():
    assert tiers_of(np.array([1, 0, 2, 1]), np.array([4.0, 0.0, 2.0, 9.0]), 3).tolist() == [1, -1, 0, 2]
    assert tiers_of(np.zeros(3, np.int64), np.zeros(3), 2).tolist() == [-1, -1, -1]
    assert len(set(tiers_of(np.ones(6, np.int64), np.full(6, 2.0), 3).tolist())) == 1  # equal times, one tier


@given(
    st.lists(st.tuples(st.floats(0.1, 9.0), st.booleans()), min_size=1, max_size=7),
)
def test_probabilities_follow_the_rank(tiers):
    loss, credits = np.array([value for value, _ in tiers]), np.array([has for _, has in tiers])
    found = changed_probabilities(loss, credits)
    count = int(credits.sum())
    assert (found[~credits] == 0).all()
    if not count:
        assert (found == 0).all()
        return
    assert found.sum() == pytest.approx(1.0)
    expected = sorted(((count - i) / (count * (count + 1) / 2) for i in range(count)), reverse=True)
    np.testing.assert_allclose(np.sort(found[credits])[::-1], expected)
    order = np.argsort(found)[::-1][:count]
    assert (np.diff(loss[order]) <= 0).all()  # worst first


def test_mean_losses_of_tiers():
    tier = np.array([0, 0, 1, 1, -1, 2])
    loss = np.array([1.0, 3.0, 5.0, np.inf, 7.0, np.inf])
    np.testing.assert_array_equal(mean_losses(tier, loss, 4), [2.0, 5.0, np.inf, np.inf])


def test_everybody_is_profiled_first():
    policy = TiFL(profile_rounds=2, credits=(5,) * 5)
    network = FlatNetwork(num_clients=12, cohort_size=4, availability=1.0)
    chosen = np.zeros(12, np.int64)
    for played in simulate(policy, network, rounds=6, seed=0):
        chosen[played.selection.links] += 1
        assert played.policy_state.credits.tolist() == [5] * 5  # profiling costs none
        if played.number == 3:
            assert (chosen == 1).all()
    assert (chosen == 2).all()


def test_a_cohort_comes_from_one_tier_drawn_by_its_probability():
    policy = TiFL(tiers=4, probabilities=(0.4, 0.3, 0.2, 0.1))
    time_s = np.random.default_rng(2).permutation(np.arange(1.0, 25.0))
    states = [profiled(policy, time_s, seed=seed) for seed in range(3000)]
    tier = ((time_s - 1) // 6).astype(int)
    drawn = []
    for number, state in enumerate(states):
        links = policy.select(state, context_of(24, 3), rng=Streams(9).at("policy", number)).links
        (only,) = set(tier[links].tolist())
        drawn.append(only)
    found = np.bincount(drawn, minlength=4)
    assert chisquare(found, 3000 * np.array([0.4, 0.3, 0.2, 0.1])).pvalue > 0.001
    assert chisquare(found).pvalue < 1e-6  # negative control


def test_a_small_tier_is_filled_from_its_neighbours():
    policy = TiFL(tiers=4, probabilities=(0.0, 0.0, 1.0, 0.0))
    state = profiled(policy, [*np.arange(1.0, 9.0), np.nan])  # tiers 0 0 1 1 2 2 3 3, and one that never answered
    for size, expected in ((2, {4, 5}), (4, {2, 3, 4, 5}), (6, {2, 3, 4, 5, 6, 7}), (8, set(range(8)))):
        assert set(policy.select(state, context_of(9, size), rng=np.random.default_rng(0)).links.tolist()) == expected
    five = set(policy.select(state, context_of(9, 5), rng=np.random.default_rng(0)).links.tolist())
    assert five > {2, 3, 4, 5}
    assert five < {2, 3, 4, 5, 6, 7}
    assert policy.select(state, context_of(9, 9), rng=np.random.default_rng(0)).links.size == 9


def test_credits_are_spent():
    policy = TiFL(tiers=3, credits=(2, 3, 1), adaptive=False)
    state, drawn = profiled(policy, np.arange(1.0, 13.0)), []
    tier = np.arange(12) // 4
    for number in range(2, 8):
        context = context_of(12, 2, round=number)
        selection = policy.select(state, context, rng=Streams(4).at("policy", number))
        drawn.append(int(tier[selection.links][0]))
        state = policy.commit(state, context, selection)
        assert state.current == drawn[-1]
    assert np.bincount(drawn).tolist() == [2, 3, 1]
    assert state.credits.tolist() == [0, 0, 0]
    context = context_of(12, 2, round=9)  # no tier has credits: they no longer count
    assert policy.commit(state, context, policy.select(state, context, rng=Streams(4).at("p"))).credits.min() == 0


def test_a_look_without_credits_is_one_at_all_tiers():
    """No tier was left that could be drawn, and a selector that was saved then could not be loaded."""
    policy = TiFL(tiers=2, credits=(1, 1), interval=4, probabilities=(0.9, 0.1))
    state = profiled(policy, np.arange(1.0, 7.0), loss=[1.0] * 3 + [2.0] * 3)
    for number in range(2, 9):  # 4 is the first look, 8 finds nothing better
        context = context_of(6, 2, round=number)
        state = policy.commit(state, context, policy.select(state, context, rng=Streams(4).at("policy", number)))
    assert state.credits.tolist() == [0, 0]
    np.testing.assert_allclose(state.probability, [1 / 3, 2 / 3])
    assert not state.flaw(ProblemSpec(6, 2, 1))


def test_probabilities_change_when_the_last_tier_has_not_improved():
    policy = TiFL(tiers=3, interval=5)
    loss = [1.0, 1.0, 4.0, 4.0, 2.0, 2.0]
    state = profiled(policy, np.arange(1.0, 7.0), loss=loss)

    def play(state, round):
        context = context_of(6, 1, round=round)
        return policy.commit(state, context, policy.select(state, context, rng=Streams(5).at("policy", round)))

    third = np.full(3, 1 / 3)
    for number in (2, 3, 4):
        state = play(state, number)
        np.testing.assert_array_equal(state.probability, third)
    state = play(state, 5)  # the first look: better than nothing
    np.testing.assert_array_equal(state.probability, third)
    np.testing.assert_array_equal(state.tier_loss, [1.0, 4.0, 2.0])
    better = policy.update(profiled(policy, np.arange(1.0, 7.0)), report(range(6), round=8, loss=np.array(loss) / 2))
    for now, expected in ((state.loss, [1 / 6, 3 / 6, 2 / 6]), (better.loss, third)):
        state.loss[:] = now
        copy = type(state)(**{name: getattr(state, name) for name in state.__dataclass_fields__})
        np.testing.assert_allclose(play(copy, 10).probability, expected)
        np.testing.assert_array_equal(play(copy, 9).probability, third)
    static = TiFL(tiers=3, interval=5, adaptive=False)
    np.testing.assert_array_equal(
        static.commit(state, context_of(6, 1, round=10), type("Chosen", (), {"links": np.array([0])})).probability,
        third,
    )


def test_without_losses_the_probabilities_stay():
    policy = TiFL(tiers=3, interval=2, probabilities=(0.5, 0.3, 0.2))
    for played in simulate(policy, FlatNetwork(num_clients=12, cohort_size=3), rounds=30, seed=0):
        np.testing.assert_allclose(played.policy_state.probability, [0.5, 0.3, 0.2])
