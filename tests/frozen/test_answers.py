"""What answers mean: late, in parts, twice, failed, never, of clients that left; and places filled one by one."""

from collections import Counter

import numpy as np
import pytest

from fedroster import COCS, RBCSF, EdgeSelector, FailureRules, Floor, Selector, make_policy
from fedroster.errors import FeedbackError
from fedroster.policies import CSUCB, TiFL
from fedroster.types import Status
from frozen.digests import FLAT
from frozen.door import UNGUARDED, views

CLIENTS = list("abcdef")
LEARNING = [RBCSF(V=5.0, beta=0.1), Floor(beta=0.1), CSUCB(), TiFL()]


def make(policy=LEARNING[0], *, clients=CLIENTS, cohort_size=4, **options):
    return Selector(policy, cohort_size=cohort_size, clients=clients, **options)


def same_from_now_on(one, other):
    assert views(one) == views(other)
    rng = np.random.default_rng(1)
    for _ in range(8):
        rows = {client: rng.uniform(0.5, 2.0, 2) for client in one.clients}
        cohort = one.select(rows)
        assert other.select(rows) == cohort
        times_s = {client: float(rng.uniform(1.0, 3.0)) for client in cohort.clients}
        for selector in (one, other):
            selector.observe(cohort.round, times_s=times_s)
    assert views(one) == views(other)


def rows(*clients):
    return {client: [1.0 + CLIENTS.index(client), 1.0] for client in clients}


@pytest.mark.parametrize("policy", LEARNING, ids=lambda policy: type(policy).__name__)
def test_in_parts_in_any_order_and_twice_is_the_same_as_at_once(policy):
    at_once, parts = make(policy, **UNGUARDED), make(policy, **UNGUARDED)
    for selector in (at_once, parts):
        selector.select(rows("a", "b", "c"))
        selector.select(rows("d", "e", "f"))
    at_once.observe(1, times_s={"a": 1.0, "b": 2.0}, dropped=["c"], round_s=4.0)
    at_once.observe(2, times_s={"d": 3.0, "e": 1.5}, late=["e"], failed=["f"], round_s=4.0)
    parts.observe(1)  # nothing to say is no mistake
    parts.observe(1, times_s={"b": 2.0}, round_s=4.0)
    parts.observe(1, status={"c": Status.DROPPED, "a": None}, round_s=4.0)
    with pytest.raises(FeedbackError):
        parts.observe(1, times_s={"a": 1.0, "b": 9.0})
    assert parts.open_rounds() == {1: ("a",), 2: ("d", "e", "f")}
    parts.observe(1, times_s={"a": 1.0, "b": 9.0}, failed=["c"], round_s=4.0, again="ignore")
    parts.observe(2, failed=["f"], round_s=4.0)
    parts.observe(2, times_s={"d": 3.0, "e": 1.5}, late=["e"], round_s=4.0)
    parts.observe(1, times_s={"a": 7.0}, again="ignore")  # the round is closed
    same_from_now_on(at_once, parts)


def test_each_outcome_counts_for_what_it_is():
    selector = make(cohort_size=6)
    assert selector.select(rows(*CLIENTS)).clients == tuple(CLIENTS)
    selector.observe(1, times_s={"a": 1.0, "b": 2.0}, late=["b"], dropped=["c"], failed=["d"])
    assert selector.open_rounds() == {1: ("e", "f")}
    assert selector.participation() == dict.fromkeys(CLIENTS, 1)
    assert selector.participation("trained") == dict.fromkeys(CLIENTS, 0) | {"a": 1, "b": 1}
    assert selector.participation("used") == dict.fromkeys(CLIENTS, 0) | {"a": 1}
    assert selector.cold() == dict.fromkeys(CLIENTS, False)
    selector.select([])  # an empty round is a round
    assert (selector.round, selector.cold()) == (2, dict.fromkeys(CLIENTS, True))
    assert selector.participation_rates() == dict.fromkeys(CLIENTS, 0.5)


@pytest.mark.parametrize("lost", ["dropped", "failed"])
def test_a_failure_costs_its_round_and_clients_that_fail_again_and_again_pause(lost):
    free = make(failures=FailureRules(learned=False, pause_after=0), cohort_size=2)
    learning = make(failures=FailureRules(learned=True, pause_after=2, longest_pause=3), cohort_size=2)
    for selector in (free, learning):
        for number in (1, 2):
            assert selector.select(rows("a", "b")).clients == ("a", "b")
            selector.observe(number, times_s={"b": 2.0}, **{lost: ["a"]}, round_s=30.0)
    assert free.paused() == {}
    assert learning.paused() == {"a": 1}
    slow = [each.expected_times_s({"a": [1.0, 1.0]})["a"] for each in (free, learning)]
    assert slow[1] > slow[0] + 5.0
    assert learning.select(rows("a", "b", "c")).clients == ("b", "c")
    assert learning.excluded() == {"a": "paused"}
    assert learning.select(rows("a")).clients == ("a",)


def test_a_round_is_given_up_when_patience_is_over():
    selector = make(patience_rounds=3)
    for _ in range(5):
        selector.select(rows("a", "b"))
    assert sorted(selector.open_rounds()) == [3, 4, 5]
    with pytest.raises(FeedbackError):
        selector.observe(2, times_s={"a": 1.0})
    before = views(selector)
    selector.observe(2, times_s={"a": 1.0}, again="ignore")
    assert views(selector) == before
    selector.observe(3, times_s={"a": 1.0, "b": 1.0})
    assert sorted(selector.open_rounds()) == [4, 5]


def test_who_left_is_still_heard_and_who_is_forgotten_is_a_stranger():
    stayed, left = make(), make()
    for selector in (stayed, left):
        selector.select(rows("a", "b", "c"))
    left.leave(["b"])
    assert left.clients == ("a", "c", "d", "e", "f")
    for selector in (stayed, left):
        selector.observe(1, times_s={"a": 1.0, "b": 5.0})
    left.join(["b"])
    times = [each.expected_times_s({"b": [2.0, 1.0]})["b"] for each in (stayed, left)]
    assert times[0] == times[1] > 0.5
    assert left.participation() == stayed.participation()
    left.leave(["b", "c"], forget=True)
    assert left.open_rounds() == {}
    with pytest.raises(FeedbackError):
        left.observe(1, times_s={"c": 1.0})
    left.join(["b"])
    assert left.participation()["b"] == left.backlog()["b"] == 0
    assert left.expected_times_s({"b": [2.0, 1.0]}) != {"b": times[0]}
    assert left.cold()["b"]


@pytest.mark.parametrize("name", [*FLAT, "floor"])
def test_no_policy_chooses_who_is_at_work(name):
    selector, rng = make(make_policy(name), clients=range(12), patience_rounds=1000), np.random.default_rng(2)
    at_work, chosen = {}, Counter()
    for _ in range(60):
        cohort = selector.select(at_most=4 - len(at_work))
        assert len(cohort.clients) == 4 - len(at_work)
        assert not set(cohort.clients) & at_work.keys()
        chosen.update(cohort.clients)
        at_work |= dict.fromkeys(cohort.clients, cohort.round)
        done = sorted(at_work)[int(rng.integers(4))]
        selector.observe(at_work.pop(done), times_s={done: 1.0 + done % 4}, losses={done: 1.0}, num_samples={done: 5})
    assert selector.participation() == {client: chosen[client] for client in range(12)}
    assert sum(selector.participation_rates().values()) == pytest.approx(chosen.total() / (chosen.total() // 4))


def test_places_of_a_whole_round_are_a_round_and_busy_clients_may_be_allowed():
    whole, places = make(clients=list("abc"), cohort_size=2), make(clients=list("abc"), cohort_size=2)
    for number in range(1, 10):
        cohort = whole.select()
        assert places.select(at_most=2) == cohort
        for selector in (whole, places):
            selector.observe(number, times_s=dict.fromkeys(cohort.clients, 2.0))
    assert whole.backlog() == places.backlog()
    first = places.select(at_most=2)
    assert len(places.select(at_most=2).clients) == 1
    assert places.select(at_most=1).is_empty
    assert places.excluded() == dict.fromkeys("abc", "busy")
    assert len(places.select(at_most=1, busy=True).clients) == 1
    assert places.select(busy=False).is_empty
    assert len(places.select().clients) == 2
    assert set(first.clients) <= set("abc")


def test_edge_servers_keep_their_budgets_and_reach():
    selector = EdgeSelector(COCS(h_T=2), budgets={"n": 1.0, "s": 0.7}, cohort_size=5, clients=CLIENTS)
    rng = np.random.default_rng(0)
    for _ in range(40):
        near = {client: ["n", "s"][: rng.integers(0, 3)] for client in CLIENTS}
        prices = {client: float(rng.uniform(0.1, 0.6)) for client in CLIENTS}
        cohort = selector.select({c: rng.random(2) for c in CLIENTS}, servers=near, prices=prices)
        spent = dict.fromkeys(selector.budgets, 0.0)
        for client, server in zip(cohort.clients, cohort.servers, strict=True):
            assert server in near[client]
            spent[server] += prices[client]
        assert all(spent[server] <= budget + 1e-9 for server, budget in selector.budgets.items())
        selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
    assert sum(selector.participation().values()) > 80
