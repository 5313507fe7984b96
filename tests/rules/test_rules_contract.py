"""No policy breaks a rule: all of the catalogue try, and some that were written for it."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from fedroster import EdgeSelector, Group, Rules, Selector
from fedroster.catalogue import make_policy, policies
from fedroster.core.problem import RoundContext, Selection
from fedroster.core.protocols import NoState, Stateless
from fedroster.errors import RoundNotBegunError, SelectionError

NAMES = [f"{place}{number}" for place in "abcd" for number in range(4)]
RULES = Rules(
    deny=["d0", "tag:odd"],
    tags={"odd": ["?3"]},
    groups={"a": Group(["a*"], least=1, most=2), "b": Group(["b*"], most=1), "c": Group(["c*"], least=1)},
    priorities={"c1": 1, "d*": -1},
    least_cohort=3,
    most_participations=20,
    most_per_window=3,
    window=6,
    least_separation=2,
)
SIZE = 5
ROUNDS = 40


def holds(cohorts):
    """Whether cohorts keep the rules above, written down once more."""
    total = Counter()
    for round, cohort in enumerate(cohorts):
        assert len(cohort) == len(set(cohort)) <= SIZE
        assert not {"d0", "a3", "b3", "c3", "d3"} & set(cohort), (round, cohort)
        if cohort:
            groups = Counter(name[0] for name in cohort)
            assert len(cohort) >= 3
            assert 1 <= groups["a"] <= 2
            assert groups["b"] <= 1
            assert groups["c"] >= 1
        before = cohorts[round - 1] if round else ()
        assert not set(cohort) & set(before), (round, cohort, before)
        window = Counter(itertools.chain.from_iterable(cohorts[max(0, round - 5) : round + 1]))
        assert max(window.values(), default=0) <= 3
        total.update(cohort)
    assert max(total.values()) <= 20


def play(selector):
    """Rounds with some clients away; a round that cannot begin is an empty one."""
    rng = np.random.default_rng(5)
    cohorts = []
    for _ in range(ROUNDS):
        here = [name for name in NAMES if rng.random() < 0.9]
        contexts = {name: rng.uniform(0.1, 1.0, 2) for name in here}
        number = selector.round
        try:
            cohort = selector.select(contexts)
        except RoundNotBegunError:
            assert selector.round == number + 1
            cohorts.append(())
            continue
        except SelectionError:
            assert selector.round == number
            continue
        cohorts.append(cohort.clients)
        losses = {client: float(rng.uniform(0.1, 2.0)) for client in cohort.clients}
        times_s = {client: float(rng.uniform(1.0, 3.0)) for client in cohort.clients}
        if losses:
            selector.observe(cohort.round, times_s=times_s, losses=losses, squared_losses=losses, num_samples=losses)
    return cohorts


def made(policy, kind=Selector, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(policy, cohort_size=SIZE, clients=NAMES, num_features=2, rules=RULES, **options)


FLAT = [
    name for name in policies() if not (p := make_policy(name)).omniscient and not getattr(p, "needs_limits", False)
]


@pytest.mark.parametrize("name", FLAT)
def test_no_policy_breaks_a_rule(name):
    cohorts = play(made(make_policy(name)))
    assert sum(map(bool, cohorts)) > ROUNDS / 3
    holds(cohorts)


# -------------------------------------------------------------------- written for it


@dataclass(frozen=True, slots=True)
class Hostile(Stateless):
    """Wants all of the clients that it may not have, by one trick."""

    fills_cohort: ClassVar[bool] = False
    held: ClassVar[list] = []

    trick: str = "ask"
    wanted: tuple[int, ...] = field(default=(12, 3, 7, 11, 15))

    def select(self, state: NoState, context: RoundContext, /, *, rng) -> Selection:
        if self.trick == "nothing":
            return Selection(context.round, np.zeros(0, np.int64))
        if self.trick == "mask":
            context.available[:] = True
            if context.members is not None:
                context.members[:] = True
            if context.budget is not None:
                context.budget[:] = 1e9
        if self.trick == "size":
            object.__setattr__(context, "cohort_size", 16)
            return Selection(context.round, np.flatnonzero(context.available))
        if self.trick == "names" and context.client is not None:
            context.client[:] = context.client[::-1].copy()
        if self.trick in ("late", "names", "greedy"):
            rows = np.flatnonzero(context.available)
            clients = context.clients_of(rows)
            _, first = np.unique(clients, return_index=True)
            links = np.sort(rows[first][: context.cohort_size])
            self.held[:] = [links]
            return Selection(context.round, links)
        return Selection(context.round, np.array(sorted(self.wanted[: context.cohort_size])))

    def commit(self, state: NoState, context: RoundContext, selection: Selection, /) -> NoState:
        if self.trick == "late":
            for links in (*self.held, selection.links):
                links[:] = self.wanted[: links.shape[0]]
            context.available[:] = True
        if self.trick == "names" and context.client is not None:
            context.client[:] = 12
        return state


@pytest.mark.parametrize("options", [{}, {"kind": EdgeSelector, "budgets": {"n": 9.0, "s": 9.0}}])
@pytest.mark.parametrize("trick", ["ask", "mask", "size", "names", "late", "nothing", "greedy"])
def test_no_hostile_policy_breaks_a_rule(options, trick):
    selector = made(Hostile(trick), **options)
    cohorts = play(selector)
    if cohorts:
        holds(cohorts)
    is_refused = trick in ("ask", "mask", "size")  # no round begins
    assert is_refused or sum(map(bool, cohorts)) > ROUNDS / 3
    assert not {"d0", "a3", "b3", "c3", "d3"} & {name for name, count in selector.participation().items() if count}


def test_without_rules_the_same_policy_takes_what_it_wants():
    """Negative control."""
    selector = Selector(Hostile("ask"), cohort_size=SIZE, clients=NAMES, num_features=2)
    taken = set(itertools.chain.from_iterable(play(selector)))
    assert "d0" in taken
