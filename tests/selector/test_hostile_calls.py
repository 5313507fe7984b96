"""Values that no caller means, in any argument: an error of ours, and nothing has changed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from federations import kept, make
from fedroster import RBCSF, EdgeSelector, FedrosterError, Selector
from fedroster.core.checks import shown
from fedroster.policies import COCS

HUGE, LONGER = 10**400, 10**5000  # beyond any float; beyond what a file's header can hold

TELL = {
    "a time beyond any float": {"times_s": {1: HUGE}},
    "a negative one": {"times_s": {1: -HUGE}},
    "a fraction beyond any float": {"times_s": {1: Fraction(HUGE, 3)}},
    "a loss": {"times_s": {1: 1.0}, "losses": {1: HUGE}},
    "a squared loss": {"times_s": {1: 1.0}, "squared_losses": {1: HUGE}},
    "samples": {"times_s": {1: 1.0}, "num_samples": {1: HUGE}},
    "the round's length": {"times_s": {1: 1.0}, "round_s": HUGE},
    "1.0 for client 1": {"times_s": {1.0: 1.0}},
    "bytes for a client": {"times_s": {b"a": 1.0}},
    "times as a list": {"times_s": [(1, 1.0)]},
    "1.0 among the dropped": {"dropped": [1.0]},
    "no late ones": {"times_s": {1: 1.0}, "late": None},
    "no dropped ones": {"dropped": None},
    "a number of failed ones": {"failed": 1},
    "bytes as failed ones": {"failed": b"a"},
    "what cannot be hashed": {"dropped": [([],)]},
    "no unlearned ones": {"times_s": {1: 1.0}, "unlearned": None},
    "costs of a flat federation": {"times_s": {1: 1.0}, "costs": {1: HUGE}},
}
ASK = {
    "a context beyond any float": ({1: [HUGE], "a": [1.0]}, {}),
    "an array of such": ([[HUGE], [1.0]], {}),
    "bytes as contexts": (b"a", {}),
    "1.0 for client 1": ({1.0: [1.0]}, {}),
    "a longer id": ({LONGER: [1.0]}, {}),
    "a list that is too short": ([[1.0]], {}),
    "availability that is too long": ([[1.0], [1.0]], {"available": [True] * 3}),
    "clients that are none": ([[1.0]], {"clients": 1}),
}


@pytest.fixture
def selector():
    made = make([1, "a"])
    made.select()
    return made


@pytest.mark.parametrize("case", TELL)
def test_what_is_told_is_refused(selector, tmp_path, case):
    before = kept(selector, tmp_path)
    with pytest.raises(FedrosterError):
        selector.observe(1, **TELL[case])
    assert kept(selector, tmp_path) == before
    selector.observe(1, times_s={1: 1.0, "a": 1.0})


@pytest.mark.parametrize("case", ASK)
def test_what_is_asked_is_refused(selector, tmp_path, case):
    contexts, words = ASK[case]
    before = kept(selector, tmp_path)
    with pytest.raises(FedrosterError):
        selector.select(contexts, **words)
    assert kept(selector, tmp_path) == before


@pytest.mark.parametrize("clients", [None, 5, True, b"b", [LONGER], [-LONGER], [b"b"], [2.0], ["b", "b"], [[]], [1]])
def test_members_are_refused(selector, tmp_path, clients):
    before = kept(selector, tmp_path)
    with pytest.raises(FedrosterError):
        selector.join(clients)
    with pytest.raises(FedrosterError):
        selector.leave(clients if clients != [1] else [3])
    assert kept(selector, tmp_path) == before  # and it can be saved


@pytest.mark.parametrize(
    "words",
    [{"cohort_size": HUGE}, {"seed": LONGER}, {"seed": -1}, {"num_features": HUGE}, {"patience_rounds": HUGE}]
    + [{"longest_s": value} for value in (HUGE, np.array([]), "car", float("nan"))]
    + [{"longest_absence": HUGE}, {"clients": [LONGER]}, {"clients": None}, {"guarded": "no"}, {"failures": (1, 2)}],
    ids=shown,
)
def test_what_a_selector_is_made_with_is_refused(words):
    with pytest.raises(FedrosterError):
        Selector(RBCSF(), **{"cohort_size": 2} | words)


@pytest.mark.parametrize("words", [{"V": HUGE}, {"beta": HUGE}, {"alpha": HUGE}, {"V": float("nan")}], ids=shown)
def test_what_a_policy_is_made_with_is_refused(words):
    with pytest.raises(FedrosterError):
        RBCSF(**words)


@pytest.mark.parametrize("budgets", [{"n": HUGE}, {"n": -1.0}, {1: 1.0}, {b"n": 1.0}, {}, None, ["n"]], ids=shown)
def test_budgets_are_refused(budgets):
    with pytest.raises(FedrosterError):
        EdgeSelector(COCS(), budgets=budgets, cohort_size=2)


@pytest.mark.parametrize(
    "words",
    [
        {"prices": {1: HUGE, "a": 1.0}},
        {"prices": ["free", "free"]},
        {"prices": [1.0]},
        {"prices": [1.0] * 3},
        {"servers": [["n"]]},
        {"servers": [["n"]] * 3},
        {"servers": b"nn"},
        {"servers": None, "prices": "12"},
    ],
    ids=shown,
)
def test_lists_of_the_wrong_length_begin_no_round(words):
    selector = EdgeSelector(COCS(), budgets={"n": 2.0}, cohort_size=2, clients=[1, "a"], num_features=1)
    with pytest.raises(FedrosterError):
        selector.select({1: [0.5], "a": [0.5]}, **words)
    assert selector.round == 0
    cohort = selector.select({1: [0.5], "a": [0.5]})
    for costs in ({1: HUGE}, {1.0: 1.0}, {"b": 1.0}, [1.0]):
        with pytest.raises(FedrosterError):
            selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0), costs=costs)
