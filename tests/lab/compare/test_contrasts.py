"""Policies against each other: who is compared with whom, in whose favour, and how it is corrected."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from fedroster.catalogue import policies
from fedroster.lab.compare.contrasts import (
    against_of,
    contrasts_against,
    corrected,
    focus_of,
    paired,
)
from fedroster.lab.compare.tables import GOT_BETA, LEAST_SERVED, ROUND_TIME, UPDATES, Settings
from fedroster.lab.statistics import holm

FLAT = ["rbcs-f", "floor:beta=0.01", "random", "partial-pooling"]
SERVERS = ["random", "cocs", "partial-pooling"]


def test_by_default_against_random_and_the_policy_in_focus():
    assert against_of(FLAT, [], "rbcs-f") == ("random", "rbcs-f")
    assert against_of(["rbcs-f", "p3"], [], "p3") == ("p3",)


def test_the_policy_in_focus_is_asked_for_or_ours_or_the_first():
    assert focus_of(FLAT) == "floor:beta=0.01"
    assert focus_of(SERVERS) == "partial-pooling"
    assert focus_of(SERVERS, "cocs") == "cocs"
    assert focus_of(FLAT, "cocs") == "floor:beta=0.01"  # it does not take part
    assert focus_of(["random", "tifl:num_tiers=3", "oort"]) == "tifl:num_tiers=3"
    assert focus_of(["random", "tifl:num_tiers=3", "oort"], "oort") == "oort"
    assert focus_of(["random"]) == "random"


def test_against_is_a_text_or_a_name():
    policies = ["rbcs-f:V=5", "rbcs-f:V=20", "random"]
    assert against_of(policies, ["rbcs-f:V=20", "random", "rbcs-f:V=20"], "") == ("rbcs-f:V=20", "random")
    assert against_of(policies, ["rbcs-f"], "") == ("rbcs-f:V=5",)
    assert against_of(policies, ["oort", "random"], "") == ("random",)


def test_a_ratio_of_ratios_cancels():
    """Twice and half as fast are equal on average; and so is the reverse comparison the inverse."""
    found = paired("a", "b", ROUND_TIME, np.array([2.0, 4.0]), np.array([4.0, 2.0]))
    assert found.difference.mean == pytest.approx(1.0)
    one = paired("a", "b", ROUND_TIME, np.array([2.0, 4.0]), np.array([4.0, 5.0]))
    other = paired("b", "a", ROUND_TIME, np.array([4.0, 5.0]), np.array([2.0, 4.0]))
    assert one.difference.mean == pytest.approx(1.0 / other.difference.mean)
    assert one.difference.low == pytest.approx(1.0 / other.difference.high)
    assert one.p_value == pytest.approx(other.p_value)
    assert one.is_better
    assert not other.is_better


SMALL, NONE = np.array([1.0, 1.01, 1.02, 1.03, 1.07]), np.zeros(5)


@pytest.mark.parametrize(
    ("measure", "mine", "theirs", "verdict", "text"),
    [
        (ROUND_TIME, SMALL, 2.0 + NONE, "better", "0.51 better\n(0."),
        (UPDATES, 2.0 + 0.01 * SMALL, 2.0 + NONE, "better", "1.005 better\n(1.00"),
        (UPDATES, SMALL, 2.0 + NONE, "worse", "0.51 worse\n(0."),
        (LEAST_SERVED, 0.3 * SMALL, 0.1 + NONE, "better", "+20.8 better\n(+"),
        (LEAST_SERVED, np.array([0.3, 0.1, 0.2, 0.25, 0.15]), 0.2 + NONE, "undecided", "+0.0\n("),
        (ROUND_TIME, SMALL[:3], 2.0 + NONE[:3], "undecided", "0.51\n("),  # three seeds decide nothing
    ],
)
def test_in_whose_favour(measure, mine, theirs, verdict, text):
    found = corrected([paired("a", "b", measure, np.array(mine), np.array(theirs))])[0]
    assert found.verdict == verdict
    assert found.shown().replace("-0.0\n", "+0.0\n").startswith(text)
    assert found.row()["measure"] == measure.name


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([1.0], [2.0]),
        ([1.0, math.nan], [2.0, 2.0]),
        ([1.0, 0.0], [2.0, 2.0]),
        ([2.0, 2.0], [1.0, 0.0]),
    ],
)
def test_nothing_is_tested_with_one_seed_or_without_numbers(mine, theirs):
    assert paired("a", "b", ROUND_TIME, np.array(mine, float), np.array(theirs, float)) is None


def test_coarse_differences_point_as_their_test_does():
    """Eighteen of twenty seeds serve one client more; two serve so many fewer that the mean falls."""
    mine = 0.5 + np.array([0.025] * 18 + [-0.4] * 2)
    found = paired("a", "b", GOT_BETA, mine, np.full(20, 0.5))
    assert found.p_value < 0.001
    assert found.is_better
    assert found.difference.mean == pytest.approx(0.025)


def test_all_tests_of_a_table_are_corrected_together():
    rng = np.random.default_rng(4)
    names = ("mean_round_time_s", "least_served", "share_served")
    values = {text: {name: rng.uniform(1.0, 2.0, 6) for name in names} for text in ("random", "a", "b", "c")}
    settings = Settings(**dict.fromkeys(field.name for field in dataclasses.fields(Settings)))
    settings = dataclasses.replace(settings, has_prices=False, policies=list(values), optimal="", yardstick="")
    found = contrasts_against("a", values, settings)
    assert {test.policy for test in found} == {"random", "b", "c"}
    assert len(found) == 9
    assert [test.adjusted_p for test in found] == pytest.approx(holm([test.p_value for test in found]))
    assert any(test.adjusted_p > test.p_value for test in found)


def test_our_own_policies_are_marked_in_the_catalogue():
    ours = {name for name, entry in policies().items() if entry.is_ours}
    assert ours == {"floor", "partial-pooling"}
