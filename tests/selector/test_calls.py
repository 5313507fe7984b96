"""A call is done in full or not at all, and one at a time."""

from __future__ import annotations

import signal

import pytest

from federations import LETTERS_LIST, kept, make, play
from fedroster import RBCSF, Record
from fedroster.selector.calls import Calls


class Interrupted(Exception):
    pass


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


class Broken(RBCSF):
    """A policy of someone else's, which cannot begin again."""

    breaks = False

    def init(self, spec, /, *, rng):
        if Broken.breaks:
            raise RuntimeError
        return super().init(spec, rng=rng)


class Announced(Record):
    """Counts what is announced before it is booked."""

    number = 0

    def before(self, event):
        self.number += 1


def test_a_policy_that_cannot_begin_anew_has_changed_nothing(tmp_path, monkeypatch):
    policy, announced = Broken(V=5.0, beta=0.1), Announced(tmp_path / "log")
    selector = make(LETTERS_LIST, policy=policy, num_features=3, cohort_size=3, observers=[announced])
    play(selector, 4)
    before, announced.number = kept(selector, tmp_path), 0
    monkeypatch.setattr(Broken, "breaks", True)
    calls = {"join": lambda: selector.join(["new"]), "forget": lambda: selector.leave(["a"], forget=True)}
    for name, call in calls.items():
        with pytest.raises(RuntimeError):
            call()
        assert kept(selector, tmp_path) == before, name
        assert not announced.number, f"a log that is written ahead would hold a {name} that never was"
    monkeypatch.setattr(Broken, "breaks", False)
    for call in calls.values():
        call()
