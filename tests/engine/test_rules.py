"""When rounds end, in every engine."""

from __future__ import annotations

import math

import pytest

from fedroster.core.errors import ConfigurationError
from fedroster.engine.rules import RoundRules


def test_a_round_ends_with_all_replies_or_the_first_k():
    assert RoundRules().ending(3, 10.0, None).is_over(3, 10.0)
    assert not RoundRules().ending(3, 10.0, None).is_over(2, 1e9)
    assert RoundRules(first=2).ending(3, 10.0, None).is_over(2, 10.0)


def test_a_round_ends_at_its_deadline_unless_replies_are_wanted():
    ending = RoundRules(deadline_s=5.0).ending(3, 10.0, 60.0)
    assert (ending.until_s, ending.given_up_s) == (15.0, 60.0)
    assert (
        RoundRules(deadline_s=5.0, min_replies=2).ending(3, 10.0, 60.0).until_s == 60.0
    )  # all others are given up then
    ending = RoundRules(deadline_s=5.0, min_replies=2, give_up_s=90.0).ending(3, 10.0, 60.0)
    assert ending.until_s == 70.0
    assert not ending.is_over(1, 20.0)
    assert ending.is_over(2, 20.0)
    assert not ending.is_over(2, 14.0)
    assert RoundRules().ending(3, 10.0, 8.0).until_s == 18.0
    assert RoundRules(deadline_s=5.0).ending(3, 10.0, 4.0).given_up_s == 50.0
    assert RoundRules(give_up_s=7.0).ending(3, 10.0, None).given_up_s == 17.0


def test_each_round_can_have_a_deadline_of_its_own():
    rules = RoundRules(first=2, longest_s=9.0, deadline_of=lambda number: 60.0 if number == 1 else math.inf)
    assert rules.of(1) == RoundRules(first=2, longest_s=9.0, deadline_s=60.0)
    assert rules.of(2).ending(3, 10.0, None).until_s == math.inf
    plain = RoundRules(deadline_s=5.0)
    assert plain.of(7) is plain
    with pytest.raises(ConfigurationError, match="deadline_s is 0"):
        RoundRules(deadline_of=lambda number: 0).of(3)
    with pytest.raises(ConfigurationError, match="expected a function of the round"):
        RoundRules(deadline_of=60.0)


def test_replies_count_in_time_or_while_they_are_wanted():
    ending = RoundRules(deadline_s=5.0, min_replies=2).ending(4, 0.0, None)
    assert [ending.counts(4.0, 3), ending.counts(6.0, 1), ending.counts(6.0, 2)] == [True, True, False]
    ending = RoundRules(first=1).ending(4, 0.0, None)
    assert [ending.counts(7.0, 0), ending.counts(7.0, 1)] == [True, False]


def test_evaluation_keeps_the_trainings_deadline_unless_told_otherwise():
    assert RoundRules(deadline_s=5.0).evaluation_limit_s(3600.0) == 5.0
    assert RoundRules(deadline_s=5.0).evaluation_limit_s(2.0) == 2.0
    assert RoundRules(deadline_s=5.0, evaluate_deadline_s=9.0).evaluation_limit_s(None) == 9.0
    assert RoundRules(deadline_s=5.0, evaluate_deadline_s=math.inf).evaluation_limit_s(None) == math.inf
    assert RoundRules().evaluation_limit_s(None) == math.inf
    who = [{}, {"deadline_s": 5.0}, {"evaluate": "cohort"}]
    assert [RoundRules(**each).who_evaluates for each in who] == ["all", "idle", "cohort"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("deadline_s", [0.0, math.nan]),
        ("first", [-1]),
        ("evaluate", ["some"]),
        ("wait_s", [-1.0]),
        ("absent_rounds", [0]),
        ("give_up_s", [math.inf]),
        ("longest_s", [-1.0, math.nan]),
        ("min_nodes", [-1]),
    ],
)
def test_rules_out_of_range_are_refused(name, values):
    for value in values:
        with pytest.raises(ConfigurationError, match=name):
            RoundRules(**{name: value})
