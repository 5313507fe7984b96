"""A call takes effect completely or not at all: what refuses, breaks or interrupts it has changed nothing."""

import logging
import os
import signal
import threading

import pytest

from fedroster import COCS, RBCSF, FedrosterError, Floor, Oort, PartialPooling
from fedroster.errors import InUseError, SelectionError
from fedroster.types import Selection
from frozen.calls import Mine, begun, call, make
from frozen.door import close, cohorts_of, full_disk, recorded, restarted, verified, views

POLICIES = {"rbcs-f": RBCSF(V=5.0, beta=0.1), "floor": Floor(beta=0.1), "oort": Oort(), "mine": Mine()}
EDGES = {"cocs": COCS(h_T=2), "partial-pooling": PartialPooling()}


@pytest.fixture(autouse=True)
def honest():
    yield
    Mine.breaks, Mine.lies_in, Mine.meanwhile = None, 0, None


@pytest.mark.parametrize("name", [*POLICIES, *EDGES])
def test_what_a_full_disk_refuses_has_not_happened(name, tmp_path):
    edges = name in EDGES
    policy = (EDGES if edges else POLICIES)[name]
    made, _, given = begun(policy, edges=edges)
    twin, tried = made(policy, **given), recorded(made, policy, tmp_path, **given)
    refused = set()
    for number in range(60):
        before = views(twin)
        expected = call(twin, number, rules=False)
        if number % 3 and expected[1] != []:  # an answer without news is none
            with full_disk(tmp_path, room=(0, 1, 40)[number % 7 % 3]), pytest.raises(OSError, match="too large"):
                call(tried, number, rules=False)
            refused.add(expected[0])
            assert views(tried) == before
        assert call(tried, number, rules=False) == expected
        assert views(tried) == views(twin)
    assert refused >= {"ask", "answer", "join", "leave"}
    close(tried)
    assert verified(tmp_path, policy) == (twin.round, True)
    assert [number for number, _ in cohorts_of(tmp_path)] == list(range(1, twin.round + 1))
    again = restarted(made, policy, tmp_path)
    assert [call(again, number) for number in range(60, 75)] == [call(twin, number) for number in range(60, 75)]


@pytest.mark.parametrize("error", [RuntimeError("a fault"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("where", ["select", "commit", "update"])
def test_a_policy_that_breaks_in_the_middle_has_changed_nothing(where, error, tmp_path):
    made, policy, given = begun(Mine())
    twin, tried = make(policy), recorded(made, policy, tmp_path, **given)
    broken = 0
    for number in range(50):
        before = views(twin)
        expected = call(twin, number)
        if expected[0] == ("answer" if where == "update" else "ask") and expected[1]:
            Mine.breaks = where, error
            with pytest.raises(type(error)):
                call(tried, number)
            Mine.breaks, broken = None, broken + 1
            assert views(tried) == before
        assert call(tried, number) == expected
    assert broken > 5
    assert views(tried) == views(twin)
    close(tried)
    assert verified(tmp_path, policy) == (twin.round, True)


def test_a_decision_against_the_rules_of_the_game_begins_no_round():
    class Greedy(Mine):
        __slots__ = ()

        def select(self, state, context, /, *, rng):
            return Selection(context.round, context.clients_of(context.available.nonzero()[0]))

    selector = make(Greedy())
    before = views(selector)
    with pytest.raises(SelectionError):
        selector.select()
    assert views(selector) == before


WRONG = {
    "a stranger": lambda on: on.select(["stranger"]),
    "a client twice": lambda on: on.select([[1.0, 1.0]] * 2, clients=["site-1", "site-1"]),
    "a negative context": lambda on: on.select({"site-1": [-1.0, 1.0]}),
    "no number": lambda on: on.select({"site-1": [float("nan"), 1.0]}),
    "another length": lambda on: on.select({"site-1": [1.0, 1.0, 1.0]}),
    "no place": lambda on: on.select({"site-1": [1.0, 1.0]}, at_most=0),
    "too many places": lambda on: on.select({"site-1": [1.0, 1.0]}, at_most=5),
    "a round to come": lambda on: on.observe(on.round + 1, times_s={"site-1": 1.0}),
    "one who was not chosen": lambda on: on.observe(on.round, times_s=waited(on) | {"stranger": 1.0}),
    "no time": lambda on: on.observe(on.round, times_s=waited(on, last=0.0)),
    "an endless time": lambda on: on.observe(on.round, times_s=waited(on, last=float("inf"))),
    "two outcomes": lambda on: on.observe(on.round, times_s=waited(on), dropped=list(waited(on))[:1]),
    "late without a time": lambda on: on.observe(on.round, late=list(waited(on))[:1]),
    "a loss without a time": lambda on: on.observe(on.round, dropped=list(waited(on)), losses=waited(on)),
    "a wrong round length": lambda on: on.observe(on.round, times_s=waited(on), round_s=-1.0),
    "a cost of a stranger": lambda on: on.observe(on.round, times_s=waited(on), costs={"stranger": 1.0}),
    "a member joins": lambda on: on.join(["new", on.clients[0]]),
    "an id twice": lambda on: on.join(["new", "new"]),
    "no id": lambda on: on.join(["new", 1.5]),
    "a stranger leaves": lambda on: on.leave([on.clients[0], "stranger"]),
    "a stranger is forgotten": lambda on: on.leave([on.clients[0], "stranger"], forget=True),
}


def waited(selector, last=1.0):
    """A time of each client that the last round waits for."""
    clients = selector.open_rounds()[selector.round]
    return dict.fromkeys(clients, 1.0) | {clients[-1]: last}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_changes_nothing(case):
    twin, tried = make(POLICIES["rbcs-f"], rules=None), make(POLICIES["rbcs-f"], rules=None)
    for selector in (twin, tried):
        for number in range(12):
            call(selector, number, rules=False)
        selector.select({client: [1.0, 1.0] for client in selector.clients})
    with pytest.raises(FedrosterError) as caught:
        WRONG[case](tried)
    assert isinstance(caught.value, ValueError | LookupError)
    assert views(tried) == views(twin)
    assert [call(tried, number) for number in range(12, 30)] == [call(twin, number) for number in range(12, 30)]


def test_an_observer_that_fails_stops_nothing(caplog):
    def failing(event, selector):
        raise RuntimeError("no dashboard")

    twin, tried = make(POLICIES["rbcs-f"]), make(POLICIES["rbcs-f"], observers=[failing])
    with caplog.at_level(logging.CRITICAL):
        assert [call(tried, number) for number in range(30)] == [call(twin, number) for number in range(30)]
    assert views(tried) == views(twin)


def test_a_signal_in_a_call_is_handled_when_the_call_has_ended():
    class Stopped(Exception):
        pass

    def stop(number, frame):
        raise Stopped

    twin, tried = make(Mine()), make(Mine())
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        Mine.meanwhile = lambda: os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(Stopped):
            tried.select()
    finally:
        Mine.meanwhile = None
        signal.signal(signal.SIGUSR1, before)
    twin.select()
    assert views(tried) == views(twin)


def test_one_call_at_a_time():
    selector, refused = make(Mine()), []

    def intrude():
        for each in (selector.select, lambda: selector.join(["new"]), lambda: selector.leave([1])):
            try:
                each()
            except InUseError as error:
                refused.append(error)

    def from_both_sides():
        other = threading.Thread(target=intrude)
        other.start()
        other.join()
        intrude()

    Mine.meanwhile = from_both_sides
    assert len(selector.select().clients) == 4
    Mine.meanwhile = None
    assert len(refused) == 6
    assert (selector.round, "new" in selector.clients) == (1, False)
