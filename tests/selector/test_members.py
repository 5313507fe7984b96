"""Who belongs: ids, joining, leaving, forgetting."""

from __future__ import annotations

import numpy as np
import pytest

from federations import LETTERS, LETTERS_LIST, POLICY, array, assert_same_learned, contexts, learned, make, play
from fedroster import Selector, Uniform
from fedroster.core.errors import (
    FeedbackError,
    InvalidInputError,
    UnknownNameError,
)
from fedroster.core.state import load_arrays
from fedroster.policies import Dirichlet

TWINS = [
    (0, "0"),
    ("-7", -7),
    ("\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"),
    ("site-1", "site\N{ZERO WIDTH SPACE}-1"),
    ("a\N{RIGHT-TO-LEFT OVERRIDE}", "a\x00"),
    ("\N{FULLWIDTH DIGIT THREE}", 3),
    *(("clinic-7", twin) for twin in ("clinic\u20107", "clinic\u22127", "clinic-7 ", " clinic-7", "clinic-\uff17")),
]


@pytest.mark.parametrize("twins", [*TWINS, *((two, one) for one, two in TWINS[:6])])
def test_names_that_read_the_same_are_refused(twins, tmp_path):
    one, two = twins
    with pytest.raises(InvalidInputError, match="reads as that of"):
        make([one, two])
    selector = make([one])
    selector.save(tmp_path / "state.npz")
    for other in (selector, type(selector).load(tmp_path / "state.npz", selector.policy)):
        with pytest.raises(InvalidInputError, match="reads as that of"):
            other.join([two])
        other.leave([one])  # it may come back
        with pytest.raises(InvalidInputError, match="reads as that of"):
            other.join([two])
        other.join([one])
        other.leave([one], forget=True)
        other.join([two])
        assert other.clients == (two,)


def test_numpy_ids_are_the_numbers_that_they_hold(tmp_path):
    selector = make(np.arange(3), cohort_size=np.int64(2), seed=np.int64(3), patience_rounds=np.int32(9))
    assert selector.clients == (0, 1, 2)
    assert all(type(client) is int for client in selector.clients)
    cohort = selector.select({np.int32(1): [1.0]})
    assert cohort.clients == (1,)
    selector.observe(np.int64(1), times_s={np.uint8(1): np.float32(2.5)})
    assert selector.open_rounds() == {}
    selector.leave([np.int16(0)])
    assert selector.clients == (1, 2)
    selector.save(tmp_path / "state.npz")
    assert Selector.load(tmp_path / "state.npz", POLICY).clients == (1, 2)


def test_unknown_clients_are_named_with_the_nearest():
    selector = make(["berlin", "madrid", 17])
    for call in (
        lambda: selector.select({"berlim": [1.0]}),
        lambda: selector.leave(["berlim"]),
        lambda: selector.select([[1.0]], clients=["berlim"]),
    ):
        with pytest.raises(UnknownNameError, match=r"unknown client 'berlim'. Did you mean 'berlin'") as caught:
            call()
        assert isinstance(caught.value, LookupError)
        assert "'madrid', 17" in str(caught.value)
    with pytest.raises(UnknownNameError, match=r"unknown client 'oslo'\. Members: "):
        selector.leave(["oslo"])
    with pytest.raises(UnknownNameError, match=r"unknown client '17'. Did you mean 17"):
        selector.select({"17": [1.0]})
    selector = make([f"client-{number}" for number in range(500)], policy=Uniform())
    with pytest.raises(UnknownNameError, match=r"Did you mean 'client-\d+'\?.* and 492 more\.") as caught:
        selector.leave(["client-x"])
    assert len(str(caught.value)) < 300


def test_a_stranger_does_not_inherit_what_was_drawn_for_the_forgotten(tmp_path):
    selector = make(["a", "b"], policy=Dirichlet())
    weights = [learned(selector, tmp_path)["policy.log_weight"].tolist()]
    for _ in range(2):
        selector.leave(["b"], forget=True)
        selector.join(["b"])
        weights.append(learned(selector, tmp_path)["policy.log_weight"].tolist())
    assert len({a for a, _ in weights}) == 1
    assert len({b for _, b in weights}) == 3


def test_the_forgotten_leave_no_trace_in_the_file(tmp_path):
    selector = make(["someone", "b"], cohort_size=2)
    selector.select({"someone": [1.25], "b": [1.5]})
    selector.leave(["someone"], forget=True)
    selector.save(tmp_path / "state.npz")
    arrays, header = load_arrays(tmp_path / "state.npz", kind="selector")
    assert header["ids"] == [None, "b"]
    assert b"someone" not in (tmp_path / "state.npz").read_bytes()
    assert arrays["pending.features"].tolist() == [[1.5]]
    assert arrays["policy.backlog"][0] == 0.0
    assert arrays["policy.ridge.moment"][:, 0].tolist() == [0.0]
    assert arrays["chosen"].tolist() == [0, 1]


def test_a_freed_slot_is_used_again(tmp_path):
    selector = make(LETTERS_LIST, cohort_size=3)
    for number in range(200):
        selector.leave([LETTERS[number % 10]], forget=True)
        selector.join([LETTERS[number % 10]])
    assert sorted(selector.clients) == LETTERS_LIST
    selector.save(tmp_path / "state.npz")
    _, header = load_arrays(tmp_path / "state.npz", kind="selector")
    assert header["capacity"] == 10


def test_forgetting_in_the_middle_of_a_round_keeps_the_others_open():
    selector = make(["a", "b", "c"], cohort_size=3)
    selector.select(contexts("abc"))
    selector.leave(["b"], forget=True)
    selector.join(["b2"])
    assert selector.open_rounds() == {1: ("a", "c")}
    with pytest.raises(FeedbackError, match="'b2' was not chosen"):
        selector.observe(1, times_s={"b2": 1.0})
    selector.observe(1, times_s={"a": 1.0, "c": 1.0})
    assert selector.open_rounds() == {}


def test_joining_one_by_one_is_joining_at_once(tmp_path):
    at_once = make(LETTERS_LIST, num_features=3, cohort_size=10)
    one_by_one = make([], num_features=3, cohort_size=10)
    for client in LETTERS:
        one_by_one.join([client])
    assert one_by_one.clients == at_once.clients
    for selector in (at_once, one_by_one):
        play(selector, 12)
    assert_same_learned(learned(at_once, tmp_path), learned(one_by_one, tmp_path))
    assert array(at_once.participation()).tolist() == array(one_by_one.participation()).tolist()
    assert at_once.open_rounds() == one_by_one.open_rounds()
