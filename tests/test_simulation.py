"""The round loop: one world for all policies, resuming, empty rounds, and decisions that break a rule."""

import dataclasses
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest

from fedroster import RBCSF, Floor, Uniform
from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.errors import FairnessWarning, SelectionError
from fedroster.core.state import pack
from fedroster.networks import FlatNetwork
from fedroster.policies import Dirichlet, OmniscientP3
from fedroster.simulation import round_time, simulate
from fedroster.types import Outcome, RoundContext, Selection, Stateless


def outcome_of(times_s, responds=None, deadline_s=np.inf):
    times_s = np.asarray(times_s, float)
    responds = np.ones(times_s.shape, np.bool_) if responds is None else np.asarray(responds)
    return Outcome(times_s, times_s, times_s / 2, responds, deadline_s)


@pytest.mark.parametrize(
    ("policy", "scenario"),
    [("floor:beta=0.01", "traces/devices"), ("rbcs-f", "rbcs-f/table-1"), ("partial-pooling", "cocs/mnist-geometric")],
)
def test_threads_may_share_a_policy_and_a_network(policy, scenario):
    """Both are values: what a run changes is its own."""
    one, network = make_policy(policy), make_scenario(scenario, {})

    def play(seed):
        played = list(simulate(one, network, rounds=4, seed=seed))
        return [each.selection.links for each in played], pack(played[-1].policy_state)

    alone = [play(seed) for seed in range(3)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as threads:
            together = list(threads.map(play, range(3)))
    finally:
        sys.setswitchinterval(before)
    for (links, state), (found_links, found_state) in zip(alone, together, strict=True):
        assert all(map(np.array_equal, links, found_links))
        for name, values in state.items():
            np.testing.assert_array_equal(found_state[name], values, err_msg=name)


def test_round_time_is_the_slowest():
    """(1); a drop-out is noticed when its answer was due; no round outlasts the deadline; an empty one is free."""
    outcome = outcome_of([3.0, 5.0, 9.0, 1.0], responds=[True, True, False, True])
    context = RoundContext(1, np.zeros((4, 1)), np.ones(4, np.bool_), 4)
    assert round_time(outcome, context, Selection(1, np.array([0, 1, 3]))) == 5.0
    assert round_time(outcome, context, Selection(1, np.array([0, 2]))) == 9.0
    assert round_time(outcome, context, Selection(1, np.zeros(0, np.int64))) == 0.0
    assert round_time(outcome_of([3.0, 5.0], deadline_s=4.0), context, Selection(1, np.array([0, 1]))) == 4.0


def test_the_loop_is_a_generator():
    """Nothing is played before it is asked for, a run may be left, and what is shown is what was reported."""
    endless = simulate(OmniscientP3(), FlatNetwork(), rounds=10**9, seed=0)
    assert [played.context.truth for played in islice(endless, 3)] == [None] * 3


@dataclass(frozen=True, slots=True)
class Scripted(Stateless):
    """Answers what it is told to."""

    answer: object = None

    def select(self, state, context, /, *, rng):
        return self.answer(context)


def first(context):
    return np.flatnonzero(context.available)[: context.cohort_size]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda c: Selection(c.round, np.arange(8)), r"is not available in round \d+$"),
        (lambda c: Selection(c.round, first(c)[:-1]), r"7 clients were chosen; expected 8; the policy declares"),
        (lambda c: Selection(c.round, np.flatnonzero(c.available)), r"clients were chosen; expected 8"),
        (lambda c: Selection(c.round, first(c)[:0]), r"0 clients were chosen; expected 8"),
        (lambda c: Selection(c.round, first(c)[::-1]), r"expected ascending rows of 0\.\.39"),
        (lambda c: Selection(c.round, np.repeat(first(c)[:4], 2)), r"expected ascending rows"),
        (lambda c: Selection(c.round, np.arange(-1, 7)), r"expected ascending rows"),
        (lambda c: Selection(c.round, c.available), r"links have type bool and shape \(40,\); expected integers"),
        (lambda c: Selection(c.round, first(c) * 1.0), r"links have type float64"),
        (lambda c: Selection(c.round, first(c)[:, None]), r"shape \(8, 1\); expected integers of shape \(k,\)"),
        (lambda c: Selection(c.round, first(c).tolist()), r"expected Selection\(context.round, rows\), rows an array"),
        (lambda c: first(c), r"the decision is array"),
        (lambda c: None, r"the decision is None"),
        (lambda c: Selection(c.round - 1, first(c)), r"the decision is for round 0; expected round 1"),
    ],
)
def test_a_decision_that_breaks_a_rule(answer, message):
    with pytest.raises(SelectionError, match=message):
        list(simulate(Scripted(answer), FlatNetwork(), rounds=20, seed=0))


def test_a_client_on_two_links():
    @dataclass(frozen=True)
    class TwoLinks(FlatNetwork):
        def observe(self, state, round, /, *, rng):
            context, outcome = FlatNetwork.observe(self, state, round, rng=rng)
            return dataclasses.replace(context, client=np.arange(40) // 2), outcome

    with pytest.raises(SelectionError, match="a client was chosen on more than one link"):
        list(simulate(Dirichlet(), TwoLinks(availability=1.0), rounds=20, seed=0))


def warned(policy, availability, rounds=130):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in simulate(policy, FlatNetwork(availability=availability), rounds=rounds, seed=0):
            pass
    assert {warning.category for warning in caught} <= {FairnessWarning}
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("policy", [RBCSF(V=1.0), Floor()])
def test_a_rate_that_cannot_be_met_is_said_once(policy):
    (message,) = warned(policy, 0.01)
    assert message.startswith("beta = 0.15 cannot be met for 37 clients that are available less often")
    assert message.endswith("such as [0, 1, 2, 3, 4], in 64 rounds")


@pytest.mark.parametrize(
    ("policy", "availability", "rounds"),
    [
        (RBCSF(V=1.0), 0.8, 130),
        (RBCSF(V=1.0), 0.05, 63),  # too few rounds to tell
        (Floor(share_of="available"), 0.05, 130),
        (Uniform(), 0.05, 130),
    ],
)
def test_no_warning_of_rates_without_a_reason(policy, availability, rounds):
    assert warned(policy, availability, rounds) == []
