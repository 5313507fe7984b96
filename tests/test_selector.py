"""The selector: ask and tell, who belongs, bad input, and what survives on disk."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from fedroster import RBCSF, Cohort, Dirichlet, FedCS, FedCSGreedy, OmniscientP3, Selector, Uniform
from fedroster.core.errors import (
    ConfigurationError,
    FairnessWarning,
    FedrosterError,
    FeedbackError,
    InfeasibleError,
    InvalidInputError,
    SelectionError,
    StateFileError,
    UnknownNameError,
)
from fedroster.core.problem import Selection
from fedroster.core.protocols import Stateless
from fedroster.core.state import load_arrays, save_arrays
from fedroster.core.streams import Streams
from fedroster.environment import FlatNetwork
from fedroster.estimation.ridge import ridge_init
from fedroster.policies import CSUCB, E3CS, Oort, PowerOfChoice, RoundRobin, SizeWeighted, TiFL
from fedroster.simulation import simulate

POLICY = RBCSF(V=5.0, beta=0.1)
PEERS = [Oort(), PowerOfChoice(), TiFL(), E3CS(), CSUCB(), RoundRobin(), SizeWeighted()]
LETTERS = "abcdefghij"
LETTERS_LIST = list(LETTERS)


def make(clients=("a", "b", "c"), *, policy=POLICY, cohort_size=2, num_features=1, **options):
    return Selector(policy, cohort_size=cohort_size, num_features=num_features, clients=clients, **options)


def contexts(clients, *, num_features=1, seed=0):
    rng = np.random.default_rng(seed)
    return {client: rng.uniform(0.5, 2.0, num_features).tolist() for client in clients}


def kept(selector, folder):
    """Everything that a selector would save: equal for selectors in the same state."""
    path = Path(folder) / "kept.npz"
    selector.save(path)
    arrays, header = load_arrays(path, kind="selector")
    path.unlink()
    text = {name: (str(value.dtype), value.shape, value.tobytes()) for name, value in arrays.items()}
    return text, json.dumps(header, sort_keys=True)


def learned(selector, folder):
    """The policy's arrays, one column for each member in the order of ``clients``."""
    path = Path(folder) / "learned.npz"
    selector.save(path)
    arrays, _ = load_arrays(path, kind="selector")
    return {name: value[..., arrays["members"]] for name, value in arrays.items() if name.startswith("policy.")}


def assert_same_learned(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def play(selector, rounds, *, seed=0):
    """Rounds with three features, some clients away, and feedback that is late, in parts, or failures."""
    cohorts = []
    for _ in range(rounds):
        number = selector.round + 1
        rng = np.random.default_rng([seed, number])
        here = [client for client in selector.clients if rng.random() < 0.8]
        cohort = selector.select({client: rng.uniform(0.5, 2.0, 3) for client in here})
        assert cohort.round == number
        cohorts.append(cohort)
        for answered, waiting in list(selector.open_rounds().items()):
            some = [client for client in waiting if rng.random() < 0.6]
            fate = {client: rng.random() for client in some}
            selector.observe(
                answered,
                times_s={client: 0.1 + 3.0 * rng.random() for client in some if fate[client] < 0.8},
                late=[client for client in some if fate[client] < 0.2],
                dropped=[client for client in some if 0.8 <= fate[client] < 0.9],
                failed=[client for client in some if fate[client] >= 0.9],
            )
    return cohorts


# -------------------------------------------------------------------- ask and tell


def test_ask_and_tell():
    selector = make(["a", "b", "c"])
    assert (selector.round, selector.clients, selector.policy) == (0, ("a", "b", "c"), POLICY)
    assert selector.open_rounds() == {}
    assert [*selector.cold().values()] == [True, True, True]
    cohort = selector.select({"a": [1.0], "b": [2.0], "c": [4.0]})
    assert cohort.round == selector.round == 1
    assert not cohort.is_empty
    assert len(set(cohort.clients)) == 2
    assert set(cohort.clients) <= {"a", "b", "c"}
    assert selector.open_rounds() == {1: cohort.clients}
    taken = [client in cohort.clients for client in selector.clients]
    assert selector.participation(as_array=True).tolist() == [int(was) for was in taken]
    assert [*selector.cold().values()] == [not was for was in taken]
    selector.observe(1, times_s=dict.fromkeys(cohort.clients, 1.5))
    assert selector.open_rounds() == {}
    assert selector.select({"a": [1.0]}) == Cohort(2, ("a",))
    assert [*selector.cold().values()] == [False, True, True]


def test_cold_is_about_the_last_round_only():
    selector = make(["a", "b"], cohort_size=1)
    selector.select({"a": [1.0]})
    assert [*selector.cold().values()] == [False, True]
    selector.select({"b": [1.0]})
    assert [*selector.cold().values()] == [True, False]
    selector.select({})
    assert [*selector.cold().values()] == [True, True]
    assert selector.participation(as_array=True).tolist() == [1, 1]


def test_feedback_is_learned_from():
    """Two clients, one slow: once both were measured, a policy that only looks at time takes the fast one."""
    selector = make(["slow", "fast"], policy=RBCSF(V=1.0, beta=0.0, alpha=0.0), cohort_size=1)
    for client, time_s in (("slow", 9.0), ("fast", 1.0)) * 3:
        cohort = selector.select({client: [1.0]})
        selector.observe(cohort.round, times_s={client: time_s})
    chosen = [selector.select({"slow": [1.0], "fast": [1.0]}).clients for _ in range(10)]
    assert chosen == [("fast",)] * 10


def test_without_feedback_nothing_is_preferred():
    """Negative control of the test above: the same rounds without times."""
    selector = make(["slow", "fast"], policy=RBCSF(V=1.0, beta=0.0, alpha=0.0), cohort_size=1)
    for client in ("slow", "fast") * 3:
        cohort = selector.select({client: [1.0]})
        selector.observe(cohort.round, dropped=[client])
    chosen = {selector.select({"slow": [1.0], "fast": [1.0]}).clients for _ in range(30)}
    assert chosen == {("slow",), ("fast",)}


def test_the_same_seed_gives_the_same_cohorts_and_another_seed_others():
    runs = [play(make(LETTERS_LIST, num_features=3, cohort_size=3, seed=seed), 20) for seed in (4, 4, 5)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("policy", [RBCSF(V=20.0), Uniform(), Dirichlet(gamma_2=0.5), *PEERS], ids=str)
def test_selector_and_simulation_agree(policy, seed):
    """The two ways to run a policy are one: same world, same streams, same cohorts."""
    network = FlatNetwork()
    simulated = list(simulate(policy, network, num_rounds=60, seed=seed))
    streams = Streams(seed)
    selector = Selector(policy, cohort_size=8, num_features=3, seed=seed, clients=range(40))
    state = network.init(rng=streams.at("environment-init"))
    for played in simulated:
        context, outcome = network.observe(state, played.number, rng=streams.at("environment", played.number))
        np.testing.assert_array_equal(selector.cold(as_array=True), context.features[:, 1].astype(bool))
        cohort = selector.select(context.features, available=context.available)
        assert cohort.clients == tuple(played.selection.links.tolist())
        times = {client: outcome.exchange_time_s[client] for client in cohort.clients}
        selector.observe(cohort.round, times_s=times)
        state = network.advance(state, context, Selection(played.number, np.array(cohort.clients, np.int64)))


def test_a_mapping_and_an_array_are_the_same_question(tmp_path):
    """Whether contexts come as a mapping, as all rows, or as some rows in any order decides nothing."""
    selectors = [make(LETTERS_LIST, num_features=3, cohort_size=3) for _ in range(4)]
    for number in range(1, 30):
        rng = np.random.default_rng(number)
        rows = rng.uniform(0.5, 2.0, (10, 3))
        here = rng.random(10) < 0.7
        order = rng.permutation(10)
        some = [row for row in order if here[row]]
        cohorts = [
            selectors[0].select({LETTERS[row]: rows[row] for row in some}),
            selectors[1].select(rows, available=here),
            selectors[2].select(rows[order], clients=[LETTERS[row] for row in order], available=here[order]),
            selectors[3].select(np.asfortranarray(rows[some]), clients=[LETTERS[row] for row in some]),
        ]
        assert cohorts == [cohorts[0]] * 4
        times = {client: float(rng.uniform(0.5, 3.0)) for client in cohorts[0].clients}
        for selector in selectors:
            selector.observe(number, times_s=times)
    assert all(kept(selector, tmp_path) == kept(selectors[0], tmp_path) for selector in selectors)


def test_the_callers_arrays_are_not_kept():
    """A caller may reuse its array before the feedback is there."""
    ours, theirs = make(LETTERS_LIST, num_features=3), make(LETTERS_LIST, num_features=3)
    rows = np.random.default_rng(0).uniform(0.5, 2.0, (10, 3))
    cohort = ours.select(rows.copy())
    assert theirs.select(rows) == cohort
    rows[:] = 1e6
    for selector in (ours, theirs):
        selector.observe(1, times_s=dict.fromkeys(cohort.clients, 2.0))
    again = np.random.default_rng(1).uniform(0.5, 2.0, (10, 3))
    assert [ours.select(again) for _ in range(5)] == [theirs.select(again) for _ in range(5)]


def test_whoever_is_missing_is_not_available():
    selector = make(LETTERS_LIST, cohort_size=3)
    for _ in range(20):
        assert set(selector.select(contexts("bdf")).clients) == {"b", "d", "f"}


@pytest.mark.parametrize("policy", [POLICY, Uniform(), Dirichlet(), *PEERS], ids=str)
def test_nobody_available_is_an_explicit_empty_round(policy):
    selector = make(["a", "b", "c"], policy=policy)
    assert selector.select({}) == Cohort(1, ())
    assert selector.select(np.ones((3, 1)), available=[False] * 3).is_empty
    assert selector.select(np.empty((0, 1)), clients=[]).is_empty
    assert selector.round == 3
    assert selector.open_rounds() == {}
    assert selector.participation(as_array=True).tolist() == [0, 0, 0]
    with pytest.raises(FeedbackError, match="round 1"):
        selector.observe(1, times_s={})
    assert selector.select({"b": [1.0]}) == Cohort(4, ("b",))


def test_an_empty_round_counts_for_the_queues(tmp_path):
    selector = make(["a", "b"], policy=RBCSF(V=1.0, beta=0.25))
    for _ in range(4):
        selector.select({})
    assert learned(selector, tmp_path)["policy.backlog"].tolist() == [1.0, 1.0]


def test_no_members_at_all():
    selector = make([])
    assert selector.clients == ()
    assert selector.select({}).is_empty
    assert selector.participation(as_array=True).tolist() == []
    selector.join(["a"])
    assert selector.select({"a": [1.0]}) == Cohort(2, ("a",))


@pytest.mark.parametrize("policy", [POLICY, Uniform(), Dirichlet(), *PEERS], ids=str)
def test_fewer_available_than_the_cohort_takes_them_all(policy):
    selector = make(LETTERS_LIST, policy=policy, cohort_size=5)
    assert selector.select(contexts("bh")).clients == ("b", "h")


# -------------------------------------------------------------------- ids


def test_strings_and_integers_are_different_clients():
    selector = make([1, "1", 2], cohort_size=1)
    assert selector.clients == (1, "1", 2)
    assert selector.select({"1": [1.0]}).clients == ("1",)
    assert selector.select({1: [1.0]}).clients == (1,)
    assert selector.participation(as_array=True).tolist() == [1, 1, 0]
    with pytest.raises(FeedbackError, match=r"client 1 was not chosen in round 1; chosen: \['1'\]"):
        selector.observe(1, times_s={1: 2.0})
    with pytest.raises(UnknownNameError, match=r"unknown client '2'. Did you mean 2"):
        selector.select({"2": [1.0]})


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


@pytest.mark.parametrize("wrong", [True, False, None, 1.0, (1,), b"a", np.True_])
def test_other_ids_are_refused(wrong):
    with pytest.raises(InvalidInputError, match="expected a string or an integer"):
        make([wrong])
    selector = make([0, 1])
    with pytest.raises(InvalidInputError, match="expected a string or an integer"):
        selector.join([wrong])
    with pytest.raises(InvalidInputError, match="expected a string or an integer"):
        selector.leave([wrong])
    with pytest.raises(InvalidInputError, match="expected a string or an integer"):
        selector.select({wrong: [1.0]})
    assert selector.clients == (0, 1)
    assert selector.round == 0


def test_a_truth_value_is_no_client_in_feedback(tmp_path):
    selector = make([0, 1])
    selector.select({0: [1.0], 1: [1.0]})
    before = kept(selector, tmp_path)
    for arguments in ({"times_s": {True: 1.0}}, {"dropped": [False]}, {"failed": [[]]}):
        with pytest.raises(FeedbackError, match="was not chosen in round 1"):
            selector.observe(1, **arguments)
    assert kept(selector, tmp_path) == before


def test_a_string_is_not_a_collection_of_ids():
    for call in (make, make().join, make().leave):
        with pytest.raises(InvalidInputError, match="the string 'xyz'; expected a collection of ids"):
            call("xyz")


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
    assert selector.round == 0
    assert selector.clients == ("berlin", "madrid", 17)


def test_the_error_does_not_list_a_whole_federation():
    selector = make([f"client-{number}" for number in range(500)], policy=Uniform())
    with pytest.raises(UnknownNameError, match=r"Did you mean 'client-\d+'\?.* and 492 more\.") as caught:
        selector.leave(["client-x"])
    assert len(str(caught.value)) < 300


# -------------------------------------------------------------------- joining and leaving


def test_joining_twice_is_refused_and_changes_nothing(tmp_path):
    with pytest.raises(InvalidInputError, match="'a' occurs twice"):
        make(["a", "b", "a"])
    selector = make(["a", "b"])
    before = kept(selector, tmp_path)
    with pytest.raises(InvalidInputError, match="'c' occurs twice"):
        selector.join(["c", "c"])
    with pytest.raises(InvalidInputError, match="'b' joins and is a member already"):
        selector.join(["c", "b"])
    assert kept(selector, tmp_path) == before


@pytest.mark.parametrize("forget", [False, True])
def test_leaving_wrongly_is_refused_and_changes_nothing(tmp_path, forget):
    selector = make(["a", "b", "c"])
    selector.leave(["c"])
    selector.select(contexts("ab"))
    before = kept(selector, tmp_path)
    with pytest.raises(InvalidInputError, match="'a' occurs twice"):
        selector.leave(["a", "a"], forget=forget)
    for wrong in ("c", "x"):
        with pytest.raises(UnknownNameError, match=f"unknown client '{wrong}'"):
            selector.leave(["a", wrong], forget=forget)
    assert kept(selector, tmp_path) == before


def test_whoever_left_is_no_longer_asked():
    selector = make(["a", "b", "c"], cohort_size=3)
    selector.leave(["b"])
    assert selector.clients == ("a", "c")
    assert selector.select([[1.0], [1.0]]).clients == ("a", "c")
    assert selector.participation(as_array=True).tolist() == [1, 1]
    with pytest.raises(UnknownNameError, match="unknown client 'b'"):
        selector.select({"b": [1.0]})


def test_coming_back_keeps_what_was_learned(tmp_path):
    selector = make(["a", "b", "c"], policy=RBCSF(V=1.0, beta=0.25), cohort_size=3)
    selector.select(contexts("abc"))
    selector.observe(1, times_s={"a": 1.0, "b": 2.0, "c": 3.0})
    selector.select(contexts("a"))
    before = learned(selector, tmp_path)
    selector.leave(["b"])
    assert selector.clients == ("a", "c")
    for _ in range(3):  # b's queue rests while b is away
        selector.select({})
    selector.join(["b"])
    assert selector.clients == ("a", "b", "c")
    after = learned(selector, tmp_path)
    for name in ("policy.ridge.factor", "policy.ridge.moment"):
        np.testing.assert_array_equal(before[name], after[name])
    assert (after["policy.backlog"] - before["policy.backlog"]).tolist() == [0.75, 0.0, 0.75]
    assert selector.participation(as_array=True).tolist() == [2, 1, 1]
    assert [*selector.cold().values()] == [True, True, True]


def test_late_feedback_of_one_who_left_is_learned(tmp_path):
    stayed, left = (make(["a", "b"], policy=RBCSF(beta=0.0)) for _ in range(2))
    for selector in (stayed, left):
        selector.select(contexts("ab"))
    left.leave(["b"])
    for selector in (stayed, left):
        selector.observe(1, times_s={"a": 1.0, "b": 2.0})
    left.join(["b"])
    assert_same_learned(learned(stayed, tmp_path), learned(left, tmp_path))


def test_the_forgotten_come_back_as_strangers(tmp_path):
    selector = make(["a", "b", "c"], cohort_size=3)
    selector.select(contexts("abc"))
    selector.observe(1, times_s={"a": 1.0, "b": 2.0})
    selector.leave(["b", "c"], forget=True)
    assert selector.open_rounds() == {}  # c's answer is not waited for
    with pytest.raises(FeedbackError, match="round 1"):
        selector.observe(1, times_s={"c": 1.0})
    selector.join(["b"])
    fresh = ridge_init(2, 1, ridge=1.0)
    now = learned(selector, tmp_path)
    np.testing.assert_array_equal(now["policy.ridge.factor"][:, 1], fresh.factor[:, 1])
    np.testing.assert_array_equal(now["policy.ridge.moment"][:, 1], fresh.moment[:, 1])
    assert now["policy.backlog"][1] == 0.0
    assert now["policy.ridge.moment"][:, 0] != 0.0
    assert selector.participation(as_array=True).tolist() == [1, 0]
    assert [*selector.cold().values()] == [False, True]


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
    assert at_once.participation(as_array=True).tolist() == one_by_one.participation(as_array=True).tolist()
    assert at_once.open_rounds() == one_by_one.open_rounds()


def test_growing_keeps_what_was_learned(tmp_path):
    selector = make(["a", "b"], num_features=3, cohort_size=5)
    play(selector, 10)
    before, waiting = learned(selector, tmp_path), selector.open_rounds()
    selector.join(LETTERS_LIST[2:])
    after = learned(selector, tmp_path)
    fresh = ridge_init(8, 3, ridge=1.0)
    for name, values in before.items():
        np.testing.assert_array_equal(after[name][..., :2], values)
    np.testing.assert_array_equal(after["policy.ridge.factor"][:, 2:], fresh.factor)
    np.testing.assert_array_equal(after["policy.backlog"][2:], np.zeros(8))
    assert selector.open_rounds() == waiting
    play(selector, 10)


def test_growing_while_a_round_is_open():
    selector = make(["a", "b"], cohort_size=2)
    selector.select(contexts("ab"))
    selector.join(LETTERS_LIST[2:9])
    selector.observe(1, times_s={"a": 1.0}, failed=["b"])
    assert selector.open_rounds() == {}
    assert selector.participation(as_array=True).tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0]


# -------------------------------------------------------------------- feedback: late, partial, missing


def test_feedback_in_parts_and_out_of_order_teaches_the_same(tmp_path):
    """Only the order of one client's own observations could matter, to the last bit; here each has one a round."""
    whole, parts = (make(["a", "b", "c", "d"], cohort_size=2) for _ in range(2))
    for selector in (whole, parts):
        selector.select(contexts("ab", seed=1))
        selector.select(contexts("cd", seed=2))
    whole.observe(1, times_s={"a": 1.0, "b": 2.0})
    whole.observe(2, times_s={"c": 3.0}, dropped=["d"])
    parts.observe(2, dropped=["d"])
    assert parts.open_rounds() == {1: ("a", "b"), 2: ("c",)}
    parts.observe(1, times_s={"b": 2.0})
    assert parts.open_rounds() == {1: ("a",), 2: ("c",)}
    parts.observe(2, times_s={"c": 3.0})
    assert parts.open_rounds() == {1: ("a",)}
    parts.observe(1)  # nothing to say is no mistake
    parts.observe(1, times_s={"a": 1.0})
    assert parts.open_rounds() == {}
    assert_same_learned(learned(whole, tmp_path), learned(parts, tmp_path))
    assert kept(whole, tmp_path) == kept(parts, tmp_path)


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


def test_unanswered_rounds_are_given_up():
    selector = make(["a", "b"], patience_rounds=3)
    for number in range(1, 4):
        selector.select(contexts("ab"))
        assert sorted(selector.open_rounds()) == list(range(1, number + 1))
    selector.observe(2, times_s={"a": 1.0})
    selector.select(contexts("ab"))
    assert selector.open_rounds() == {2: ("b",), 3: ("a", "b"), 4: ("a", "b")}
    with pytest.raises(
        FeedbackError, match=r"round 1, which is given up: patience_rounds = 3 later.*open rounds: \[2, 3, 4\]"
    ):
        selector.observe(1, times_s={"a": 1.0})
    selector.observe(2, times_s={"b": 1.0})  # patience is counted from each round's own beginning
    for _ in range(200):
        selector.select(contexts("ab"))
    assert sorted(selector.open_rounds()) == [202, 203, 204]


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


# -------------------------------------------------------------------- contexts


WRONG_CONTEXTS = {
    "nan": (({"a": [1.0], "b": [float("nan")]},), {}, InvalidInputError, r"client 'b' are \[nan\]; expected finite"),
    "infinite": (({"a": [1.0], "b": [float("inf")]},), {}, InvalidInputError, r"client 'b' are \[inf\]"),
    "minus infinity": (([[1.0], [float("-inf")], [1.0]],), {}, InvalidInputError, r"client 'b' are \[-inf\]"),
    "negative": (({"c": [-0.5]},), {}, InvalidInputError, r"client 'c' are \[-0.5\]; expected finite numbers >= 0"),
    "none": (({"a": [None]},), {}, InvalidInputError, r"client 'a' are \[nan\]"),
    "too many features": (({"a": [1.0, 2.0]},), {}, InvalidInputError, r"shape \(1, 2\); expected \(1, 1\)"),
    "no features": (({"a": []},), {}, InvalidInputError, r"shape \(1, 0\); expected \(1, 1\)"),
    "a scalar": (({"a": 1.0},), {}, InvalidInputError, r"shape \(1,\); expected \(1, 1\), a list of num_features = 1"),
    "a matrix for a client": (({"a": [[1.0]]},), {}, InvalidInputError, r"shape \(1, 1, 1\)"),
    "ragged": (({"a": [1.0], "b": [1.0, 2.0]},), {}, InvalidInputError, "not an array of numbers"),
    "text": (({"a": ["fast"]},), {}, InvalidInputError, "not an array of numbers"),
    "digits as text": (([["1.0"], ["2.0"], ["3.0"]],), {}, InvalidInputError, "not an array of numbers"),
    "complex": (([[1j], [1.0], [1.0]],), {}, InvalidInputError, "not an array of numbers"),
    "a sentence": (("ab",), {}, InvalidInputError, "contexts are the string 'ab'; expected contexts, or a collection"),
    "a vector": (
        ([1.0, 2.0, 3.0],),
        {},
        InvalidInputError,
        r"shape \(3,\); expected \(3, 1\), a list of num_features = 1",
    ),
    "too few rows": (([[1.0], [1.0]],), {}, InvalidInputError, r"shape \(2, 1\); expected \(3, 1\)"),
    "too many rows": (([[1.0]] * 4,), {}, InvalidInputError, r"shape \(4, 1\); expected \(3, 1\)"),
    "too many columns": ((np.ones((3, 2)),), {}, InvalidInputError, r"shape \(3, 2\); expected \(3, 1\)"),
    "rows against clients": (([[1.0]],), {"clients": ["a", "b"]}, InvalidInputError, r"shape \(1, 1\); expected \(2"),
    "a client twice": (([[1.0]] * 2,), {"clients": ["b", "b"]}, InvalidInputError, "client 'b' is named twice"),
    "an unknown client": (({"a": [1.0], "bb": [1.0]},), {}, UnknownNameError, "unknown client 'bb'. Did you mean 'b'"),
    "integers as availability": (([[1.0]] * 3,), {"available": [1, 0, 1]}, InvalidInputError, "available has type int"),
    "text as availability": (
        ([[1.0]] * 3,),
        {"available": ["y", "n", "y"]},
        InvalidInputError,
        "has type <U",
    ),
    "short availability": (([[1.0]] * 3,), {"available": [True, False]}, InvalidInputError, r"shape \(2,\); expected"),
    "flat availability": (([[1.0]] * 3,), {"available": True}, InvalidInputError, r"shape \(\)"),
    "mapping and clients": (({"a": [1.0]},), {"clients": ["a"]}, InvalidInputError, "a mapping names clients"),
    "mapping and availability": (({"a": [1.0]},), {"available": [True]}, InvalidInputError, "a mapping names clients"),
}


@pytest.mark.parametrize("case", WRONG_CONTEXTS)
def test_wrong_contexts_begin_no_round(tmp_path, case):
    arguments, words, error, message = WRONG_CONTEXTS[case]
    selector = make(["a", "b", "c"])
    selector.select(contexts("ab"))
    before = kept(selector, tmp_path)
    with pytest.raises(error, match=message) as caught:
        selector.select(*arguments, **words)
    assert isinstance(caught.value, FedrosterError)
    assert isinstance(caught.value, LookupError if error is UnknownNameError else ValueError)
    assert kept(selector, tmp_path) == before
    assert selector.select(contexts("a")).round == 2


def test_what_an_unavailable_client_reports_does_not_matter(tmp_path):
    clean, garbage = make(["a", "b", "c"]), make(["a", "b", "c"])
    rows = np.array([[1.0], [2.0], [1.5]])
    wrong = rows.copy()
    wrong[1] = np.nan
    here = np.array([True, False, True])
    assert clean.select(rows, available=here) == garbage.select(wrong, available=here)
    for selector in (clean, garbage):
        selector.observe(1, times_s={"a": 1.0, "c": 2.0})
    assert kept(clean, tmp_path) == kept(garbage, tmp_path)


def test_large_contexts_do_not_overflow_the_check():
    selector = make(["a", "b", "c"])
    assert len(selector.select({client: [1e308] for client in "abc"}).clients) == 2


def test_a_policy_that_breaks_a_constraint_begins_no_round(tmp_path):
    class Greedy(Stateless):
        def select(self, state, context, /, *, rng):
            return Selection(context.round, np.arange(context.num_links))

    selector = make(["a", "b", "c"], policy=Greedy())
    before = kept(selector, tmp_path)
    with pytest.raises(SelectionError, match="3 clients were chosen; expected 2"):
        selector.select(contexts("abc"))
    with pytest.raises(SelectionError, match="not available"):
        selector.select(contexts("a"))
    assert kept(selector, tmp_path) == before


# -------------------------------------------------------------------- promises


def test_a_beta_that_cannot_be_met_is_an_error_at_the_start():
    with pytest.raises(InfeasibleError, match=r"beta = 0.5 cannot be met: 3 clients x 0.5 = 1.5 places") as caught:
        make(["a", "b", "c"], policy=RBCSF(beta=0.5), cohort_size=1)
    assert isinstance(caught.value, ConfigurationError)
    make(["a", "b"], policy=RBCSF(beta=0.5), cohort_size=1)  # exactly feasible
    make(["a", "b", "c"], policy=RBCSF(beta=0.0), cohort_size=1)
    make(["a", "b", "c"], policy=Uniform(), cohort_size=1)


def test_joining_warns_when_beta_can_no_longer_be_met():
    selector = make(["a", "b"], policy=RBCSF(beta=0.5), cohort_size=1)
    with pytest.warns(FairnessWarning, match="beta = 0.5 cannot be met: 3 clients") as caught:
        selector.join(["c"])
    assert caught[0].filename == __file__
    assert selector.clients == ("a", "b", "c")
    assert len(selector.select(contexts("abc")).clients) == 1
    selector.leave(["a"])
    selector.leave(["b"], forget=True)
    selector.join(["d"])  # two again: no warning
    with pytest.warns(FairnessWarning, match="3 clients"):
        selector.join(["a"])


def seen(probability, *, policy, rounds=640):
    selector = make(LETTERS_LIST, policy=policy, cohort_size=10)
    rng = np.random.default_rng(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(rounds):
            available = rng.random(10) < np.array([probability] + [0.9] * 9)
            selector.select(np.ones((10, 1)), available=available)
    return [str(warning.message) for warning in caught], [warning.category for warning in caught]


def test_a_client_that_is_seen_too_rarely_is_reported():
    messages, categories = seen(0.2, policy=RBCSF(V=1.0, beta=0.5))
    assert len(messages) >= 8  # at nearly each look
    assert set(categories) == {FairnessWarning}
    assert all("beta = 0.5 cannot be met for 1 clients" in message and "['a']" in message for message in messages)


@pytest.mark.parametrize(
    ("probability", "policy"),
    [(0.5, RBCSF(V=1.0, beta=0.5)), (0.9, RBCSF(V=1.0, beta=0.5)), (0.01, RBCSF(beta=0.0)), (0.2, Uniform())],
)
def test_no_warning_without_a_reason(probability, policy):
    """Negative control: a client that is seen exactly as often as promised may be below by chance."""
    assert seen(probability, policy=policy) == ([], [])


def test_absence_before_joining_and_after_leaving_is_not_counted():
    selector = make(["a"], policy=RBCSF(V=1.0, beta=0.9), cohort_size=4)
    for _ in range(100):
        selector.select({"a": [1.0]})
    selector.join(["b"])
    for _ in range(100):
        selector.select({"a": [1.0], "b": [1.0]})
    selector.leave(["b"])
    for _ in range(100):
        selector.select({"a": [1.0]})
    selector.join(["b"])
    for _ in range(30):
        selector.select({"a": [1.0], "b": [1.0]})


@pytest.mark.parametrize("policy", [FedCS(), FedCSGreedy(), OmniscientP3()], ids=str)
def test_policies_that_know_the_truth_run_in_simulations_only(policy):
    with pytest.raises(ConfigurationError, match=r"knows the network's true times; it runs in simulations only"):
        make(policy=policy)


# -------------------------------------------------------------------- saving and loading


def mixed(policy=POLICY, **options):
    """A selector with a history: joins, leaves, freed slots, open rounds, ids of both types."""
    selector = make([*LETTERS, 1, "1", 2], policy=policy, num_features=3, cohort_size=4, seed=11, **options)
    play(selector, 9, seed=1)
    selector.leave(["j", "c", 1])
    selector.leave(["h", "b", "e"], forget=True)
    play(selector, 3, seed=2)
    return selector


def go_on(selector):
    """What a history leads to: newcomers take freed slots, old clients come back, feedback for old rounds arrives."""
    waiting = selector.open_rounds()
    cohorts = play(selector, 4, seed=3)
    selector.join(["new", "j"])
    rows = np.random.default_rng(9).uniform(0.5, 2.0, (len(selector.clients), 3))
    cohorts += [selector.select(rows) for _ in range(6)]
    selector.join(["b", 99, 98])
    return waiting, cohorts, play(selector, 12, seed=4), selector.clients, selector.open_rounds()


@pytest.mark.parametrize("policy", [POLICY, Uniform(), Dirichlet(gamma_2=0.5), *PEERS], ids=str)
def test_resumed_equals_uninterrupted(tmp_path, policy):
    uninterrupted, interrupted = mixed(policy), mixed(policy)
    interrupted.save(tmp_path / "state.npz")
    resumed = Selector.load(tmp_path / "state.npz", policy)
    assert resumed.open_rounds()  # pending feedback survives
    assert resumed.open_rounds() == uninterrupted.open_rounds()
    assert (resumed.round, resumed.clients) == (12, uninterrupted.clients)
    assert resumed.cold(as_array=True).tolist() == uninterrupted.cold(as_array=True).tolist()
    assert resumed.participation(as_array=True).tolist() == uninterrupted.participation(as_array=True).tolist()
    assert kept(resumed, tmp_path) == kept(uninterrupted, tmp_path)
    assert go_on(resumed) == go_on(uninterrupted)
    assert kept(resumed, tmp_path) == kept(uninterrupted, tmp_path)


def test_resumed_at_any_round_equals_uninterrupted(tmp_path):
    uninterrupted = make(LETTERS_LIST, num_features=3, cohort_size=3, patience_rounds=4)
    often = make(LETTERS_LIST, num_features=3, cohort_size=3, patience_rounds=4)
    for _ in range(12):
        often.save(tmp_path / "state.npz")
        often = Selector.load(tmp_path / "state.npz", POLICY)
        assert play(often, 1) == play(uninterrupted, 1)
    assert kept(often, tmp_path) == kept(uninterrupted, tmp_path)


def test_slots_freed_in_any_order_are_taken_in_the_same_order_after_loading(tmp_path):
    selector = make(LETTERS_LIST, cohort_size=3)
    for client in "hbfc":
        selector.leave([client], forget=True)
    selector.save(tmp_path / "state.npz")
    resumed = Selector.load(tmp_path / "state.npz", POLICY)
    for who in (selector, resumed):
        who.join(["w"])
        who.join(["x", "y"])
    assert resumed.clients == selector.clients


CHILD = """
import json, sys
import numpy as np
from fedroster import RBCSF, Selector

selector = Selector.load(sys.argv[1], RBCSF(V=5.0, beta=0.1))
selector.observe(3, times_s={"b": 1.25})
rows = np.random.default_rng(9).uniform(0.5, 2.0, (len(selector.clients), 1))
cohorts = []
for _ in range(10):
    cohort = selector.select(rows)
    selector.observe(cohort.round, times_s={client: 0.5 + len(str(client)) for client in cohort.clients})
    cohorts.append(cohort.clients)
selector.save(sys.argv[2])
print(json.dumps(cohorts))
"""


def test_resumed_in_a_fresh_process_equals_uninterrupted(tmp_path):
    selector = make(["a", "b", 7, "7", "c"])
    for who in ("ac", ["a", 7], "bc"):
        cohort = selector.select(contexts(who))
        selector.observe(cohort.round, times_s={cohort.clients[-1]: 2.0})
    assert selector.open_rounds()[3] == ("b",)
    selector.save(tmp_path / "state.npz")
    command = [sys.executable, "-c", CHILD, str(tmp_path / "state.npz"), str(tmp_path / "child.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    selector.observe(3, times_s={"b": 1.25})
    rows = np.random.default_rng(9).uniform(0.5, 2.0, (5, 1))
    cohorts = []
    for _ in range(10):
        cohort = selector.select(rows)
        selector.observe(cohort.round, times_s={client: 0.5 + len(str(client)) for client in cohort.clients})
        cohorts.append(list(cohort.clients))
    assert json.loads(done.stdout) == cohorts
    child = Selector.load(tmp_path / "child.npz", POLICY)
    assert kept(child, tmp_path) == kept(selector, tmp_path)


def test_a_selector_without_clients_can_be_saved(tmp_path):
    make([]).save(tmp_path / "state.npz")
    selector = Selector.load(tmp_path / "state.npz", POLICY)
    assert selector.clients == ()
    selector.join(["a"])
    assert selector.select({"a": [1.0]}).clients == ("a",)


def test_ids_of_any_kind_survive(tmp_path):
    ids = ["", " ", "é\u20ac\U0001f600", 'quote"', "back\\slash", "\x00", -1, 2**70, "null", "\udcff"]
    make(ids).save(tmp_path / "state.npz")
    assert Selector.load(tmp_path / "state.npz", POLICY).clients == tuple(ids)


def test_saving_changes_nothing(tmp_path):
    one, other = mixed(), mixed()
    one.save(tmp_path / "state.npz")
    assert kept(one, tmp_path) == kept(other, tmp_path)
    assert go_on(one) == go_on(other)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no state file at .*state.npz"):
        Selector.load(tmp_path / "state.npz", POLICY)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_truncated_file(tmp_path, share):
    path = tmp_path / "state.npz"
    mixed().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(StateFileError, match=r"state.npz' is damaged or not a fedroster state file"):
        Selector.load(path, POLICY)


def test_a_flipped_bit_is_noticed_or_harmless(tmp_path):
    """Some bytes of a zip file mean nothing, such as dates; all others have a checksum."""
    path = tmp_path / "state.npz"
    selector = make(["a", "b", 3])
    cohort = selector.select({"a": [1.0], "b": [2.0]})
    selector.observe(1, times_s={cohort.clients[0]: 1.0})
    selector.save(path)
    content, before = path.read_bytes(), kept(selector, tmp_path)
    rng = np.random.default_rng(0)
    noticed = 0
    for place in rng.choice(len(content), 300, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            loaded = Selector.load(path, POLICY)
        except StateFileError:
            noticed += 1
        else:
            assert kept(loaded, tmp_path) == before
    assert noticed > 150


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 not really", b"\x80\x04N.", b"{}"])
def test_a_foreign_file(tmp_path, content):
    (tmp_path / "state.npz").write_bytes(content)
    with pytest.raises(StateFileError, match="damaged or not a fedroster state file"):
        Selector.load(tmp_path / "state.npz", POLICY)


def test_foreign_archives(tmp_path):
    path = tmp_path / "state.npz"
    np.savez(path, a=np.ones(3))
    with pytest.raises(StateFileError, match="not a fedroster state file"):
        Selector.load(path, POLICY)
    save_arrays(path, {"a": np.ones(3)}, {"round": 1}, kind="simulation")
    with pytest.raises(StateFileError, match="simulation; expected a fedroster-state selector"):
        Selector.load(path, POLICY)


def test_a_file_that_lacks_a_part(tmp_path):
    path = tmp_path / "state.npz"
    mixed().save(path)
    arrays, header = load_arrays(path, kind="selector")
    header = {name: value for name, value in header.items() if not name.startswith("format") and name != "kind"}
    for name in ("members", "policy.backlog", "pending.slot"):
        save_arrays(path, {key: value for key, value in arrays.items() if key != name}, header, kind="selector")
        with pytest.raises(StateFileError, match=name):
            Selector.load(path, POLICY)
    for name in ("ids", "round", "pending"):
        save_arrays(path, arrays, {key: value for key, value in header.items() if key != name}, kind="selector")
        with pytest.raises(StateFileError, match=name):
            Selector.load(path, POLICY)
    save_arrays(path, arrays | {"policy.backlog": np.zeros(2)}, header, kind="selector")
    with pytest.raises(StateFileError, match=r"'policy.backlog' in the state file has shape \(2,\)"):
        Selector.load(path, POLICY)


@pytest.mark.parametrize("policy", [RBCSF(V=5.0, beta=0.2), RBCSF(V=6.0, beta=0.1), Uniform()], ids=str)
def test_a_file_of_another_policy(tmp_path, policy):
    path = tmp_path / "state.npz"
    mixed().save(path)
    content = path.read_bytes()
    with pytest.raises(StateFileError, match=r"belongs to RBCSF\(V=5.0, beta=0.1"):
        Selector.load(path, policy)
    assert path.read_bytes() == content


def disk_full(*arguments, **words):
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupt(*arguments, **words):
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", ["fsync", "write"])
@pytest.mark.parametrize("what", [disk_full, interrupt], ids=["full disk", "interrupt"])
@pytest.mark.parametrize("old", [True, False], ids=["old file", "no file"])
def test_an_accident_while_writing_leaves_the_old_file(tmp_path, monkeypatch, place, what, old):
    path = tmp_path / "state.npz"
    selector = mixed()
    if old:
        selector.save(path)
    before = path.read_bytes() if old else None
    play(selector, 3)
    with monkeypatch.context() as patch:
        if place == "fsync":
            patch.setattr(os, "fsync", what)
        else:
            half = []

            def write_array(*arguments, **words):
                half.append(None)
                if len(half) > 5:
                    what()
                return whole(*arguments, **words)

            whole = np.lib.format.write_array
            patch.setattr(np.lib.format, "write_array", write_array)
        with pytest.raises(KeyboardInterrupt if what is interrupt else OSError):
            selector.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == (["state.npz"] if old else [])
    if old:
        assert path.read_bytes() == before
        assert Selector.load(path, POLICY).round == 12
    selector.save(path)  # nothing is left in the way
    assert Selector.load(path, POLICY).round == 15


def test_saving_into_a_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        make().save(tmp_path / "nowhere" / "state.npz")


def test_a_warning_that_is_an_error_neither_loses_a_round_nor_stops_the_federation():
    selector = make(["a", "b", "c", "d"], policy=RBCSF(beta=0.25), cohort_size=1)
    for _ in range(64):
        selector.select(contexts("abc"))
    with pytest.raises(FairnessWarning, match="'d'"):  # pytest turns warnings into errors
        selector.select(contexts("abc"))
    assert selector.round == 64
    cohort = selector.select(contexts("abc"))
    assert (cohort.round, len(cohort.clients)) == (65, 1)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("rbcs-f", r"policy is 'rbcs-f', which has no check; expected a policy, such as fedroster.RBCSF\(\)"),
        (None, "policy is None, which has no check"),
        (RBCSF, r"policy is the class RBCSF; expected an instance, RBCSF\(...\)"),
    ],
)
def test_what_is_no_policy_is_refused(policy, message):
    with pytest.raises(ConfigurationError, match=message):
        Selector(policy, cohort_size=2, num_features=1)
    with pytest.raises(ConfigurationError, match=message):
        next(simulate(policy, FlatNetwork(), num_rounds=1, seed=0))


@pytest.mark.parametrize("name", ["late", "dropped", "failed"])
def test_one_id_is_no_collection_of_ids(name):
    selector = Selector(RBCSF(beta=0.1), cohort_size=1, num_features=1, clients=["a", "b"])
    cohort = selector.select({"a": [1.0]})
    times = {"times_s": {"a": 1.0}} if name == "late" else {}
    with pytest.raises(InvalidInputError, match=f"{name} is the string 'a'; expected a collection of ids"):
        selector.observe(cohort.round, **times, **{name: "a"})
    selector.observe(cohort.round, **times, **{name: ["a"]})


def test_numbers_are_not_lists_of_features():
    selector = Selector(RBCSF(beta=0.1), cohort_size=1, num_features=1, clients=["a", "b"])
    with pytest.raises(
        InvalidInputError, match=r"expected \(2, 1\), a list of num_features = 1 numbers for each client"
    ):
        selector.select({"a": 1.0, "b": 2.0})


def test_whole_numbers_are_floats(tmp_path):
    selector = Selector(RBCSF(V=20, beta=0.1), cohort_size=1, num_features=1, clients=["a", "b"])
    selector.save(tmp_path / "state.npz")
    again = Selector.load(tmp_path / "state.npz", RBCSF(V=20.0, beta=0.1))
    again.save(tmp_path / "state.npz")
    assert Selector.load(tmp_path / "state.npz", RBCSF(V=20, beta=0.1)).clients == ("a", "b")
    for other in (RBCSF(V=2, beta=0.1), RBCSF(V=20.5, beta=0.1), RBCSF(V=200, beta=0.1), RBCSF(V=20, beta=0.0)):
        with pytest.raises(StateFileError, match="belongs to"):
            Selector.load(tmp_path / "state.npz", other)
