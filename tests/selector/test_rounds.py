"""Feedback that is late, in parts, twice, missing or wrong."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from federations import assert_same_learned, contexts, kept, learned, make
from fedroster import RBCSF, Selector
from fedroster.core.errors import (
    ConfigurationError,
    FedrosterError,
    FeedbackError,
    InvalidInputError,
)
from fedroster.core.problem import Selection, Status
from fedroster.core.protocols import Signature, Stateless


def test_feedback_uses_the_context_of_its_own_round(tmp_path):
    prompt, late = (make(["a", "b"], cohort_size=1, policy=RBCSF(beta=0.0, alpha=0.0)) for _ in range(2))
    for selector in (prompt, late):
        selector.select({"a": [3.0]})
    prompt.observe(1, times_s={"a": 6.0})
    for selector in (prompt, late):
        selector.select({"b": [1.0]})
    late.observe(1, times_s={"a": 6.0})
    assert_same_learned(learned(prompt, tmp_path), learned(late, tmp_path))


def test_a_late_update_is_measured_and_a_missing_one_teaches_nothing(tmp_path):
    selectors = {name: make(["a"], cohort_size=1) for name in ("in time", "late", "dropped", "failed")}
    for selector in selectors.values():
        selector.select({"a": [2.0]})
    unanswered = learned(selectors["dropped"], tmp_path)
    selectors["in time"].observe(1, times_s={"a": 5.0})
    selectors["late"].observe(1, times_s={"a": 5.0}, late=["a"])
    selectors["dropped"].observe(1, dropped=["a"])
    selectors["failed"].observe(1, failed=["a"])
    after = {name: learned(selector, tmp_path) for name, selector in selectors.items()}
    assert_same_learned(after["in time"], after["late"])
    assert_same_learned(after["dropped"], unanswered)
    assert_same_learned(after["failed"], unanswered)
    assert after["in time"]["policy.ridge.moment"] != unanswered["policy.ridge.moment"]
    assert all(selector.open_rounds() == {} for selector in selectors.values())


@pytest.mark.parametrize("patience", [0, -1, 1.5, True, "3"])
def test_patience_is_a_positive_integer(patience):
    with pytest.raises(ConfigurationError, match="patience_rounds"):
        make(patience_rounds=patience)


@pytest.mark.parametrize("problem", [{"cohort_size": 0}, {"num_features": 0}, {"cohort_size": True}, {"seed": -1}])
def test_sizes_are_checked_before_the_first_client_is_there(problem):
    (name,) = problem
    with pytest.raises(ConfigurationError, match=name):
        make([], **problem)


WRONG_FEEDBACK = {
    "an unknown round": (
        (9,),
        {"times_s": {"a": 1.0}},
        FeedbackError,
        "round 9, which has not begun; the last one was 1",
    ),
    "round 0": ((0,), {"times_s": {"a": 1.0}}, FeedbackError, "round 0"),
    "a truth value for a round": ((True,), {"times_s": {"a": 1.0}}, FeedbackError, "round True"),
    "a fraction for a round": ((1.0,), {"times_s": {"a": 1.0}}, FeedbackError, r"round 1\.0"),
    "a list for a round": (([1],), {"times_s": {"a": 1.0}}, FeedbackError, r"round \[1\]"),
    "an unselected client": ((1,), {"times_s": {"a": 1.0, "c": 1.0}}, FeedbackError, "'c' was not chosen in round 1"),
    "an unknown client": ((1,), {"dropped": ["a", "x"]}, FeedbackError, "'x' was not chosen"),
    "feedback twice": ((1,), {"times_s": {"a": 1.0, "b": 1.0}}, FeedbackError, "'b' has given feedback for round 1"),
    "a second outcome": ((1,), {"dropped": ["b"]}, FeedbackError, "'b' has given feedback for round 1"),
    "two outcomes at once": ((1,), {"times_s": {"a": 1.0}, "failed": ["a"]}, FeedbackError, "'a' has two outcomes"),
    "dropped twice": ((1,), {"dropped": ["a", "a"]}, FeedbackError, "'a' has two outcomes"),
    "late without a time": ((1,), {"late": ["a"]}, FeedbackError, "'a' is late in round 1, but has no time"),
    "late and dropped": ((1,), {"dropped": ["a"], "late": ["a"]}, FeedbackError, "'a' is late in round 1, but has no"),
    "late and unselected": ((1,), {"times_s": {"a": 1.0}, "late": ["c"]}, FeedbackError, "'c' was not chosen"),
    "times without clients": ((1,), {"times_s": [1.0, 2.0]}, InvalidInputError, "times_s is a list; expected a map"),
}


@pytest.mark.parametrize("case", WRONG_FEEDBACK)
def test_wrong_feedback_teaches_nothing(tmp_path, case):
    arguments, words, error, message = WRONG_FEEDBACK[case]
    selector = make(["a", "b", "c"])
    selector.select(contexts("ab"))
    selector.observe(1, times_s={"b": 2.0})
    before, waiting = kept(selector, tmp_path), selector.open_rounds()
    with pytest.raises(error, match=message) as caught:
        selector.observe(*arguments, **words)
    assert isinstance(caught.value, FedrosterError)
    assert isinstance(caught.value, ValueError)
    assert kept(selector, tmp_path) == before
    assert selector.open_rounds() == waiting == {1: ("a",)}
    selector.observe(1, times_s={"a": 1.0})


class Told(Stateless):
    """Keeps the feedback that it gets."""

    wants_losses = True

    def __init__(self):
        self.feedback = []

    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.flatnonzero(context.available))

    def update(self, state, feedback, /):
        self.feedback.append(feedback)
        return state


def test_losses_and_samples_are_told_by_client():
    policy = Told()
    selector = make(["a", "b", "c"], policy=policy, cohort_size=3)
    selector.select(contexts("abc"))
    selector.observe(
        1, times_s={"c": 3.0, "a": 1.0}, dropped=["b"], losses={"c": np.float32(0.5)}, num_samples={"a": 20, "c": 30}
    )
    (feedback,) = policy.feedback
    assert feedback.client.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(feedback.loss, [np.nan, np.nan, 0.5])
    np.testing.assert_array_equal(feedback.num_samples, [20.0, np.nan, 30.0])
    assert feedback.squared_loss is None
    selector.select(contexts("abc"))
    selector.observe(2, times_s={"b": 2.0}, squared_losses={"b": 0.0})
    selector.observe(2, times_s={"a": 2.0}, late=["a"], losses={"a": -1.0})
    assert policy.feedback[1].squared_loss.tolist() == [0.0]
    assert policy.feedback[1].loss is None
    assert policy.feedback[2].loss.tolist() == [-1.0]


class ToldSignatures(Told):
    signature = Signature(length=2)


def test_signatures_are_told_by_client_if_the_policy_learns_from_them():
    policy = ToldSignatures()
    selector = make(["a", "b", "c"], policy=policy, cohort_size=3)
    selector.select(contexts("abc"))
    selector.observe(1, times_s={"c": 3.0, "a": 1.0}, signatures={"c": np.float32([0.5, -2.0])})
    selector.observe(1, times_s={"b": 3.0})
    np.testing.assert_array_equal(policy.feedback[0].signature, [[np.nan, np.nan], [0.5, -2.0]])
    assert policy.feedback[1].signature is None
    deaf = Told()
    selector = make(["a"], policy=deaf, cohort_size=1)
    selector.select(contexts("a"))
    selector.observe(1, times_s={"a": 3.0}, signatures={"a": [1.0, 2.0, 3.0]})
    assert deaf.feedback[0].signature is None


@pytest.mark.parametrize(
    ("signatures", "error", "message"),
    [
        ({"b": [1.0, 2.0]}, FeedbackError, "client 'b' is in signatures of round 1, but has no time in times_s"),
        ({"a": [1.0]}, InvalidInputError, r"signatures of client 'a' is \[1.0\]; expected 2 finite numbers"),
        ({"a": 1.0}, InvalidInputError, "signatures of client 'a' is 1.0; expected 2 finite numbers"),
        ({"a": [[1.0, 2.0]]}, InvalidInputError, "expected 2 finite numbers"),
        ({"a": [1.0, np.inf]}, InvalidInputError, "expected 2 finite numbers"),
        ({"a": [1.0, "x"]}, InvalidInputError, "expected 2 finite numbers"),
        ({"a": [1.0, 10**400]}, InvalidInputError, "expected 2 finite numbers"),
        ([1.0, 2.0], InvalidInputError, "signatures are a list; expected a mapping"),
    ],
)
def test_wrong_signatures_teach_nothing(signatures, error, message):
    policy = ToldSignatures()
    selector = make(["a", "b", "c"], policy=policy, cohort_size=3)
    selector.select(contexts("abc"))
    with pytest.raises(error, match=message):
        selector.observe(1, times_s={"a": 1.0}, signatures=signatures)
    assert policy.feedback == []


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"losses": {"b": 1.0}}, FeedbackError, "client 'b' is in losses of round 1, but has no time in times_s"),
        ({"losses": {"c": 1.0}}, FeedbackError, "client 'c' is in losses of round 1, but has no time"),
        ({"num_samples": {"x": 1.0}}, FeedbackError, "client 'x' is in num_samples of round 1, but has no time"),
        ({"losses": {True: 1.0}}, FeedbackError, "client True is in losses"),
        ({"losses": {"a": float("nan")}}, InvalidInputError, "losses of client 'a' is nan; expected a finite number"),
        ({"losses": {"a": "low"}}, InvalidInputError, "losses of client 'a' is 'low'; expected a finite number"),
        (
            {"squared_losses": {"a": -1.0}},
            InvalidInputError,
            "squared_losses of client 'a' is -1.0; .* finite number >= 0",
        ),
        ({"num_samples": {"a": 0}}, InvalidInputError, "num_samples of client 'a' is 0; expected a finite number > 0"),
        ({"num_samples": {"a": True}}, InvalidInputError, "num_samples of client 'a' is True"),
        ({"losses": [0.5]}, InvalidInputError, "losses are a list; expected a mapping from client to number"),
        ({"times_s": {}, "dropped": [], "losses": {"a": 1.0}}, FeedbackError, "client 'a' is in losses of round 1"),
    ],
)
def test_wrong_losses_teach_nothing(words, error, message):
    policy = Told()
    selector = make(["a", "b", "c"], policy=policy, cohort_size=3)
    selector.select(contexts("abc"))
    with pytest.raises(error, match=message):
        selector.observe(1, **({"times_s": {"a": 1.0}, "dropped": ["b"]} | words))
    assert policy.feedback == []
    assert selector.open_rounds() == {1: ("a", "b", "c")}


@pytest.mark.parametrize(
    "wrong",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        -1.0,
        0.0,
        -0.0,
        0,
        True,
        np.True_,
        "1.5",
        b"1.5",
        "fast",
        None,
        [1.0],
        np.array([1.0, 2.0]),
        1j,
        np.float32("inf"),
    ],
    ids=repr,
)
def test_times_are_positive_finite_numbers(tmp_path, wrong):
    selector = make(["a", "b"])
    selector.select(contexts("ab"))
    before = kept(selector, tmp_path)
    with pytest.raises(InvalidInputError, match=r"time of client 'b' is .*; expected a finite number of seconds > 0"):
        selector.observe(1, times_s={"a": 1.0, "b": wrong})
    assert kept(selector, tmp_path) == before
    selector.observe(1, times_s={"a": 1.0, "b": 1.0})


@pytest.mark.parametrize("time_s", [1, 1.0, np.float32(1.0), np.int64(1), Decimal("1"), np.array(1.0), 5e-324, 1e300])
def test_any_real_number_is_a_time(time_s):
    selector = make(["a"], cohort_size=1)
    selector.select({"a": [1.0]})
    selector.observe(1, times_s={"a": time_s})
    assert selector.open_rounds() == {}


@pytest.mark.parametrize("name", ["late", "dropped", "failed"])
def test_one_id_is_no_collection_of_ids(name):
    selector = Selector(RBCSF(beta=0.1), cohort_size=1, num_features=1, clients=["a", "b"])
    cohort = selector.select({"a": [1.0]})
    times = {"times_s": {"a": 1.0}} if name == "late" else {}
    with pytest.raises(InvalidInputError, match=f"{name} is the string 'a'; expected a collection of ids"):
        selector.observe(cohort.round, **times, **{name: "a"})
    selector.observe(cohort.round, **times, **{name: ["a"]})


# -------------------------------------------------------------------- twice, and too late


@pytest.mark.parametrize(
    ("arguments", "words", "message"),
    [
        ((4,), {"times_s": {"a": 1.0}}, "round 4, which has not begun; the last one was 1"),
        ((0,), {}, "round 0, which has not begun"),
        ((True,), {}, "round True, which has not begun"),
        ((1,), {"times_s": {"b": 1.0, "x": 1.0}}, "'x' was not chosen in round 1"),
        ((1,), {"times_s": {"b": 1.0}, "losses": {"x": 1.0}}, "'x' is in losses of round 1"),
        ((1,), {"times_s": {"b": 0.0}}, "time of client 'b' is 0.0"),
        ((1,), {"again": "sometimes"}, "again is 'sometimes'; expected 'error' or 'ignore'"),
    ],
)
def test_what_is_wrong_is_not_ignored(tmp_path, arguments, words, message):
    selector = make(["a", "b"])
    selector.select(contexts("ab"))
    selector.observe(1, times_s={"a": 1.0})
    before = kept(selector, tmp_path)
    with pytest.raises((FeedbackError, InvalidInputError), match=message):
        selector.observe(*arguments, **({"again": "ignore"} | words))
    assert kept(selector, tmp_path) == before


# -------------------------------------------------------------------- one mapping of outcomes


def test_a_status_for_each_client_is_the_same_as_lists_of_clients(tmp_path):
    lists, mapping = (make(list("abcde"), cohort_size=5) for _ in range(2))
    for selector in (lists, mapping):
        selector.select(contexts("abcde"))
    lists.observe(1, times_s={"a": 1.0, "b": 2.0}, late=["b"], dropped=["c"], failed=["d"])
    status = {"b": Status.LATE, "c": Status.DROPPED, "d": Status.FAILED, "a": Status.COMPLETED, "e": None}
    mapping.observe(1, times_s={"a": 1.0, "b": 2.0}, status=status)
    assert kept(lists, tmp_path) == kept(mapping, tmp_path)
    assert mapping.open_rounds() == {1: ("e",)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"status": {"a": Status.COMPLETED}}, "'a' is completed in round 1, but has no time in times_s"),
        ({"status": {"a": Status.LATE}}, "'a' is late in round 1, but has no time in times_s"),
        ({"status": {"a": Status.FAILED}, "times_s": {"a": 1.0}}, "'a' has two outcomes"),
        ({"status": {"a": Status.FAILED}, "dropped": ["a"]}, "'a' has two outcomes"),
        ({"status": {"x": Status.FAILED}}, "'x' was not chosen"),
        ({"status": {"a": "failed"}}, "status of client 'a' is 'failed'; expected"),
        ({"status": ["a"]}, "status is a list; expected a mapping from client to Status"),
    ],
)
def test_a_wrong_status_teaches_nothing(tmp_path, words, message):
    selector = make(["a", "b"])
    selector.select(contexts("ab"))
    before = kept(selector, tmp_path)
    with pytest.raises((FeedbackError, InvalidInputError), match=message):
        selector.observe(1, **words)
    assert kept(selector, tmp_path) == before


def test_a_new_promise_is_judged_by_what_came_since():
    selector = Selector(RBCSF(beta=0.0), cohort_size=2, clients=[*"abcd"])

    def rounds(number, available):
        for _ in range(number):
            cohort = selector.select(available=available)
            selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))

    rounds(60, [True] * 4)
    assert selector.participation()["a"] > 20
    selector.policy = RBCSF(beta=0.25)
    rounds(49, [False, True, True, True])
    assert selector.below_promise() == ()
    rounds(1, [False, True, True, True])
    assert selector.below_promise() == ("a",)
