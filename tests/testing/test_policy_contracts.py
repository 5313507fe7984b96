"""A policy that breaks the public contract is noticed."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import re
import sys
import textwrap
import types
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

import fedroster.testing
from fedroster.core.errors import SelectionError
from fedroster.core.problem import Selection
from fedroster.core.protocols import Stateless
from fedroster.core.state import per_client
from fedroster.testing import HierarchicalPolicyContract, PolicyContract


def contract(policy, kind=PolicyContract, **declared):
    """The contract of one policy."""
    return type("Contract", (kind,), {"policy": lambda self: policy, **declared})


# --- negative controls: each breaks one rule -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CountState:
    count: np.ndarray = per_client()
    total: int = 0


@dataclass(frozen=True, slots=True)
class Counting:
    """A well-behaved policy: serves the clients that were served least, ties by the generator."""

    omniscient: ClassVar[bool] = False
    fills_cohort: ClassVar[bool] = True

    def check(self, spec, /):
        pass

    def init(self, spec, /, *, rng):
        return CountState(np.zeros(spec.num_clients))

    def select(self, state, context, /, *, rng):
        count = state.count if context.client is None else state.count[context.client]
        rank = np.lexsort((rng.random(context.num_links), count, ~context.available))
        return Selection(context.round, np.sort(rank[: min(context.cohort_size, context.available.sum())]))

    def commit(self, state, context, selection, /):
        state.count[context.clients_of(selection.links)] += 1
        return dataclasses.replace(state, total=state.total + len(selection.links))

    def update(self, state, feedback, /):
        return state


TestCounting = contract(Counting())
BREAKS = []
"""Policies that break one rule each, with the test that notices it."""


def breaks(*tests):
    """Makes a class a policy, and a negative control."""

    def noted(made):
        made = dataclass(frozen=True, slots=True)(made)
        BREAKS.extend((made, test) for test in tests)
        return made

    return noted


@breaks("obeys_the_hard_constraints")
class TakesTheAbsent(Counting):
    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.arange(min(context.cohort_size, context.num_links)))


@breaks("obeys_the_hard_constraints")
class TakesTooFew(Counting):
    def select(self, state, context, /, *, rng):
        return Selection(context.round, Counting.select(self, state, context, rng=rng).links[:-1])


@breaks("nobody_available_is_an_empty_round")
class CrashesWhenAlone(Counting):
    def select(self, state, context, /, *, rng):
        assert context.available.sum() > 0
        return Counting.select(self, state, context, rng=rng)


@breaks("select_changes_nothing")
class LearnsInSelect(Counting):
    def select(self, state, context, /, *, rng):
        state.count[0] += 1
        return Counting.select(self, state, context, rng=rng)


@breaks("select_changes_nothing")
class SetsInSelect(Counting):
    """Changes the state so that a second call changes nothing more."""

    def select(self, state, context, /, *, rng):
        state.count[0] = 1000.0
        return Counting.select(self, state, context, rng=rng)


@breaks("the_seed_decides")
class FixedOrder(Counting):
    def select(self, state, context, /, *, rng):
        return Counting.select(self, state, context, rng=np.random.default_rng(0))


@breaks("select_changes_nothing", "the_seed_decides")
class OwnGenerator(Counting):
    def select(self, state, context, /, *, rng):
        return Counting.select(self, state, context, rng=np.random.default_rng())


@breaks("the_truth_stays_hidden")
class Peeks(Counting):
    def select(self, state, context, /, *, rng):
        if context.truth is not None and context.truth.responds.all():
            pass
        return Counting.select(self, state, context, rng=rng)


@breaks("the_truth_stays_hidden")
class NoticesTheTruth(Counting):
    def select(self, state, context, /, *, rng):
        if context.truth is not None:
            rng.random()
        return Counting.select(self, state, context, rng=rng)


@dataclass(frozen=True, slots=True)
class UndeclaredState:
    count: np.ndarray
    total: int = 0


@breaks("the_federation_grows")
class UndeclaredAxis(Counting):
    def init(self, spec, /, *, rng):
        return UndeclaredState(np.zeros(spec.num_clients))


@dataclass(frozen=True, slots=True)
class ObjectState:
    count: np.ndarray = per_client()
    total: int = 0
    seen: object = None


@breaks("the_state_saves_without_pickles")
class HoldsObjects(Counting):
    def init(self, spec, /, *, rng):
        return ObjectState(np.zeros(spec.num_clients), seen={"a": 1})


@breaks("the_order_of_feedback_does_not_matter")
class LastOnly(Counting):
    """Learns from the last row of feedback only."""

    def update(self, state, feedback, /):
        if len(feedback.client):
            state.count[feedback.client[-1]] += 0.5
        return state


@breaks("survives_partial_late_and_missing_feedback")
class LearnsNaN(Counting):
    def update(self, state, feedback, /):
        state.count[feedback.client] += feedback.exchange_time_s
        return state


@breaks("survives_partial_late_and_missing_feedback")
class LearnsNaNLosses(Counting):
    wants_losses: ClassVar[bool] = True

    def update(self, state, feedback, /):
        if feedback.loss is not None:
            state.count[feedback.client] += feedback.loss
        return state


@breaks("survives_partial_late_and_missing_feedback")
class NeedsLosses(Counting):
    wants_losses: ClassVar[bool] = True

    def update(self, state, feedback, /):
        state.count[feedback.client] += np.nan_to_num(feedback.loss)
        return state


@breaks("renumbered_clients_get_the_same_decision")
class ByNumber(Stateless):
    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.flatnonzero(context.available)[: context.cohort_size])


@breaks("renumbered_clients_get_the_same_decision")
class ByRow(Counting):
    """Takes row i for client i."""

    def select(self, state, context, /, *, rng):
        rank = np.lexsort((context.features[:, 0], state.count, ~context.available))
        return Selection(context.round, np.sort(rank[: min(context.cohort_size, context.available.sum())]))


@breaks("resumed_equals_uninterrupted")
class Remembers(Counting):
    """Keeps something outside the state."""

    cache: list = field(default_factory=list, compare=False, repr=False, hash=False)

    def select(self, state, context, /, *, rng):
        self.cache.append(context.round)
        if len(self.cache) % 7 == 0:
            rng.random()
        return Counting.select(self, state, context, rng=rng)


@breaks("what_it_refuses_it_refuses_before_it_writes")
class StopsInTheMiddle(Counting):
    refuses_first: ClassVar[bool] = True

    def select(self, state, context, /, *, rng):
        return Counting.select(self, state, context, rng=rng)

    def commit(self, state, context, selection, /):
        return state

    def update(self, state, feedback, /):
        state.count[feedback.client] += 1
        if (feedback.features > 1e9).any():
            raise ValueError("too large")
        return state


@breaks("commit_reads_what_it_says")
class ReadsOthers(Counting):
    commits: ClassVar[str] = "cohort"

    def commit(self, state, context, selection, /):
        state.count[:] += context.features[:, 0]
        return state


@breaks("what_is_owed_and_expected")
class OwesLessThanNothing(Counting):
    def backlog(self, state, /):
        return -state.count


@breaks("what_is_owed_and_expected")
class ExpectsThePast(Counting):
    def expected_times_s(self, state, clients, features, /):
        return -state.count[clients]


@dataclass
class Mutable:
    V: float = 1.0


BREAKS.append((Mutable, "is_a_value"))


@pytest.mark.parametrize(("policy", "test"), BREAKS, ids=lambda value: getattr(value, "__name__", value))
def test_the_contract_notices(policy, test, tmp_path):
    method = getattr(contract(policy(), equivariant=True)(), f"test_{test}")
    arguments = (tmp_path,) if inspect.signature(method).parameters else ()
    with pytest.raises((AssertionError, SelectionError, TypeError)):
        method(*arguments)


@dataclass(frozen=True, slots=True)
class ListState:
    count: list = per_client()


def broken(**methods):
    """Counting with some methods replaced."""
    return dataclass(frozen=True, slots=True)(type("Broken", (Counting,), methods))()


@pytest.mark.parametrize(
    ("message", "policy"),
    [
        ("commit returned None; expected the state, a CountState", broken(commit=lambda *_: None)),
        ("update returned None; expected the state, a CountState", broken(update=lambda *_: None)),
        ("init returned {'count': 0}; expected a dataclass", broken(init=lambda *_, rng: {"count": 0})),
        ("init returned None; expected a dataclass", broken(init=lambda *_, rng: None)),
        ("count of the state is [0, 0]; expected an array", broken(init=lambda *_, rng: ListState([0, 0]))),
        (
            "select returned array([0, 1, 2, 3]); expected Selection(context.round, rows)",
            broken(select=lambda *_, rng: np.arange(4)),
        ),
        (
            "select returned Selection(round=1, links=[0, 1, 2, 3], ",
            broken(select=lambda self, state, context, *, rng: Selection(context.round, [0, 1, 2, 3])),
        ),
        (
            "count, total did not change in 40 rounds; book in commit",
            broken(commit=lambda self, state, context, selection: state),
        ),
    ],
)
def test_the_contract_says_what_is_missing(message, policy):
    with pytest.raises(AssertionError, match=re.escape(message)):
        contract(policy)().test_the_state_is_kept()


@dataclass(frozen=True, slots=True)
class FairLinks(Counting):
    """The client that was served least, on its cheapest link that the budgets still allow."""

    fills_cohort: ClassVar[bool] = False
    keeps_budgets: bool = True
    counts_clients: bool = True
    by_number: bool = False

    def select(self, state, context, /, *, rng):
        links = np.flatnonzero(context.available)
        client, server, cost = context.client[links], context.server[links], context.cost[links]
        left, taken, chosen = context.budget.copy(), set(), []
        rank = state.count[client] + (client % 3 if self.by_number else 0)
        for place in np.lexsort((rng.random(links.size), cost, rank)):
            if self.keeps_budgets and cost[place] > left[server[place]]:
                continue
            if self.counts_clients and client[place] in taken:
                continue
            left[server[place]] -= cost[place]
            taken.add(client[place])
            chosen.append(links[place])
        return Selection(context.round, np.sort(np.array(chosen, np.int64)))


TestFairLinks = contract(FairLinks(), HierarchicalPolicyContract, equivariant=True)


@pytest.mark.parametrize(
    ("message", "policy", "test"),
    [
        ("expected at most its budget 2.5", FairLinks(keeps_budgets=False), "test_obeys_the_hard_constraints"),
        ("on more than one link", FairLinks(counts_clients=False), "test_obeys_the_hard_constraints"),
        ("after renumbering", FairLinks(by_number=True), "test_renumbered_clients_get_the_same_decision"),
    ],
)
def test_the_hierarchical_contract_notices(message, policy, test):
    with pytest.raises((AssertionError, SelectionError), match=message):
        getattr(contract(policy, HierarchicalPolicyContract, equivariant=True)(), test)()


def test_the_documented_examples_run():
    assert doctest.testmod(fedroster.testing).failed == 0
    text = fedroster.testing.__doc__
    code = textwrap.dedent(text[text.index("        from dataclasses") : text.index("pytest collects")])
    sys.modules["test_mine"] = module = types.ModuleType("test_mine")
    try:
        exec(code, module.__dict__)
        module.TestLottery().test_obeys_the_hard_constraints()
        module.TestLottery().test_is_a_value()
        module.TestLottery().test_the_seed_decides()
    finally:
        del sys.modules["test_mine"]


def test_the_policy_must_be_given():
    with pytest.raises(NotImplementedError, match="override policy"):
        PolicyContract().test_is_a_value()
