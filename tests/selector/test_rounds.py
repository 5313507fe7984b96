"""Feedback that is late, in parts, twice, missing or wrong."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from federations import answered, assert_same_learned, contexts, kept, learned, make
from fedroster import RBCSF, Floor, Selector
from fedroster.core.errors import FeedbackError, InvalidInputError
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
        ({"a": [1.0, np.inf]}, InvalidInputError, "expected 2 finite numbers"),
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


@pytest.mark.parametrize("time_s", [1, 1.0, np.float32(1.0), np.int64(1), Decimal("1"), np.array(1.0), 5e-324, 1e300])
def test_any_real_number_is_a_time(time_s):
    selector = make(["a"], cohort_size=1)
    selector.select({"a": [1.0]})
    selector.observe(1, times_s={"a": time_s})
    assert selector.open_rounds() == {}


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


def test_a_promise_of_the_rounds_in_which_a_client_is_there_is_not_judged_by_all_rounds():
    selector = Selector(Floor(beta=0.25, slack=0, share_of="available"), cohort_size=2, clients=[*"abcd"])
    answered(selector, 130, available=[False, True, True, True])  # no warning: warnings are errors here
    assert selector.below_promise() == ()


def test_a_new_promise_is_judged_by_what_came_since():
    selector = Selector(RBCSF(beta=0.0), cohort_size=2, clients=[*"abcd"])

    answered(selector, 60)
    assert selector.participation()["a"] > 20
    selector.policy = RBCSF(beta=0.25)
    answered(selector, 49, available=[False, True, True, True])
    assert selector.below_promise() == ()
    answered(selector, 1, available=[False, True, True, True])
    assert selector.below_promise() == ("a",)
