"""What is measured on a run, and read off runs with training."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from fedroster import RBCSF, Uniform
from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.problem import Selection, Status
from fedroster.lab.pages.looks import looks_of
from fedroster.lab.trials.accuracy import (
    accuracy_figure,
    area_under,
    curve_per_second,
    final_accuracies,
    percent_band,
    rounds_to,
    step_function,
    times_to,
)
from fedroster.lab.trials.measures import LEAST_CHANCES, Recorder, jain_index, participation
from fedroster.networks import FlatNetwork
from fedroster.policies import FedCS, OmniscientP3
from fedroster.simulation import Round, simulate
from priced import priced_context
from runs import planted_run


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ([1, 1, 1, 1], 1.0),
        ([5, 0, 0, 0], 0.25),
        ([1, 2, 3], 36 / 42),
        ([0.5, 0.25], 0.5625 / (2 * 0.3125)),
        ([0, 0, 0], 1.0),
    ],
)
def test_jain_index_by_hand(values, index):
    assert jain_index(np.array(values)) == pytest.approx(index, rel=1e-15)


def recorded(policy, *, rate, rounds=150, seed=3, **network):
    recorder = Recorder(network.get("num_clients", 40), rounds, rate=rate)
    played = []
    for one in simulate(policy, FlatNetwork(**network), rounds=rounds, seed=seed):
        recorder.add(one)
        own = one.policy_state.backlog.copy() if hasattr(one.policy_state, "backlog") else None
        played.append((one.time_s, one.selection.links, one.context.available, own))
    return recorder.run, played


@pytest.mark.parametrize("policy", [RBCSF(V=20.0), RBCSF(V=1.0, beta=0.1), OmniscientP3(V=5.0)], ids=str)
def test_the_measured_queues_are_the_policys_own(policy):
    course, played = recorded(policy, rate=policy.beta)
    assert course.mean_backlog.tolist() == [own.mean() for *_, own in played]
    assert course.mean_backlog[-1] > 0.0


@pytest.mark.parametrize("policy", [RBCSF(V=50.0), Uniform(), FedCS(deadline_s=3.0)], ids=str)
@pytest.mark.parametrize("rate", [0.15, 0.9])
def test_the_bound_holds_on_every_round(policy, rate):
    course, _ = recorded(policy, rate=rate)
    assert course.bound_margin.shape == (150,)
    assert course.bound_margin.min() >= -1e-9
    assert course.bound_margin.max() > 0.0


def test_who_answers_in_time_and_who_does_not():
    course, _ = recorded(Uniform(), rate=0.15, rounds=50, dropout=0.5)
    assert (course.participants + course.missed).tolist() == course.cohort_size.tolist() == [8] * 50
    assert 100 < course.missed.sum() < 300
    assert course.spent.tolist() == [0.0] * 50
    assert recorded(Uniform(), rate=0.15, rounds=50)[0].missed.sum() == 0


def test_a_client_that_costs_the_whole_budget_can_be_paid():
    context = priced_context([2.0, 2.5, 1.0], [0, 1, 2], [0, 0, 0], [2.0])
    feedback = SimpleNamespace(status=np.array([Status.COMPLETED]))
    recorder = Recorder(3, 1, rate=0.1)
    selection = Selection(1, np.array([0]))
    recorder.add(Round(context, None, selection, feedback, 1.0, None, None, 0.0))
    assert recorder.run.available.tolist() == [1, 0, 1]
    assert recorder.run.budget_used.tolist() == [1.0]


def test_participation_by_hand():
    # 20 rounds; the fourth client was there too seldom to be judged, the fifth never.
    chosen = np.array([4, 2, 0, 1, 0])
    available = np.array([20, 10, 10, 1, 0])
    found = participation(chosen, available, num_rounds=20, rate=0.1)
    assert found.min_participation_rate == 0.0
    assert found.least_served == 0.0  # the third: a tenth of three clients is one
    assert found.share_with_rate == pytest.approx(2 / 5)  # two rounds are owed
    assert found.share_served == pytest.approx(3 / 4)  # the fourth could not be chosen more often
    assert found.never_chosen == pytest.approx(1 / 4)
    assert found.jain_index == pytest.approx(49 / (5 * 21))
    assert found.jain_available == pytest.approx(jain_index(np.array([0.2, 0.2, 0.0])))


def test_the_least_served_are_a_tenth():
    rng = np.random.default_rng(0)
    available = rng.integers(LEAST_CHANCES, 100, 200)
    chosen = rng.binomial(available, 0.3)
    chosen[:20] = 1
    available[:20] = 50
    found = participation(chosen, available, num_rounds=100, rate=0.1)
    assert found.least_served == pytest.approx(np.sort(chosen / available)[:20].mean())
    assert found.min_participation_rate == chosen.min() / 100
    order = rng.permutation(200)
    assert participation(chosen[order], available[order], num_rounds=100, rate=0.1) == found


def test_a_rate_that_is_met_exactly_is_met():
    for rate, rounds, count in ((0.1, 30, 3), (0.01, 300, 3), (0.15, 20, 3), (0.07, 100, 7)):
        found = participation(np.array([count, count - 1]), np.array([rounds, rounds]), num_rounds=rounds, rate=rate)
        assert found.share_with_rate == found.share_served == 0.5


def test_participation_of_few_rounds_and_of_none():
    found = participation(np.array([1, 0, 0]), np.array([2, 2, 0]), num_rounds=2, rate=0.5)
    assert (found.least_served, found.share_served, found.never_chosen) == (0.0, 0.5, 0.5)
    none = participation(np.zeros(3, int), np.zeros(3, int), num_rounds=2, rate=0.5)
    assert (none.least_served, none.share_served, none.never_chosen, none.jain_available) == (0.0, 1.0, 0.0, 1.0)


PROVE = ("oracle", "cocs", "cucb-pairs", "linucb-pairs", "partial-pooling")


@pytest.mark.parametrize("policy", [*PROVE, "oracle-p:gap=0.2", "random", "oracle-p:solver=fast-lazy-greedy"])
def test_the_gap_of_every_decision_is_kept_of_policies_that_solve_p2(policy):
    recorder, gaps = Recorder(50, 3, rate=0.1), []
    for played in simulate(make_policy(policy), make_scenario("cocs/mnist"), rounds=3, seed=0):
        recorder.add(played)
        gaps.append(math.nan if played.selection.gap is None else played.selection.gap)
    np.testing.assert_array_equal(recorder.run.gap, gaps)
    if policy == "oracle-p:gap=0.2":
        assert 0.0 < max(gaps) <= 0.2
    else:
        assert set(gaps) == {0.0} if policy in PROVE else np.isnan(gaps).all()


@pytest.mark.parametrize("rate", [0.15, 0.1, 0.0])
def test_what_is_lacking_is_known_after_every_round(rate):
    run, played = recorded(Uniform(), rate=rate, rounds=60)
    chosen, there = np.zeros(40), np.zeros(40)
    for number, (_, links, available, _) in enumerate(played, start=1):
        chosen[links] += 1
        there += available
        # 0.15 x 20 are three, and in floating point a little less or more
        assert run.lacking[number - 1] == (np.floor(round(rate * number, 6)) - chosen).max()
        assert run.lacking_available[number - 1] == (np.floor(np.round(rate * there, 6)) - chosen).max()
    assert (run.lacking.max() > 0) == (rate > 0.0)


def run_of(accuracy, times=None):
    """A run with planted accuracies; NaN where it was not tested."""
    accuracy = np.asarray(accuracy, float)
    rounds = accuracy.shape[0]
    times = np.ones(rounds) if times is None else np.asarray(times, float)
    return planted_run(rounds, rounds, round_time_s=times, accuracy=accuracy)


def test_targets_are_met_at_tested_rounds():
    run = run_of([math.nan, 0.2, math.nan, 0.6, math.nan, 0.5], [1, 2, 3, 4, 5, 6])
    assert run.tested.tolist() == [2, 4, 6]
    for target, rounds, time_s in [(0.1, 1, 1.5), (0.3, 2.5, 3 + 7 / 4), (0.6, 4, 10), (0.7, math.inf, math.inf)]:
        assert rounds_to([run], target) == pytest.approx([rounds])  # between two tests on a straight line
        assert times_to([run], target) == pytest.approx([time_s])
    assert final_accuracies([run]) == pytest.approx([(0.2 + 0.6 + 0.5) / 3])
    assert final_accuracies([run_of([0.9, 0.2, 0.2, 0.2, 0.2, 0.7])]) == pytest.approx([0.3])  # the last five


def test_a_step_function_knows_nothing_before_its_first_step():
    found = step_function(np.array([1.0, 3.0]), np.array([0.5, 0.7]), np.array([0.9, 1.0, 2.9, 3.0, 9.0]))
    np.testing.assert_array_equal(found, [np.nan, 0.5, 0.5, 0.7, 0.7])


def test_curves_over_time_end_with_the_first_seed_and_the_faster_run_has_the_larger_area():
    fast, slow = run_of([0.2, 0.4, 0.6], [1, 1, 1]), run_of([0.2, 0.4, 0.6], [2, 2, 2])
    curve = curve_per_second([fast.tests, slow.tests])
    assert (curve.x[0], curve.x[-1]) == (2.0, 3.0)
    late = run_of([0.2, 0.4], [9, 9])  # it begins when another has ended
    assert accuracy_figure({"": {"both": [fast, late]}}, looks_of({"both": "random"}), "", over_time=True)
    assert curve_per_second([fast.tests, late.tests]).x.size == 0
    areas = area_under([[fast], [slow]])
    assert areas[0, 0] == pytest.approx((0 + 0.2 + 0.4) / 3, abs=0.01)
    assert areas[1, 0] == pytest.approx((0.2 * 1) / 3, abs=0.01)


def test_the_band_of_a_share_ends_where_shares_end():
    mean, low, high = percent_band(np.array([[0.02, 0.5, 0.99], [0.3, 0.5, 0.8]]))
    assert mean == pytest.approx([16.0, 50.0, 89.5])
    assert low == pytest.approx([0.0, 50.0, 0.0])
    assert high == pytest.approx([100.0, 50.0, 100.0])
