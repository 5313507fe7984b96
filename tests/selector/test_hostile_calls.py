"""Values that no caller means, in any argument: an error of ours, and nothing has changed."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from federations import kept, make
from fedroster import RBCSF, EdgeSelector, FedrosterError, Selector
from fedroster.core.checks import shown
from fedroster.errors import ConfigurationError, FeedbackError, InvalidInputError
from fedroster.policies import COCS
from fedroster.types import Status

HUGE, LONGER = 10**400, 10**5000  # beyond any float; beyond what a file's header can hold

TOLD = {
    "a round to come": ({"round": 9}, "9, which has not begun; the last one was 1"),
    "round 0": ({"round": 0}, "round 0"),
    "a truth value for a round": ({"round": True}, "round True"),
    "a list for a round": ({"round": [1]}, r"round \[1\]"),
    "who was not chosen": ({"times_s": {"a": 1.0, "c": 1.0}}, "'c' was not chosen in round 1"),
    "a stranger": ({"dropped": ["a", "x"]}, "'x' was not chosen"),
    "1.0 for client 1": ({"times_s": {1.0: 1.0}}, "1.0 was not chosen"),
    "what cannot be hashed": ({"failed": [([],)]}, "was not chosen"),
    "a time again": ({"times_s": {1: 1.0}}, "1 has given feedback"),
    "a second outcome": ({"dropped": [1]}, "1 has given feedback"),
    "two outcomes": ({"failed": ["a"]}, "'a' has two outcomes"),
    "a status and a list": ({"times_s": {}, "status": {"a": Status.FAILED}, "dropped": ["a"]}, "two outcomes"),
    "a status of a stranger": ({"status": {"x": Status.FAILED}}, "'x' was not chosen"),
    "late without a time": ({"times_s": {}, "late": ["a"]}, "'a' is late .* no time"),
    "completed without a time": ({"times_s": {}, "status": {"a": Status.COMPLETED}}, "'a' is completed .* no time"),
    "a loss of a client that dropped": ({"times_s": {}, "dropped": ["a"], "losses": {"a": 1.0}}, "'a' is in losses"),
    "a loss of no client": ({"losses": {"c": 1.0}}, "'c' is in losses"),
    "a loss of True": ({"losses": {True: 1.0}}, "True is in losses"),
}
"""What is told of a round, or of a client in it, that cannot be: a FeedbackError."""

VALUES = {
    "times as a list": ({"times_s": [("a", 1.0)]}, "times_s is a list"),
    "a loss that is NaN": ({"losses": {"a": math.nan}}, "losses of client 'a' is nan"),
    "a loss that is text": ({"losses": {"a": "low"}}, "losses of client 'a' is 'low'"),
    "a squared loss below 0": ({"squared_losses": {"a": -1.0}}, "squared_losses of client 'a' is -1.0; .* >= 0"),
    "no samples": ({"num_samples": {"a": 0}}, "num_samples of client 'a' is 0; .* > 0"),
    "losses as a list": ({"losses": [0.5]}, "losses are a list"),
    "the round's length": ({"round_s": HUGE}, "round_s"),
    "a word for a status": ({"times_s": {}, "status": {"a": "failed"}}, "status of client 'a' is 'failed'"),
    "a list of states": ({"status": ["a"]}, "status is a list"),
    "a word that again does not know": ({"again": "sometimes"}, "again is 'sometimes'"),
    "one id that is late": ({"late": "a"}, "late is the string 'a'"),
    "no late ones": ({"late": None}, "late"),
    "no unlearned ones": ({"unlearned": None}, "unlearned"),
    "arrays among the unlearned": ({"unlearned": [np.zeros(2)]}, "client id is array"),
    "costs of a flat federation": ({"costs": {"a": 1.0}}, "without edge servers"),
}
NO_TIMES = [math.nan, math.inf, -math.inf, -1.0, 0.0, 0, HUGE, -HUGE, Fraction(HUGE, 3), True, np.True_, "1.5"]
NO_TIMES += [b"1.5", None, [1.0], np.array([1.0, 2.0]), 1j, np.float32("inf")]
VALUES |= {
    f"a time of {shown(no)}": ({"times_s": {"a": no}}, "time of client 'a' is .* seconds > 0") for no in NO_TIMES
}
"""What is told and is no such value: an InvalidInputError, or a ConfigurationError."""

ASK = {
    "NaN": ({1: [1.0], "a": [math.nan]}, {}, r"client 'a' are \[nan\]; expected finite"),
    "a negative number": ({"a": [-0.5]}, {}, r"client 'a' are \[-0.5\]; .* >= 0"),
    "None": ({"a": [None]}, {}, r"client 'a' are \[nan\]"),
    "a number beyond any float": ({1: [HUGE], "a": [1.0]}, {}, None),
    "too many features": ({"a": [1.0, 2.0]}, {}, r"shape \(1, 2\)"),
    "a scalar": ({"a": 1.0}, {}, r"shape \(1,\)"),
    "ragged rows": ({1: [1.0], "a": [1.0, 2.0]}, {}, "not an array of numbers"),
    "digits as text": ([["1.0"], ["2.0"]], {}, "not an array of numbers"),
    "complex numbers": ([[1j], [1.0]], {}, "not an array of numbers"),
    "a sentence": ("ab", {}, "contexts are the string 'ab'"),
    "bytes": (b"a", {}, None),
    "a vector": ([1.0, 2.0], {}, r"shape \(2,\)"),
    "too many columns": (np.ones((2, 2)), {}, r"shape \(2, 2\)"),
    "rows against clients": ([[1.0]], {"clients": [1, "a"]}, r"expected \(2"),
    "a client twice": ([[1.0]] * 2, {"clients": ["a", "a"]}, "'a' is named twice"),
    "clients that are none": ([[1.0]], {"clients": 1}, None),
    "1.0 for client 1": ({1.0: [1.0]}, {}, None),
    "a longer id": ({LONGER: [1.0]}, {}, None),
    "integers as availability": ([[1.0]] * 2, {"available": [1, 0]}, "available has type int"),
    "text as availability": ([[1.0]] * 2, {"available": ["y", "n"]}, "has type <U"),
    "long availability": ([[1.0]] * 2, {"available": [True] * 3}, r"shape \(3,\)"),
    "mapping and clients": ({"a": [1.0]}, {"clients": ["a"]}, "a mapping names clients"),
}


@pytest.fixture
def selector():
    """Two of three clients are in a round, and one of them has answered."""
    made = make([1, "a", "c"])
    made.select([1, "a"])
    made.observe(1, times_s={1: 2.0})
    return made


@pytest.mark.parametrize(
    ("case", "again"),
    [
        *((case, "error") for case in TOLD | VALUES),
        *((case, "ignore") for case, (_, noun) in TOLD.items() if "1 has given feedback" not in noun),
    ],
)
def test_what_is_told_is_refused(selector, tmp_path, case, again):
    words, noun = (TOLD | VALUES)[case]
    before = kept(selector, tmp_path)
    with pytest.raises(FeedbackError if case in TOLD else (InvalidInputError, ConfigurationError), match=noun):
        selector.observe(**{"round": 1, "times_s": {"a": 1.0}, "again": again} | words)
    assert kept(selector, tmp_path) == before
    assert selector.open_rounds() == {1: ("a",)}
    selector.observe(1, times_s={"a": 1.0})


@pytest.mark.parametrize("case", ASK)
def test_what_is_asked_is_refused(tmp_path, case):
    contexts, words, noun = ASK[case]
    selector = make([1, "a"])
    before = kept(selector, tmp_path)
    with pytest.raises(FedrosterError, match=noun):
        selector.select(contexts, **words)
    assert kept(selector, tmp_path) == before
    assert selector.select({"a": [1.0]}).round == 1


NO_IDS = [LONGER, -LONGER, b"b", 2.0, True, np.True_, None, (1,), []]


@pytest.mark.parametrize(
    "clients", [None, 5, True, b"b", "b", *[[each] for each in NO_IDS], ["b", "b"], [1], ["new", 1]]
)
def test_members_are_refused(selector, tmp_path, clients):
    before = kept(selector, tmp_path)
    with pytest.raises(FedrosterError):
        selector.join(clients)
    with pytest.raises(FedrosterError):
        selector.leave([3] if clients == [1] else clients)
    assert kept(selector, tmp_path) == before  # and it can be saved


@pytest.mark.parametrize(
    "words",
    [
        *[{"cohort_size": value} for value in (HUGE, 0, True)],
        *[{"num_features": value} for value in (HUGE, 0)],
        *[{"seed": value} for value in (LONGER, -1)],
        *[{"patience_rounds": value} for value in (HUGE, 0, -1, 1.5, True, "3")],
        *[{"longest_s": value} for value in (HUGE, np.array([]), "car", "4", math.nan, math.inf, 0.0, -1.0, True)],
        *[{"longest_absence": value} for value in (HUGE, 0)],
        *[{"clients": value} for value in ([LONGER], None)],
        {"guarded": "no"},
        {"failures": (1, 2)},
    ],
    ids=shown,
)
def test_what_a_selector_is_made_with_is_refused(words):
    (name,) = words
    with pytest.raises(FedrosterError, match=name.removesuffix("s")):
        Selector(RBCSF(), **{"cohort_size": 2} | words)


@pytest.mark.parametrize("budgets", [{"n": HUGE}, {"n": -1.0}, {1: 1.0}, {b"n": 1.0}, {}, None, ["n"]], ids=shown)
def test_budgets_are_refused(budgets):
    with pytest.raises(FedrosterError):
        EdgeSelector(COCS(), budgets=budgets, cohort_size=2)


@pytest.mark.parametrize(
    "words",
    [
        {"prices": {1: HUGE, "a": 1.0}},
        {"prices": [1.0, -1.0]},
        {"prices": [1.0, "free"]},
        {"prices": np.array([1.0, 2j])},
        {"prices": {1: 1.0}},
        *[{"prices": [1.0] * count} for count in (1, 3)],
        *[{"servers": [["n"]] * count} for count in (1, 3)],
        {"servers": {1: ["n"]}},
        {"servers": [["n"], np.array("n")]},
        {"servers": "nn"},
        {"prices": "12", "servers": None},
    ],
    ids=shown,
)
def test_what_is_said_of_links_is_refused(words):
    selector = EdgeSelector(COCS(), budgets={"n": 2.0}, cohort_size=2, clients=[1, "a"], num_features=1)
    with pytest.raises(FedrosterError, match=next(iter(words))):
        selector.select({1: [0.5], "a": [0.5]}, **words)
    assert selector.round == 0
    cohort = selector.select({1: [0.5], "a": [0.5]})
    for costs in ({1: HUGE}, {1: -1.0}, {1.0: 1.0}, {"b": 1.0}, [1.0]):
        with pytest.raises(FedrosterError):
            selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0), costs=costs)
