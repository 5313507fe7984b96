"""Oort against slow formulas from the paper, and against what its authors' code computed."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from fedroster.core.problem import ProblemSpec, Status
from fedroster.estimation.utility import PacerState, client_utility, pace, statistical_utility, value_at
from fedroster.optimization.ranking import sample_above
from fedroster.policies import Oort
from rounds import context_of, counts, report

RECORDED = json.loads((Path(__file__).parent / "oort_recorded.json").read_text())


def explored(policy, count, *, loss=None, time_s=None, round=1):
    """A state in which everybody has taken part."""
    state = policy.init(ProblemSpec(count, 1, 3), rng=np.random.default_rng(0))
    return policy.update(state, report(range(count), round=round, time_s=time_s, loss=loss))


def test_statistical_utility_is_the_papers():
    rng = np.random.default_rng(1)
    losses = [rng.gamma(2.0, 1.0, size) for size in (1, 5, 40)]
    expected = [len(batch) * math.sqrt(sum(value**2 for value in batch) / len(batch)) for batch in losses]
    given = report(
        range(3),
        loss=[batch.mean() for batch in losses],
        squared_loss=[(batch**2).mean() for batch in losses],
        num_samples=[len(batch) for batch in losses],
    )
    np.testing.assert_allclose(statistical_utility(given), expected)
    mean_only = report(range(3), loss=[batch.mean() for batch in losses], num_samples=[1, 5, 40])
    assert (statistical_utility(mean_only) <= np.array(expected) * (1 + 1e-12)).all()


def test_statistical_utility_of_what_is_not_measured():
    assert np.isnan(statistical_utility(report([0, 1]))).all()
    partly = report(
        range(4), loss=[2, 2, np.nan, 3], squared_loss=[9, np.nan, np.nan, 16], num_samples=[5, np.nan, 5, 1]
    )
    np.testing.assert_array_equal(statistical_utility(partly), [15.0, 2.0, np.nan, 4.0])


def test_a_loss_of_nothing_is_the_least_and_no_loss_is_the_mean():
    losses = [0.0, 1.0, 4.0, np.nan]
    state = explored(Oort(), 4, loss=losses, time_s=[1.0] * 4)
    options = {"round": 1, "preferred_s": np.inf, "penalty": 2.0, "clip": 1.0}
    score = client_utility(state.utility, state.time_s, state.last, **options)
    np.testing.assert_allclose(score, [0.0, 0.25, 1.0, 5.0 / 12.0], atol=1e-12)


@pytest.mark.parametrize("recorded", RECORDED["rounds"], ids=lambda recorded: f"round-{recorded['round']}")
def test_the_utility_is_the_authors(recorded):
    parameters = RECORDED["parameters"]
    time_s = np.array(recorded["time_s"])
    preferred_s = value_at(time_s, recorded["percentile"] / 100.0)
    assert preferred_s == recorded["preferred"]
    arguments = (np.array(recorded["utility"]), time_s, np.array(recorded["last"]))
    options = {"round": recorded["round"], "preferred_s": preferred_s}
    options |= {"penalty": parameters["round_penalty"], "clip": parameters["clip_bound"]}
    score = client_utility(*arguments, **options)
    np.testing.assert_allclose(score, recorded["score"], rtol=1e-12)
    for change in ({"penalty": 1.0}, {"clip": 0.5}, {"round": 99}, {"preferred_s": 2.0 * preferred_s}):
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(client_utility(*arguments, **(options | change)), recorded["score"], rtol=1e-12)
    size = parameters["num_exploited"]
    cut = sorted(score, reverse=True)[size] * parameters["cut_off_util"]
    assert cut == pytest.approx(recorded["cut"], rel=1e-12)
    rng = np.random.default_rng(0)
    seen = np.unique(np.concatenate([sample_above(score, size, cut_off=0.95, rng=rng) for _ in range(500)]))
    np.testing.assert_array_equal(seen, np.flatnonzero(score >= recorded["cut"] * (1 - 1e-12)))


def test_the_pacer_is_the_authors():
    """Steady utilities relax it, a leap tightens it."""
    recorded, parameters = RECORDED["pacer"], RECORDED["parameters"]
    state = PacerState(parameters["round_threshold"], 0.0, 0, 0.0, 0.0)
    found = []
    for round, reports in enumerate(recorded["reports"], start=recorded["first_round"]):
        state = pace(state, round, step=parameters["pacer_step"], delta=parameters["pacer_delta"])
        found.append(state.percentile)
        state = PacerState(state.percentile, sum(reports), len(reports), state.window, state.previous)
    assert found == recorded["percentile"]
    assert len(set(found)) > 1
    assert min(np.diff(found)) < 0 < max(np.diff(found))


@pytest.mark.parametrize(
    ("start", "window", "previous", "round", "expected"),
    [
        (30.0, 100.0, 95.0, 41, 30.0),
        (3.0, 600.0, 100.0, 40, 5.0),
        (98.0, 100.0, 100.0, 40, 100.0),
        (30.0, 100.0, 95.0, 20, 30.0),
        (30.0, 0.0, 0.0, 40, 30.0),
        (30.0, 0.5, 0.5, 40, 35.0),
    ],
    ids=["between", "floor", "ceiling", "too-early", "nothing-known", "below-one"],
)
def test_the_pacer_steps(start, window, previous, round, expected):
    state = pace(PacerState(start, 0.0, 0, window, previous), round, step=20, delta=5.0)
    assert state.percentile == expected
    assert (state.window, state.previous) == ((0.0, window) if round % 20 == 0 else (window, previous))


def test_only_exploited_clients_count_for_the_pacer():
    policy = Oort()
    state = policy.init(ProblemSpec(4, 2, 3), rng=np.random.default_rng(0))
    state = policy.update(state, report([0, 1], loss=[3.0, 5.0]))  # no client was exploited
    assert state.pacer.num_reports == 0
    context = context_of(4, 3)
    state = policy.commit(state, context, policy.select(state, context, rng=np.random.default_rng(0)))
    assert state.exploited.tolist() == [state.count[0] > 0, state.count[1] > 0, False, False]
    state.exploited[:] = [True, False, False, True]
    state = policy.update(state, report([0, 1, 3], round=2, loss=[7.0, 9.0, np.nan]))
    assert (state.pacer.total, state.pacer.num_reports) == (7.0, 1)


def test_exploitation_samples_by_utility_above_the_cut():
    score = np.array([10.0, 8.0, 6.0, 5.8, 1.0, 0.0])
    rng = np.random.default_rng(2)
    drawn = np.concatenate([sample_above(score, 1, cut_off=0.7, rng=rng) for _ in range(6000)])
    found = np.bincount(drawn, minlength=6)
    # The second best has 8, so candidates have at least 5.6.
    assert found[4:].sum() == 0
    assert chisquare(found[:4], score[:4] / score[:4].sum() * 6000).pvalue > 0.001
    assert chisquare(found[:4]).pvalue < 1e-6  # negative control
    assert sample_above(score, 6, cut_off=0.95, rng=rng).tolist() == list(range(6))
    assert sample_above(score, 2, cut_off=1.0, rng=rng).max() <= 2


def test_exploration_decays_to_its_floor_and_ends_with_the_unexplored():
    policy = Oort(exploration=0.9, exploration_decay=0.8, exploration_min=0.5)
    state = policy.init(ProblemSpec(5, 1, 3), rng=np.random.default_rng(0))
    found = []
    for number in range(1, 6):
        context = context_of(5, 1, round=number)
        state = policy.commit(state, context, policy.select(state, context, rng=np.random.default_rng(number)))
        found.append(state.exploration)
    np.testing.assert_allclose(found, [0.72, 0.576, 0.5, 0.5, 0.5])
    # Strangers who left do not keep it alive, and one who joins starts it again.
    state = policy.init(ProblemSpec(5, 1, 3), rng=np.random.default_rng(0))
    state = policy.update(state, report([0, 1, 2, 3]))
    for members, epsilon in (([1, 1, 1, 1, 0], 0.0), ([1, 1, 1, 1, 1], 0.72)):
        context = context_of(5, 1, available=members, members=np.array(members, np.bool_))
        selection = policy.select(state, context, rng=np.random.default_rng(0))
        assert policy.commit(state, context, selection).exploration == pytest.approx(epsilon)


def test_explorers_are_the_fastest():
    policy = Oort(sample_window=2.0)
    state = policy.init(ProblemSpec(30, 5, 3), rng=np.random.default_rng(0))
    slowness = np.random.default_rng(3).permutation(np.arange(1.0, 31.0))
    context = context_of(30, 5, features=np.column_stack((slowness, np.ones((30, 2)))))
    found = counts(policy, state, context, 3000, seed=4)
    assert (found[slowness > 10.0] == 0).all()
    ordered = found[np.argsort(slowness)][:10]
    assert ordered[0] > 1.3 * ordered[9]
    assert counts(Oort(sample_window=2.0, slowness_feature=-1), state, context, 200, seed=4).all()


def test_too_frequent_clients_are_left_out():
    policy = Oort(max_participations=3, max_left_out=0.3)
    state = explored(policy, 10, loss=np.ones(10))
    state.count[:] = [9, 8, 7, 6, 5, 4, 0, 0, 0, 0]
    assert not counts(policy, state, context_of(10, 4), 30)[:3].any()  # six are above, three may be left out
    # They fill a cohort that would stay short.
    assert counts(policy, state, context_of(10, 9), 1).sum() == 9
    unlimited = explored(Oort(), 10, loss=np.ones(10))
    unlimited.count[:] = state.count
    assert counts(Oort(), unlimited, context_of(10, 4), 30)[0] > 0


def test_the_share_that_is_left_out_is_one_of_the_members():
    """All four members are above the limit; two may be left out, whatever places are free."""
    policy = Oort(max_participations=3, max_left_out=0.5)
    state = explored(policy, 8, loss=np.ones(8))
    state.count[:] = [9, 8, 7, 6, 0, 0, 0, 0]
    here = np.arange(8) < 4
    for state.count[4:] in (0, 99):  # they left, and take no share of those that may be left out
        found = counts(policy, state, context_of(8, 1, available=here, members=here), 30)
        assert set(np.flatnonzero(found)) == {2, 3}


def test_parts_are_those_of_arithmetic():
    """Not of rounding: 5 (1 - 0.8) is below 1, 0.29 x 100 below 29, and 1.1 x 50 above 55."""
    policy = Oort(exploration=0.8, exploration_decay=1.0, exploration_min=0.8)
    state = explored(policy, 50, loss=np.ones(50))
    state.last[5:] = 0
    assert counts(policy, state, context_of(50, 5), 20)[:5].sum() == 20
    policy = Oort(max_participations=1, max_left_out=0.29)
    state = explored(policy, 100, loss=np.ones(100))
    state.count[:] = 200 - np.arange(100)
    assert not counts(policy, state, context_of(100, 60), 20)[:29].any()
    state = policy.init(ProblemSpec(100, 50, 3), rng=np.random.default_rng(0))
    context = context_of(100, 50, features=np.arange(1.0, 101.0)[:, None] * np.ones(3))
    assert not counts(Oort(sample_window=1.1), state, context, 100)[55:].any()


def test_what_feedback_teaches():
    policy = Oort()
    state = policy.init(ProblemSpec(4, 2, 3), rng=np.random.default_rng(0))
    state = policy.update(state, report([0, 1], round=3, time_s=[2.0, 4.0], loss=[1.5, np.nan], num_samples=[10, 10]))
    np.testing.assert_array_equal(state.utility, [15.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(state.time_s, [2.0, 4.0, 0.0, 0.0])
    np.testing.assert_array_equal(state.last, [3, 3, 0, 0])
    # A drop-out has taken part, and what was believed of it stays; late news do not replace later ones.
    gone = [Status.DROPPED, Status.COMPLETED, Status.FAILED]
    state = policy.update(state, report([0, 1, 2], round=5, time_s=[np.nan, 6.0, np.nan], status=gone))
    state = policy.update(state, report([1], round=4, time_s=[9.0], loss=[9.0]))
    np.testing.assert_array_equal(state.utility, [15.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(state.time_s, [2.0, 6.0, 0.0, 0.0])
    np.testing.assert_array_equal(state.last, [5, 5, 5, 0])
