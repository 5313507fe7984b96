"""Policies against each other: who is compared with whom, in whose favour, and how it is corrected."""

import dataclasses
import math

import numpy as np
import pytest

from fedroster.lab.compare.contrasts import contrasts_of, focus_of
from fedroster.lab.compare.tables import LEAST_SERVED, ROUND_TIME, UPDATES, Settings, named
from fedroster.lab.statistics import LEVEL
from fedroster.lab.verdicts.verdicts import judge

FLAT = ["rbcs-f", "floor:beta=0.01", "random", "partial-pooling"]
SERVERS = ["random", "cocs", "partial-pooling"]


def test_the_policy_in_focus_is_asked_for_or_ours_or_the_first():
    assert focus_of(FLAT) == "floor:beta=0.01"
    assert focus_of(SERVERS) == "partial-pooling"
    assert focus_of(SERVERS, "cocs") == "cocs"
    assert focus_of(FLAT, "cocs") == "floor:beta=0.01"  # it does not take part
    assert focus_of(["random", "tifl:num_tiers=3", "oort"]) == "tifl:num_tiers=3"
    assert focus_of(["random", "tifl:num_tiers=3", "oort"], "oort") == "oort"
    assert focus_of(["random"]) == "random"
    assert focus_of(["random", "oort", "by-speed"]) == "by-speed"  # ours
    assert focus_of(["random", "cocs", "cucb-pairs"]) == "cocs"  # without a paper, and not ours


def test_against_the_reference_and_the_policy_in_focus():
    policies = ["rbcs-f:V=5", "rbcs-f:V=20", "random"]
    assert [named(policies, text) for text in ("rbcs-f:V=20", "rbcs-f", "oort")] == [*policies[1::-1], ""]
    assert dataclasses.replace(SETTINGS, policies=policies, focus="rbcs-f:V=5").against == ["random", "rbcs-f:V=5"]
    assert SETTINGS.against == ["random", "a"]


SETTINGS = Settings("rbcs-f/table-1", {}, ["a", "random"], range(5), 9, [], "a", "", "", machine={})


def judged_in(measure, mine, theirs):
    """What the page says of a against b in one measure."""
    others = {one.name: np.ones(len(mine)) for one in SETTINGS.tested_measures if one != measure}
    pairs = {"a": mine, "random": theirs}
    values = {text: {**others, measure.name: np.asarray(own, float)} for text, own in pairs.items()}
    found = contrasts_of(values, dataclasses.replace(SETTINGS, has_prices=measure == UPDATES))
    return {base: next((one for one in tests if one.measure == measure), None) for base, tests in found.items()}


def test_a_ratio_of_ratios_cancels():
    """Twice and half as fast are equal on average; and so is the reverse comparison the inverse."""
    assert judged_in(ROUND_TIME, [2.0, 4.0], [4.0, 2.0])["random"].difference.mean == pytest.approx(1.0)
    found = judged_in(ROUND_TIME, 2.0 * SMALL, 3.0 + SMALL[::-1])
    one, other = found["random"], found["a"]
    assert (one.policy, other.policy) == ("a", "random")
    assert one.difference.mean == pytest.approx(1.0 / other.difference.mean)
    assert one.difference.low == pytest.approx(1.0 / other.difference.high)
    assert (one.verdict, other.verdict) == ("better", "worse")
    assert one.row()["p_holm"] == other.row()["p_holm"]


SMALL, NONE = np.array([1.0, 1.01, 1.02, 1.03, 1.07]), np.zeros(5)
FINE = 2.0 + 0.0001 * np.array([1.0, -1.1, 0.3, 0.4, -0.9])


@pytest.mark.parametrize(
    ("measure", "mine", "theirs", "verdict", "text"),
    [
        (ROUND_TIME, SMALL, 2.0 + NONE, "better", "0.51 better\n(0."),
        (ROUND_TIME, 0.97 * FINE, 2.0 + NONE, "better, but small", "0.97 better, but small\n(0.97"),
        (ROUND_TIME, 1.03 * FINE, 2.0 + NONE, "worse, but small", "1.03 worse, but small\n(1.03"),
        (ROUND_TIME, FINE, 2.0 + NONE, "alike", "1.000 alike\n(1.000"),
        (UPDATES, 1.02 * FINE, 2.0 + NONE, "better", "1.020 better\n(1.0"),
        (UPDATES, SMALL, 2.0 + NONE, "worse", "0.51 worse\n(0."),
        (LEAST_SERVED, 0.3 * SMALL, 0.1 + NONE, "better", "+20.8 better\n(+"),
        (LEAST_SERVED, np.array([0.3, 0.1, 0.2, 0.25, 0.15]), 0.2 + NONE, "undecided", "0.0\n("),
        (ROUND_TIME, SMALL[:3], 2.0 + NONE[:3], "undecided", "0.50\n(0.00 to ∞)\nabout 5 seeds"),  # three decide none
    ],
)
def test_in_whose_favour(measure, mine, theirs, verdict, text):
    found = judged_in(measure, mine, theirs)["random"]
    assert found.verdict == verdict
    assert found.shown().startswith(text)
    assert found.row()["measure"] == measure.name


def test_nothing_is_tested_with_one_seed_or_without_numbers():
    for mine, theirs in (
        ([1.0], [2.0]),
        ([1.0, math.nan], [2.0, 2.0]),
        ([1.0, 0.0], [2.0, 2.0]),
        ([2.0, 2.0], [1.0, 0.0]),
    ):
        assert judged_in(ROUND_TIME, mine, theirs)["random"] is None


def test_one_page_is_one_family_and_its_headline_has_half_of_the_level():
    rng = np.random.default_rng(4)
    names = [measure.name for measure in SETTINGS.tested_measures]
    values = {text: {name: rng.uniform(1.0, 2.0, 6) for name in names} for text in ("random", "a", "b", "c")}
    settings = dataclasses.replace(SETTINGS, policies=list(values), focus="a")
    found = contrasts_of(values, settings)
    assert {base: {test.policy for test in tests} for base, tests in found.items()} == {
        "random": {"a", "b", "c"},
        "a": {"random", "b", "c"},
    }
    top = [test for test in found["random"] if test.policy == "a"]
    assert len(top) == 3
    judged = judge([test.found.claim for test in top], level=LEVEL / 2)
    assert [test.found for test in top] == judged
    # Turned round it is the same test, and counts once.
    assert [test.found for test in found["a"] if test.policy == "random"] == judged
    rest = [test.found for test in found["random"] if test.policy != "a"]
    rest += [test.found for test in found["a"] if test.policy != "random"]
    assert {one.p_holds for one in judge([one.claim for one in rest], level=LEVEL / 2)} == {one.p_holds for one in rest}
    # Without the reference the headline is about the first other one.
    alone = dataclasses.replace(settings, policies=["a", "b", "c"])
    top = [test for test in contrasts_of({text: values[text] for text in "abc"}, alone)["b"] if test.policy == "a"]
    assert [test.found for test in top] == judge([test.found.claim for test in top], level=LEVEL / 2)
    # Read with others, the level is shared.
    shared = contrasts_of(values, dataclasses.replace(settings, read_together=8))
    assert shared["random"][0].found.levels[0] <= found["random"][0].found.levels[0] / 8 * 1.01
