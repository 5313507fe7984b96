"""A call is done in full or not at all, and one at a time."""

from __future__ import annotations

import copy
import signal
import threading
import warnings

import numpy as np
import pytest

from federations import LETTERS_LIST, kept, make, play
from fedroster import RBCSF, Record, Selector
from fedroster.errors import FairnessWarning, InUseError
from fedroster.selector.calls import Calls


class Interrupted(Exception):
    pass


@pytest.fixture
def alarm():
    """A handler that raises, as that of Ctrl-C does."""

    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield interrupt
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_leaves_the_old_state_or_the_new_one(tmp_path, alarm):
    rng = np.random.default_rng(0)
    selector = make(LETTERS_LIST, num_features=3, cohort_size=3)
    interrupted = 0
    for number in range(60):
        rows = rng.uniform(0.5, 2.0, (len(LETTERS_LIST), 3))
        after = copy.deepcopy(selector)
        after.select(rows)
        states = kept(selector, tmp_path), kept(after, tmp_path)
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 6e-4))
            selector.select(rows)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        except Interrupted:
            interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        assert kept(selector, tmp_path) in states, number
    assert interrupted


def test_every_handler_runs_and_the_first_error_is_raised():
    met = []

    def note(number, frame):
        met.append(number)
        raise Interrupted(number)

    def call():
        with Calls():
            signal.raise_signal(signal.SIGUSR2)
            signal.raise_signal(signal.SIGUSR1)

    before = {number: signal.signal(number, note) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    try:
        with pytest.raises(Interrupted, match=str(int(signal.SIGUSR2))):
            call()
        assert met == [signal.SIGUSR2, signal.SIGUSR1]
        assert all(signal.getsignal(number) is note for number in before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_many_threads_lose_nothing():
    selector = make(LETTERS_LIST, cohort_size=3)
    rounds, refused = [], []

    def ask():
        for _ in range(50):
            try:
                rounds.append(selector.select().round)
            except InUseError:
                refused.append(None)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rounds) == list(range(1, selector.round + 1))
    assert len(rounds) + len(refused) == 200


def test_a_join_whose_warning_is_an_error_books_nothing(tmp_path):
    selector = Selector(RBCSF(beta=0.5), cohort_size=1, clients=["a", "b"])
    before = kept(selector, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FairnessWarning):
            selector.join(["c"])
    assert kept(selector, tmp_path) == before


class Broken(RBCSF):
    """A policy of someone else's, which writes into the arrays of its state and then raises."""

    where = ""

    def _spoil(self, state, where):
        if where == Broken.where:
            state.backlog[:] += 1.0
            state.ridge.factor[:] += 1.0
            raise RuntimeError(where)

    def select(self, state, context, /, *, rng):
        self._spoil(state, "select")
        return super().select(state, context, rng=rng)

    def commit(self, state, context, selection, /):
        state = super().commit(state, context, selection)
        self._spoil(state, "commit")
        return state

    def update(self, state, feedback, /):
        state = super().update(state, feedback)
        self._spoil(state, "update")
        return state

    def init(self, spec, /, *, rng):
        state = super().init(spec, rng=rng)
        self._spoil(state, "init")
        return state


class Announced(Record):
    """Counts what is announced before it is booked."""

    number = 0

    def before(self, event):
        self.number += 1


@pytest.mark.parametrize("where", ["select", "commit", "update", "init"])
def test_a_policy_that_raises_in_the_middle_has_changed_nothing(tmp_path, monkeypatch, where):
    policy, announced = Broken(V=5.0, beta=0.1), Announced(tmp_path / "log")
    selector = make(LETTERS_LIST, policy=policy, num_features=3, cohort_size=3, observers=[announced])
    play(selector, 4)
    cohort = selector.select(np.ones((len(LETTERS_LIST), 3)))
    before, announced.number = kept(selector, tmp_path), 0
    monkeypatch.setattr(Broken, "where", where)
    calls = {
        "select": lambda: selector.select(np.ones((len(LETTERS_LIST), 3))),
        "update": lambda: selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0)),
        "join": lambda: selector.join(["new"]),
        "forget": lambda: selector.leave(["a"], forget=True),
    }
    for name in {"commit": ["select"], "init": ["join", "forget"]}.get(where, [where]):
        with pytest.raises(RuntimeError, match=where):
            calls[name]()
        assert kept(selector, tmp_path) == before, name
        assert not announced.number, f"a log that is written ahead would hold a {name} that never was"
    monkeypatch.setattr(Broken, "where", "")
    for call in calls.values():
        call()
