"""A file is believed as far as it can be checked: what loads works, and what does not is refused at once."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile

import numpy as np
import pytest

from federations import LETTERS_LIST
from fedroster import EdgeSelector, Rules, Selector, Uniform
from fedroster.catalogue import make_policy
from fedroster.core.problem import ProblemSpec
from fedroster.core.state import load_arrays, save_arrays
from fedroster.errors import StateFileError
from fedroster.policies import COCS, E3CS
from fedroster.selector.files import SavedFiles

FLAT = ["random", "rbcs-f", "floor", "oort", "tifl", "e3cs", "cs-ucb", "power-of-choice", "round-robin"]
EDGE = ["cocs", "partial-pooling", "cucb", "cucb-pairs", "linucb", "linucb-pairs"]


def federation(name):
    """A selector with a history."""
    options = {"cohort_size": 3, "clients": LETTERS_LIST, "num_features": 2}
    if name == "ruled":
        return Selector(Uniform(), **options, rules=Rules(most_per_window=3, window=5))
    if name in FLAT:
        return Selector(make_policy(name), **options)
    return EdgeSelector(make_policy(name), budgets={"n": 2.0, "s": 2.0}, **options)


def go(selector, rounds, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        cohort = selector.select({client: rng.uniform(0.1, 0.9, 2) for client in selector.clients})
        answered = [client for client in cohort.clients if rng.random() < 0.8]
        if answered:
            selector.observe(cohort.round, times_s={client: float(rng.uniform(0.5, 5.0)) for client in answered})


def changed(path, arrays, header=()):
    """The same file with other content; without what is None."""
    with np.load(path) as file:
        held = {name: file[name] for name in file.files} | arrays
    held = {name: value for name, value in held.items() if value is not None}
    head = json.loads(held.pop("__header__").tobytes())
    for name, value in dict(header).items():
        head[name] = head[name] | value if isinstance(value, dict) else value
        if value is None:
            del head[name]
    head["arrays"] = sorted(held)
    np.savez(path, __header__=np.frombuffer(json.dumps(head).encode(), np.uint8), **held)


@pytest.mark.parametrize("name", FLAT + EDGE)
def test_every_field_of_a_state_says_what_a_file_may_hold(name):
    def undeclared(state, prefix=""):
        for field in dataclasses.fields(state):
            value = getattr(state, field.name)
            if dataclasses.is_dataclass(value):
                yield from undeclared(value, f"{prefix}{field.name}.")
            elif "range" not in field.metadata and not field.metadata.get("fixed"):
                yield prefix + field.name

    spec = ProblemSpec(4, 2, 2, 2 if name in EDGE else 1)
    assert not list(undeclared(make_policy(name).init(spec, rng=np.random.default_rng(0))))


def filled(name, value):
    """The same array with one value everywhere."""
    return lambda held: {name: np.full_like(held[name], value)}


def without_an_end(held):
    """A table in which each slot is in use: a search in it would never end."""
    name = next(each for each in held if each.endswith(".key"))
    return {name: np.arange(held[name].shape[0])}


def one_client(held):
    """Arms of which both clients are the same."""
    clients = held["policy.pool.client"]
    return {"policy.pool.client": np.where(clients < 0, clients, 0)}


def backwards(held):
    """Rounds of rules that do not ascend."""
    return {"rules.recent_round": held["rules.recent_round"][::-1].copy()}


BELIEF = "policy.belief.times"
ARRAYS = [
    *[("rbcs-f", lambda held, name=name: {name: None}, name) for name in ("here", "policy.backlog", "pending.slot")],
    ("rbcs-f", lambda held: {"policy.backlog": np.zeros(2)}, r"'policy.backlog' in the state file has shape \(2,\)"),
    ("ruled", filled("rules.recent_slot", 99), "recent_slot"),
    ("ruled", filled("rules.recent_s", -1.0), "recent_s"),
    ("ruled", filled("last_round", 99), "last_round"),
    ("ruled", filled("last_s", np.nan), "last_s"),
    ("ruled", backwards, "do not ascend"),
    ("rbcs-f", filled("pending.slot", 10**6), "'pending.slot' in the state file has values from 1000000"),
    ("random", lambda held: {"due": held["present"], "present": held["due"] - 1}, "'due'"),
    ("floor", filled(f"{BELIEF}.square", 1e308), "has values from"),
    ("floor", filled(f"{BELIEF}.information", -1.0), "its information is not positive semidefinite"),
    ("floor", filled(f"{BELIEF}.covariance", -1.0), "its covariance is not positive semidefinite"),
    ("cucb", one_client, "an arm has a client twice"),
    ("linucb", one_client, "an arm has a client twice"),
    ("cocs:h_T=2,scale=0.02", without_an_end, r"are in use, and \d+ are counted"),
    ("partial-pooling", without_an_end, r"are in use, and \d+ are counted"),
]
HEADERS = [
    *[({name: None}, name) for name in ("ids", "round", "pending")],
    ({"settings": {"rules": {"alow": []}}}, "alow"),
    ({"settings": {"rules": 3}}, "rules"),
    ({"rules": {"clock_s": [0.0]}}, "clock_s"),
    ({"rules": 3}, "it is no selector"),
    ({"capacity": 10**8}, "'here' in the state file is bool of shape"),
    ({"capacity": 10**12}, "'here'"),
    ({"capacity": -1}, "capacity in the state file is -1; expected an integer in 1"),
    ({"round": -1}, "round in the state file is -1"),
    ({"ids": ["a"] * 10}, "expected distinct ones"),
    ({"num_features": 10**9}, "num_features is 1000000000"),
    ({"settings": {"cohort_size": 10**30}}, "cohort_size"),
    ({"pending": [[10**6, 1]]}, r"in the state file is 1000000"),
    ({"settings": {"failures": [True, 3, 10**400]}}, "failures"),
]


@pytest.mark.parametrize(
    ("name", "arrays", "header", "message"),
    [
        *((name, arrays, {}, message) for name, arrays, message in ARRAYS),
        *(("rbcs-f", lambda held: {}, header, message) for header, message in HEADERS),
    ],
)
def test_what_no_selector_has_saved_is_refused(tmp_path, name, arrays, header, message):
    """Compiled code would write to a slot that does not exist."""
    selector, path = federation(name), tmp_path / "state.npz"
    go(selector, 12)
    selector.select({client: [0.5, 0.5] for client in selector.clients})
    selector.save(path)
    changed(path, arrays(load_arrays(path, kind=selector._KIND)[0]), header)
    with pytest.raises(StateFileError, match=message):
        type(selector).load(path, selector.policy)


def test_a_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "state.npz"
    header = json.dumps({"format": "fedroster-state", "format_version": 1, "kind": "selector", "arrays": ["a"]})
    np.savez_compressed(path, __header__=np.frombuffer(header.encode(), np.uint8), a=np.zeros(10**7))
    with pytest.raises(StateFileError, match="claims to hold more than it does"):
        load_arrays(path, kind="selector")


def test_an_array_that_claims_to_be_long_is_not_made(tmp_path):
    path, array = tmp_path / "state.npz", io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    save_arrays(path, {}, {}, kind="selector")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.npy", array.getvalue())
    with pytest.raises(StateFileError, match="which is not what its header says"):
        load_arrays(path, kind="selector")


def test_open_clients_of_a_policy_are_in_range():
    state = E3CS().init(ProblemSpec(4, 2, 1), rng=np.random.default_rng(0))
    beyond = dataclasses.replace(state, open_round=np.array([1]), open_client=np.array([4]), open_gain=np.array([0.5]))
    assert not state.flaw(ProblemSpec(4, 2, 1))
    assert "open client" in beyond.flaw(ProblemSpec(4, 2, 1))


def test_contexts_of_two_features_make_cells_of_two_features():
    """A state that met no context is for one feature; its cells must not stay so."""
    told, met = (
        EdgeSelector(COCS(h_T=2, scale=0.02), budgets={"n": 2.0}, cohort_size=3, **options)
        for options in ({"num_features": 2}, {})
    )
    for selector in (told, met):
        selector.join(LETTERS_LIST)
        go(selector, 1)
    assert met._learner.state.cells.cells_each == told._learner.state.cells.cells_each == 4


@pytest.mark.parametrize("bounds", [{}, {"low": (0.0, 0.0), "high": (2.0, 2.0)}])
def test_contexts_that_the_policy_refuses_are_refused_with_the_file(tmp_path, bounds):
    """They would be met when their round is answered."""
    policy, path = COCS(**bounds), tmp_path / "state.npz"
    selector = EdgeSelector(policy, budgets={"n": 2.0}, cohort_size=3, clients=LETTERS_LIST, num_features=2)
    selector.save(path)
    EdgeSelector.load(path, policy)  # without an open round
    selector.select({client: [0.5, 0.5] for client in selector.clients})
    selector.save(path)
    features = load_arrays(path, kind="edge-selector")[0]["pending.features"]
    EdgeSelector.load(path, policy)
    changed(path, {"pending.features": features + 2.0})
    with pytest.raises(StateFileError, match=r"open round 1 in the state file: features of row 0.*\[0, 1\]"):
        EdgeSelector.load(path, policy)


@pytest.mark.parametrize("name", FLAT + EDGE)
@pytest.mark.parametrize("value", [1e308, 5e-324, 0.0])
def test_open_rounds_of_a_file_that_loads_can_be_answered(tmp_path, name, value):
    selector, path = federation(name), tmp_path / "state.npz"
    go(selector, 3)
    cohort = selector.select({client: [0.5, 0.5] for client in selector.clients})
    selector.save(path)
    arrays, _ = load_arrays(path, kind=selector._KIND)
    changed(path, {"pending.features": np.full_like(arrays["pending.features"], value)})
    try:
        loaded = type(selector).load(path, make_policy(name))
    except StateFileError:
        assert name == "cocs"
        return
    loaded.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))


# --- several writers ---------------------------------------------------------------------------------------------


def test_a_save_that_fails_after_the_file_is_there_is_no_stranger(tmp_path):
    files, path = SavedFiles(), str(tmp_path / "state.npz")

    def save_and_fail():
        with files.replacing(path, replace=False):
            save_arrays(path, {}, {}, kind="selector")
            raise OSError("sync")

    with pytest.raises(OSError, match="sync"):
        save_and_fail()
    with files.replacing(path, replace=False):
        pass
