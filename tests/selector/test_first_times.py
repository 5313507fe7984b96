"""A client's first time may have the start of its process in it: it decides about no share."""

from __future__ import annotations

import numpy as np
import pytest

from fedroster import RBCSF, Floor, Selector, make_policy
from fedroster.folder.events import Told
from fedroster.folder.settings import Settings
from fedroster.policies import ParticipationWeights
from fedroster.selector.guard import Guard
from fedroster.selector.members import blank

START_S = 29.0
POLICIES = ("rbcs-f:V=20,beta=0.15", "floor:beta=0.15", "tifl", "cs-ucb", "oort", "wrapped")


def play(policy, cold, *, clients=10, rounds=200, slow=(), seed=0):
    """How often each of some clients of 0.2 s was chosen; the first exchange of ``cold`` ones has a start in it."""
    rng, seen = np.random.default_rng(seed), np.zeros(clients, int)
    selector = Selector(policy, cohort_size=3, clients=range(clients))
    for _ in range(rounds):
        cohort = selector.select()
        times_s = {}
        for client in cohort.clients:
            usual_s = 0.8 if client in slow else 0.2
            start_s = START_S if client in cold and not seen[client] else 0.0
            times_s[client] = usual_s * rng.uniform(0.9, 1.1) + start_s
            seen[client] += 1
        selector.observe(cohort.round, times_s=times_s)
    return seen


@pytest.mark.parametrize("policy", [RBCSF(V=20.0, beta=0.05), Floor(beta=0.05)])
def test_a_start_decides_about_no_share(policy):
    rest, one, all_ = (
        np.mean([play(policy, cold, seed=seed) for seed in range(3)], axis=0) for cold in ((), {3}, range(10))
    )
    assert min(one[3], all_[3]) > 0.4 * np.delete(rest, 3).mean()


@pytest.mark.parametrize("name", POLICIES)
def test_the_first_time_leaves_what_is_believed_when_the_second_comes(name):
    def after(*times_s):
        policy = ParticipationWeights(RBCSF()) if name == "wrapped" else make_policy(name)
        selector = Selector(policy, cohort_size=2, clients=["a", "b"], longest_s=None)
        for time_s in times_s:
            cohort = selector.select(["a", "b"])
            selector.observe(cohort.round, times_s={"a": time_s, "b": 3.0})
        return selector.expected_times_s({"a": [1.0], "b": [1.0]})["a"]

    assert not after(START_S) <= after(0.2)  # it counts until then, where one time is enough to expect something
    assert after(START_S, 0.5) == pytest.approx(after(0.2, 0.5), rel=0.1)
    assert after(START_S, 0.5, 0.5) == pytest.approx(after(0.2, 0.5, 0.5), rel=0.1)


@pytest.mark.parametrize("fates", [("failed", "time", "time"), ("time", "failed", "time")])
def test_a_failure_stays_and_so_does_the_time_beside_it(fates):
    selector = Selector(RBCSF(), cohort_size=1, clients=["a"])
    for fate in fates:
        number = selector.select().round
        if fate == "time":
            selector.observe(number, times_s={"a": 1.0})
        else:
            selector.observe(number, failed=["a"], round_s=30.0)
    assert selector.expected_times_s({"a": [1.0]})["a"] > 7.0


def test_clean_times_all_count():
    selector = Selector(RBCSF(), cohort_size=1, clients=["a"], guarded=False, longest_s=None)
    for time_s in (START_S, 0.2):
        selector.observe(selector.select().round, times_s={"a": time_s})
    assert selector.expected_times_s({"a": [1.0]})["a"] > 9.0


def doubted(first_s, *, many=0):
    """The factors of first times beside forty usual ones of 1 s, in a guard whose cohorts have one client."""
    once = np.array([True] * len(first_s) + [False] * many)
    slots = blank(once.shape[0])
    slots.mean_s[:] = [*first_s, *[1.0] * many]
    guard = Guard(slots, Settings(cohort_size=1, seed=0, longest_s="auto", guarded=True))
    guard._recent_s = np.ones(40)
    slots.trained[:] = np.where(once, 1, 41)
    which, factor = guard.doubted(once)
    return dict(zip(which.tolist(), factor.tolist(), strict=True))


def test_a_few_first_times_far_beyond_the_usual_count_as_usual():
    assert doubted([2.9, 4.0, 50.0], many=1) == {1: 0.25, 2: 0.02}


def test_many_keep_their_order_if_they_are_most_and_else_their_times():
    assert doubted([10.0] * 10 + [20.0] * 10, many=1) == dict.fromkeys(range(20), 0.1)
    assert doubted([10.0] * 20, many=30) == {}


@pytest.mark.parametrize("told", [{}, {"times_s": {"b": 1.0}}])
def test_a_drop_out_without_a_length_of_the_round_never_makes_a_client_look_faster(told):
    learned = []

    def look(event, selector):
        if isinstance(event, Told):
            learned.append(event.learned_s)

    selector = Selector(RBCSF(alpha=0.0), cohort_size=2, clients=["a", "b"], observers=[look], longest_s=None)
    for _ in range(10):
        selector.observe(selector.select().round, times_s={"a": 8.0, "b": 1.0})
    before = selector.expected_times_s({"a": [1.0], "b": [1.0]})["a"]
    selector.observe(selector.select().round, dropped=["a"], **told)
    assert selector.expected_times_s({"a": [1.0], "b": [1.0]})["a"] >= before - 1e-9
    assert learned[-1].max() == pytest.approx(before)
