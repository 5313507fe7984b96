"""A call takes effect completely or not at all: what refuses, breaks or interrupts it has changed nothing."""

import logging
import os
import signal
import threading

import pytest

from fedroster import COCS, RBCSF, Floor, Oort, PartialPooling
from fedroster.errors import InUseError
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
