"""A client that fails or stays silent costs time, pauses when it goes on, and is owed nothing meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from fedroster import RBCSF, FailureRules, Selector, Uniform
from fedroster.core.errors import ConfigurationError
from fedroster.policies import CSUCB, Floor, Oort, TiFL

NAMES = [f"n{number:02d}" for number in range(20)]
POLICIES = {
    "rbcs-f, V = 20": RBCSF(V=20.0, beta=0.05),
    "floor": Floor(beta=0.05),
    "oort": Oort(),
    "tifl": TiFL(),
    "cs-ucb": CSUCB(),
    "random": Uniform(),
}


def play(selector, rounds, fails, *, seed=0):
    """Rounds in which clients take one to three seconds, and those of ``fails`` fail."""
    rng = np.random.default_rng(seed)
    pace = dict(zip(NAMES, rng.uniform(1.0, 3.0, len(NAMES)), strict=True))
    for _ in range(rounds):
        cohort = selector.select()
        times_s = {name: float(pace[name] * rng.uniform(0.9, 1.1)) for name in cohort.clients}
        failed = [name for name in cohort.clients if name in fails]
        answered = {name: time_s for name, time_s in times_s.items() if name not in failed}
        losses = dict.fromkeys(answered, 1.0)
        selector.observe(
            cohort.round,
            times_s=answered,
            failed=failed,
            losses=losses,
            num_samples=losses,
            round_s=max(answered.values(), default=3.0),
        )


@pytest.mark.parametrize("name", POLICIES)
def test_a_client_that_always_fails_is_not_preferred(name):
    selector = Selector(POLICIES[name], cohort_size=4, clients=NAMES)
    play(selector, 300, {"n07"})
    chosen = selector.participation()
    assert chosen["n07"] <= 15  # 0.05 of all rounds; an even share is 0.2
    assert chosen["n07"] >= 5  # it is tried again and again
    others = [count for client, count in chosen.items() if client != "n07"]
    assert chosen["n07"] < np.mean(others) / 2


def test_without_the_rules_it_is_preferred():
    rules = FailureRules(learned=False, pause_after=0)
    selector = Selector(POLICIES["rbcs-f, V = 20"], cohort_size=4, clients=NAMES, failures=rules)
    play(selector, 300, {"n07"})
    assert selector.participation()["n07"] > 200


def lone(rounds, *, rules=None, fails=(), policy=None):
    """Two clients, a cohort of two; returns the pauses that were seen after each round."""
    selector = Selector(policy or RBCSF(beta=0.4), cohort_size=2, clients=["a", "b"], failures=rules)
    seen = []
    for number in range(1, rounds + 1):
        cohort = selector.select()
        failed = [name for name in cohort.clients if name == "a" and number in fails]
        selector.observe(number, times_s={name: 1.0 for name in cohort.clients if name not in failed}, failed=failed)
        seen.append((len(cohort.clients), selector.paused().get("a", 0)))
    return selector, seen


def test_pauses_grow_and_are_bounded():
    _, seen = lone(60, rules=FailureRules(pause_after=2, longest_pause=6), fails=range(1, 100))
    pauses = [left for chosen, left in seen if chosen == 2]
    assert pauses == [0, 1, 2, 4] + [6] * (len(pauses) - 4)
    assert [chosen for chosen, _ in seen[:11]] == [2, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1]


def test_an_answer_ends_the_row():
    selector, seen = lone(9, fails={1, 2, 4, 5, 7, 8})
    assert seen == [(2, 0)] * 9
    assert selector.paused() == {}


def test_a_paused_client_is_owed_nothing():
    never, _ = lone(3, fails={1, 2, 3})
    before = never.backlog()["a"]
    assert never.paused() == {"a": 1}
    never.select()
    assert never.backlog()["a"] == before  # a round later
    assert never.participation_rates()["a"] == 1.0  # 3 of the 3 rounds in which it could be chosen
    assert never.participation() == {"a": 3, "b": 4}


def test_what_a_failure_costs():
    def learned(**feedback):
        selector = Selector(RBCSF(beta=0.0, ridge=1e-9), cohort_size=2, clients=["a", "b"], **options)
        selector.select()
        selector.observe(1, **feedback)
        return selector.expected_times_s(["a"])["a"]

    options = {}
    assert learned(failed=["a"], times_s={"b": 3.0}) == pytest.approx(3.0)
    assert learned(dropped=["a"], times_s={"b": 3.0}, round_s=9.0) == pytest.approx(9.0)
    assert learned(dropped=["a", "b"], round_s=9.0) == pytest.approx(9.0)
    assert learned(dropped=["a", "b"]) == 0.0  # nothing is known of what it cost
    assert learned(times_s={"a": 9.0, "b": 3.0}, late=["a"]) == pytest.approx(9.0)  # no failure: it was measured
    options = {"longest_s": 5.0}
    assert learned(dropped=["a"], times_s={"b": 3.0}, round_s=9.0) == pytest.approx(5.0)
    options = {"failures": FailureRules(learned=False)}
    assert learned(failed=["a"], times_s={"b": 3.0}) == 0.0
    options = {}
    assert learned(times_s={"a": 30.0, "b": 3.0}, unlearned=["a"], round_s=30.0) == 0.0


def test_a_cost_is_no_time_that_was_cut():
    selector = Selector(RBCSF(beta=0.0), cohort_size=3, clients=list("abc"), longest_s=2.0)
    selector.select()
    selector.observe(1, times_s={"a": 1.0, "b": 5.0}, dropped=["c"], round_s=9.0)
    assert selector.participation("capped") == {"a": 0, "b": 1, "c": 0}
    with pytest.raises(ConfigurationError, match="of is"):
        selector.participation("seen")


@pytest.mark.parametrize("options", [{"pause_after": -1}, {"longest_pause": 0}])
def test_rules_out_of_range_are_refused(options):
    with pytest.raises(ConfigurationError):
        FailureRules(**options)
