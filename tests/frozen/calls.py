"""Histories of single calls, each drawn from what the selector says: selectors in the same state do the same."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedroster import EdgeSelector, FailureRules, Group, Rules, Selector
from fedroster.types import FloatArray, IntArray, Selection, per_client

NAMES = [f"site-{number}" if number % 3 else number for number in range(16)]
BUDGETS = {"north": 1.2, "south": 0.9}
RULES = [
    Rules(deny=["site-4"], groups={"pair": Group(("site-1", "site-2"), most=1)}, most_per_window=4, window=6),
    Rules(priorities={"site-?": 1}, least_separation=2),
    Rules(allow=["site-*", "?"]),
]


def begun(policy, *, edges=False, **options):
    """What a history begins with: the class of the selector, and its options."""
    given = {"cohort_size": 4, "clients": NAMES[:12], "seed": 5, "patience_rounds": 9, "rules": RULES[0]}
    given |= {"failures": FailureRules(True, 2, 4)} | options
    return (EdgeSelector, policy, given | {"budgets": BUDGETS}) if edges else (Selector, policy, given)


def make(policy, **options):
    """A selector at the beginning of a history."""
    made, policy, given = begun(policy, **options)
    return made(policy, **given)


def call(selector, number, *, rules=True):
    """Make one call of the history; returns what was asked and what was answered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rules and absences make promised rates impossible: they are meant to
        return _call(selector, np.random.default_rng([11, number]), rules)


def _call(selector, rng, rules):
    here, kind = selector.clients, rng.random()
    away = [name for name in NAMES if name not in here]
    one = here[int(rng.integers(len(here)))]
    waiting = selector.open_rounds()
    if kind < 0.06 and away:
        return "join", selector.join([away[int(rng.integers(len(away)))]])
    if kind < 0.12 and len(here) > 9:
        return "leave", selector.leave([one])
    if kind < 0.15 and len(here) > 9:
        return "forget", selector.leave([one], forget=True)
    if kind < 0.17 and rules:
        selector.rules = RULES[int(rng.integers(3))]
        return "rules", selector.rules
    if kind < 0.6 and waiting:
        return "answer", answer(selector, sorted(waiting)[int(rng.integers(len(waiting)))], rng)
    return "ask", ask(selector, rng)


def ask(selector, rng):
    """Begin a round, a whole one or with some places."""
    rows = {name: rng.uniform(0.1, 0.9, 2).tolist() for name in NAMES}
    there, reach = rng.random(len(NAMES)) < 0.8, rng.integers(1, 4, len(NAMES)).tolist()
    price, places, whole = rng.uniform(0.1, 0.6, len(NAMES)).tolist(), int(rng.integers(1, 5)), rng.random() < 0.7
    here = [name for name in selector.clients if there[NAMES.index(name)]]
    more = {} if whole else {"at_most": places}
    if isinstance(selector, EdgeSelector):
        labels = list(BUDGETS)
        more["servers"] = {n: [labels[s] for s in (0, 1) if reach[NAMES.index(n)] >> s & 1] for n in here}
        more["prices"] = {n: price[NAMES.index(n)] for n in here}
    return selector.select({name: rows[name] for name in here}, **more)


def answer(selector, number, rng):
    """Tell some of what is missing from a round."""
    waiting = selector.open_rounds()[number]
    fate, time_s = rng.random(len(NAMES)), rng.uniform(0.5, 4.0, len(NAMES))
    told = [name for name in waiting if fate[NAMES.index(name)] < 0.8]
    came = [name for name in told if fate[NAMES.index(name)] < 0.6]
    times_s = {name: float(time_s[NAMES.index(name)]) * (1 + NAMES.index(name) % 3) for name in came}
    selector.observe(
        number,
        times_s=times_s,
        late=[name for name in came if fate[NAMES.index(name)] < 0.15],
        dropped=[name for name in told if 0.6 <= fate[NAMES.index(name)] < 0.7],
        failed=[name for name in told if fate[NAMES.index(name)] >= 0.7],
        losses={name: float(fate[NAMES.index(name)]) + 0.1 for name in came},
        num_samples={name: 10 + NAMES.index(name) for name in came},
        round_s=6.0 if rng.random() < 0.5 else None,
    )
    return told


@dataclass(frozen=True, slots=True)
class Known:
    """How often each client was chosen, and how long it took on average, seconds, each of shape (clients,)."""

    chosen: IntArray = per_client()
    mean_s: FloatArray = per_client()


@dataclass(frozen=True, slots=True)
class Mine:
    """A policy of another package: the clients that were chosen least, the fast ones first.

    It breaks in the method that it is told to, after it has written into its state, and decides otherwise in the round
    that it is told to, of which its name says nothing.
    """

    omniscient: ClassVar[bool] = False
    fills_cohort: ClassVar[bool] = True
    breaks: ClassVar = None
    lies_in: ClassVar[int] = 0
    meanwhile: ClassVar = None

    def _broken(self, where, state):
        if Mine.breaks is not None and Mine.breaks[0] == where:
            state.chosen[:] += 7
            state.mean_s[:] = 99.0
            raise Mine.breaks[1]

    def check(self, spec, /):
        pass

    def init(self, spec, /, *, rng):
        return Known(np.zeros(spec.num_clients, np.int64), np.zeros(spec.num_clients))

    def select(self, state, context, /, *, rng):
        if Mine.meanwhile is not None:
            Mine.meanwhile()
        self._broken("select", state)
        client = context.clients_of(np.arange(context.num_links))
        order = np.lexsort((rng.random(context.num_links), state.mean_s[client], state.chosen[client]))
        rows = order[context.available[order]]
        if context.round == Mine.lies_in:
            rows = rows[::-1]
        return Selection(context.round, np.sort(rows[: context.cohort_size]))

    def commit(self, state, context, selection, /):
        state.chosen[context.clients_of(selection.links)] += 1
        self._broken("commit", state)
        return state

    def update(self, state, feedback, /):
        came = feedback.observed
        state.mean_s[feedback.client[came]] += 0.5 * (
            feedback.exchange_time_s[came] - state.mean_s[feedback.client[came]]
        )
        self._broken("update", state)
        return state
