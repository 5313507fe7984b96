"""Events: what observers are told, when, and what their failures cost."""

import copy

import numpy as np
import pytest
from msgspec.structs import replace as replaced

from federations import LETTERS_LIST, make, play
from fedroster import RBCSF, Record, Selector
from fedroster.errors import ConfigurationError, FedrosterError
from fedroster.folder.events import BegunLine, Decided, Joined, Left, Set, Told
from fedroster.selector.keeping import settings_of


def test_each_call_is_told_with_what_it_was_given():
    events = []
    selector = make(list("abc"), observers=[lambda event, _: events.append(event)])
    told = {"c": [3.0], "a": [1.0]}
    cohort = selector.select(told)
    selector.observe(cohort.round, times_s={cohort.clients[0]: 2.0}, dropped=cohort.clients[1:], round_s=9.0)
    selector.leave(["b"], forget=True)
    began, joined, decided, heard, left = events
    assert (joined, left) == (Joined(clients=("a", "b", "c")), Left(clients=("b",), forgotten=True))
    assert isinstance(began, BegunLine)
    assert (began.round, began.policy, began.settings.cohort_size) == (0, repr(selector.policy), 2)
    assert isinstance(decided, Decided)
    assert isinstance(heard, Told)
    assert selector.ids_of(decided.asked.slot) == ("c", "a")
    assert decided.asked.rows.tolist() == [[3.0], [1.0]]
    assert decided.seen.tolist() == [True, False, True]
    assert (decided.round, decided.places, decided.servers) == (1, 2, None)
    assert selector.ids_of(decided.chosen) == cohort.clients
    assert heard.round_s == 9.0
    assert np.isnan(heard.feedback.exchange_time_s).sum() == 1
    assert heard.learned_s.max() == 9.0


def test_a_copy_has_no_observers():
    events = []
    copied = copy.deepcopy(make(list("abc"), observers=[lambda event, _: events.append(event)]))
    seen = len(events)
    copied.select()
    assert len(events) == seen


def test_what_is_no_observer_and_two_records_are_refused(tmp_path):
    for observers in (["tensorboard"], [Record(tmp_path / name) for name in "ab"]):
        with pytest.raises(ConfigurationError, match="observer"):
            make(list("abc"), observers=observers)


@pytest.mark.parametrize(
    "wrong",
    [
        {"patience_rounds": 0},
        {"longest_s": "slow"},
        {"failures": (False, -1, 1)},
        {"cohort_size": 7},
        {"budgets": [("a", 1.0)]},
    ],
)
def test_settings_that_cannot_be_change_nothing(wrong):
    selector = make(LETTERS_LIST, num_features=3)
    play(selector, 2)
    before, policy = settings_of(selector), selector.policy
    with pytest.raises(FedrosterError):
        selector.apply(Set(settings=replaced(before, **wrong), policy=repr(RBCSF(beta=0.2))))
    assert (settings_of(selector), selector.policy) == (before, policy)


def test_observers_of_a_file_may_be_an_iterator(tmp_path):
    make(LETTERS_LIST, num_features=3).save(tmp_path / "state.npz")
    seen = []
    observers = iter([lambda event, _: seen.append(event)])
    loaded = Selector.load(tmp_path / "state.npz", make(LETTERS_LIST, num_features=3).policy, observers=observers)
    play(loaded, 1)
    assert seen


@pytest.mark.parametrize("forget", [False, True])
def test_a_decision_that_does_not_hold_any_more_is_not_booked(forget):
    selector = make(list("abc"))
    decided = selector.decide()
    selector.leave(selector.ids_of(decided.chosen)[:1], forget=forget)
    with pytest.raises(FedrosterError):
        selector.apply(decided)
    assert (selector.round, selector.open_rounds()) == (0, {})
    selector.apply(decided := selector.decide())
    assert selector.open_rounds() == {1: selector.ids_of(decided.chosen)}


def test_what_was_told_before_is_not_booked_again():
    events = []
    selector = make(LETTERS_LIST, num_features=3, observers=[lambda event, _: events.append(event)])
    play(selector, 1)
    before = selector.participation("trained")
    with pytest.raises(FedrosterError):
        selector.apply(events[-1])
    assert selector.participation("trained") == before
