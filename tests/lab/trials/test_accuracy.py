"""What is read off runs with training."""

import math

import numpy as np
import pytest

from fedroster.lab.trials.accuracy import area_under, curve_per_second, rounds_to, step_function, times_to
from runs import planted_run


def run_of(accuracy, times=None):
    """A run with planted accuracies; NaN where it was not tested."""
    accuracy = np.asarray(accuracy, float)
    rounds = accuracy.shape[0]
    times = np.ones(rounds) if times is None else np.asarray(times, float)
    return planted_run(rounds, rounds, round_time_s=times, accuracy=accuracy)


def test_targets_are_met_at_tested_rounds():
    run = run_of([math.nan, 0.2, math.nan, 0.6, math.nan, 0.5], [1, 2, 3, 4, 5, 6])
    assert run.tested.tolist() == [2, 4, 6]
    assert (run.rounds_to(0.1), run.rounds_to(0.6), run.rounds_to(0.7)) == (1, 4, math.inf)
    assert (run.time_to(0.1), run.time_to(0.6), run.time_to(0.7)) == pytest.approx((1.5, 10, math.inf))
    assert run.rounds_to(0.3) == pytest.approx(2.5)  # between two tests on a straight line
    assert run.time_to(0.3) == pytest.approx(3 + 7 / 4)
    assert run.final_accuracy() == pytest.approx((0.2 + 0.6 + 0.5) / 3)
    assert run.final_accuracy(last=2) == pytest.approx(0.55)
    assert rounds_to([run], 0.7).tolist() == [math.inf]
    assert times_to([run], 0.7).tolist() == [math.inf]


def test_a_step_function_knows_nothing_before_its_first_step():
    found = step_function(np.array([1.0, 3.0]), np.array([0.5, 0.7]), np.array([0.9, 1.0, 2.9, 3.0, 9.0]))
    np.testing.assert_array_equal(found, [np.nan, 0.5, 0.5, 0.7, 0.7])


def test_curves_over_time_end_with_the_first_seed_and_the_faster_run_has_the_larger_area():
    fast, slow = run_of([0.2, 0.4, 0.6], [1, 1, 1]), run_of([0.2, 0.4, 0.6], [2, 2, 2])
    curve = curve_per_second([fast, slow], points=11)
    assert (curve.x[0], curve.x[-1]) == (2.0, 3.0)
    areas = area_under([[fast], [slow]])
    assert areas[0, 0] == pytest.approx((0 + 0.2 + 0.4) / 3, abs=0.01)
    assert areas[1, 0] == pytest.approx((0.2 * 1) / 3, abs=0.01)
