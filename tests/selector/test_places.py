"""Places that are filled while other clients are at work: who is busy, what is owed, what survives a restart."""

from __future__ import annotations

import heapq
from collections import Counter

import numpy as np
import pytest

from fedroster import RBCSF, Floor, Group, Record, Rules, Selector
from fedroster.catalogue import make_policy
from fedroster.engine.report import RoundSink
from fedroster.errors import RoundNotBegunError
from fedroster.lab.pages.log_page import View
from fedroster.record import Log

CLIENTS = [f"c{number:02d}" for number in range(20)]
SLOW = {client: 1.0 + number % 5 for number, client in enumerate(CLIENTS)}


def flow(selector, places, *, start=None):
    """Fill every place as soon as it is free; returns the clients in the order of their starts, and who is at work."""
    rng = np.random.default_rng(1)
    now_s, at_work = (0.0, []) if start is None else start
    chosen = []
    while len(chosen) < places:
        free = selector.cohort_size - len(at_work)
        cohort = selector.select(at_most=free)
        busy = {client for _, client, _ in at_work}
        assert not busy & set(cohort.clients)
        for client in cohort.clients:
            heapq.heappush(at_work, (now_s + SLOW[client], client, cohort.round))
            chosen.append(client)
        now_s, client, number = heapq.heappop(at_work)
        loss = {client: float(rng.random())}
        selector.observe(number, times_s={client: SLOW[client]}, losses=loss, num_samples={client: 9.0})
    return chosen, (now_s, at_work)


def test_a_promised_rate_is_one_of_the_places():
    """x_n >= beta floor(P / m) - owed, and what is owed stays small; of Floor the theorem below says more."""
    selector = Selector(RBCSF(V=1.0, beta=0.2), cohort_size=5, clients=CLIENTS, patience_rounds=10_000)
    chosen, _ = flow(selector, 1000)
    count, owed = Counter(chosen), selector.backlog()
    assert all(count[client] >= 0.2 * (1000 // 5) - owed[client] - 1e-6 for client in CLIENTS)
    assert max(owed.values()) <= 6.0  # V times 4 s, by which the slowest take longer, and a place or two
    assert count.most_common()[0][1] > count.most_common()[-1][1] + 10  # the rest is the policy's own


def test_staleness_is_part_of_feedback():
    told = []
    selector = Selector(
        make_policy("random"), cohort_size=3, clients=CLIENTS, observers=[lambda event, _: told.append(event)]
    )
    first = selector.select(at_most=3)
    selector.observe(1, times_s={first.clients[0]: 1.0})
    selector.select(at_most=1)
    selector.observe(1, times_s={first.clients[1]: 2.0})
    staleness = [event.feedback.staleness for event in told if type(event).__name__ == "Told"]
    assert staleness == [0, 1]
    assert [event.places for event in told if type(event).__name__ == "Decided"] == [3, 1]
    busy = [event.busy for event in told if type(event).__name__ == "Decided"][1]
    assert selector.ids_of(busy) == tuple(sorted(first.clients[1:]))


def test_limits_count_the_clients_at_work():
    groups = {"a": Group(["a*"], least=1, most=2)}
    clients = ["a1", "a2", "a3", "b1", "b2", "b3"]
    selector = Selector(
        make_policy("random"), cohort_size=3, clients=clients, rules=Rules(groups=groups, least_cohort=3)
    )
    at_work = {}
    rng = np.random.default_rng(0)
    for _ in range(60):
        cohort = selector.select(at_most=3 - len(at_work))
        at_work |= dict.fromkeys(cohort.clients, cohort.round)
        assert len(at_work) == 3
        assert 1 <= sum(client.startswith("a") for client in at_work) <= 2
        client = sorted(at_work)[rng.integers(3)]
        selector.observe(at_work.pop(client), times_s={client: 1.0})
    with pytest.raises(RoundNotBegunError):
        selector.select([client for client in clients if client in at_work], at_most=1)


@pytest.mark.parametrize("seed", range(3))
def test_floor_keeps_its_theorem_for_places(seed):
    """x_n >= floor(beta A_n) - c - 1 after every unit (docs/explanation/places.md), while clients come and go."""
    rng = np.random.default_rng(seed)
    count, m, beta, slack = 20, 4, 0.2, 1
    policy = Floor(beta=beta, share_of="available", slack=slack)
    selector = Selector(policy, cohort_size=m, clients=range(count), patience_rounds=10**6, guarded=False)
    speed = rng.uniform(1.0, 20.0, count)
    counted, chosen, here = np.zeros(count), np.zeros(count), np.ones(count, np.bool_)
    now_s, at_work, places, least = 0.0, [], 0, 0.0
    for _ in range(300):
        busy = np.isin(np.arange(count), [client for _, client, _ in at_work])
        if len(at_work) < m and (here & ~busy).any():
            cohort = selector.select(np.flatnonzero(here), at_most=m - len(at_work))
            for client in cohort.clients:
                chosen[client] += 1
                heapq.heappush(at_work, (now_s + speed[client] * rng.uniform(0.5, 1.5), client, cohort.round))
            is_whole = (places + len(cohort.clients)) // m > places // m
            places += len(cohort.clients)
            if is_whole:
                counted += here & ~busy
                least = min(least, float((chosen - np.floor(beta * counted + 1e-9)).min()))
                must_stay = here & ~busy
                here = must_stay | (rng.random(count) < 0.3)
        now_s, client, number = heapq.heappop(at_work)
        selector.observe(number, times_s={client: speed[client]})
    assert places > 250
    assert least >= -slack - 1


def test_a_rate_counts_filled_places_as_the_promise_does(tmp_path):
    beta, sink = 0.25, []
    observers = [Record(tmp_path / "log"), RoundSink(sink.append)]
    selector = Selector(Floor(beta=beta), cohort_size=5, clients=CLIENTS, patience_rounds=10_000, observers=observers)
    _, (_, at_work) = flow(selector, 600)
    rates = selector.participation_rates()
    assert min(rates.values()) > 0.95 * beta
    assert sum(rates.values()) == pytest.approx(5.0)  # the places of a cohort
    assert selector.below_promise() == ()

    # No answer is taken for a missing one because the next place was filled before it came.
    assert len(sink) == selector.round - len(selector.open_rounds())
    assert sum(report.num_missed for report in sink) == 0
    assert sum(report.num_in_time for report in sink) == 600 - len(at_work)
    assert sink[-1].broken == ()

    members, shares = View(Log(tmp_path / "log")).members_table()
    assert {row[0]: share for row, share in zip(members.rows, shares.tolist(), strict=True)} == pytest.approx(rates)
    assert {row[3] for row in members.rows} == {"kept"}

    selector.save(tmp_path / "state.npz")
    assert Selector.load(tmp_path / "state.npz", Floor(beta=beta)).participation_rates() == rates


def test_a_round_of_places_that_is_given_up_is_reported():
    sink = []
    selector = Selector(
        Floor(beta=0.0), cohort_size=3, clients=CLIENTS, patience_rounds=2, observers=[RoundSink(sink.append)]
    )
    for _ in range(4):
        selector.select(at_most=1)
    assert [(report.round, report.num_missed) for report in sink] == [(1, 1), (2, 1)]
