"""The search by client prices against enumeration and HiGHS: its step functions, what it rules out, its proofs."""

import itertools

import numpy as np
import pytest

import fedroster.optimization.assignment.solve as module
from assignments import (
    KINDS,
    Instance,
    brute_force,
    check_certificate,
    check_decision,
    random_instance,
    searches,
    table_one,
)
from fedroster.optimization.assignment.client_prices import (
    JOINED_CELLS,
    MOST_POINTS,
    add_item,
    core_functions,
    fix_links,
    lists_twice,
    profit_at,
    search_by_prices,
)
from fedroster.optimization.assignment.core import core_of
from fedroster.optimization.assignment.links import compact
from fedroster.optimization.assignment.solve import Search


def step_function(share, gain):
    """Points of the function of all items."""
    used, profit = np.zeros(60_000), np.zeros(60_000)
    start, stop = 0, 1
    for each, worth in zip(share, gain, strict=True):
        following = add_item(used, profit, start, stop, each, worth, stop)
        start, stop = stop, following
    return used[start:stop], profit[start:stop]


def subsets(share, gain):
    """Shares and profits of all subsets."""
    masks = np.array(list(itertools.product([0, 1], repeat=len(share))), dtype=float).reshape(
        2 ** len(share), len(share)
    )
    return masks @ share, masks @ gain


@pytest.mark.parametrize("grid", [False, True], ids=["continuous", "ties"])
def test_step_functions_are_the_knapsack(grid):
    rng = np.random.default_rng(1)
    for _ in range(300):
        count = int(rng.integers(0, 9))
        share, gain = rng.uniform(0, 0.9, count), rng.uniform(0.01, 1, count)
        if grid:
            share, gain = np.rint(share * 5) / 5, np.rint(gain * 3 + 1) / 4
        used, profit = step_function(share, gain)
        assert used[0] == 0
        assert (np.diff(used) > 0).all()
        assert (np.diff(profit) > 0).all()
        cost, worth = subsets(share, gain)
        for room in (0.0, 1.0, *rng.random(4)):
            best = worth[cost <= room + 1e-12].max()
            assert profit_at(used, profit, 0, used.size, room) == pytest.approx(best, abs=1e-12)


def test_joined_points_still_bound_and_not_by_much():
    rng = np.random.default_rng(2)
    for _ in range(6):
        # Profits near the shares: hardly any subset is dominated.
        share = rng.uniform(0.05, 0.12, 15)
        gain = share * rng.uniform(0.999, 1.001, 15)
        used, profit = step_function(share, gain)
        assert used.size <= MOST_POINTS
        cost, worth = subsets(share, gain)
        order = np.argsort(cost)
        undominated = np.unique(np.maximum.accumulate(worth[order][cost[order] <= 1])).size
        assert undominated > 2 * MOST_POINTS
        for room in rng.random(40):
            best = worth[cost <= room + 1e-12].max()
            loose = worth[cost <= room + 1e-12 + 15 / JOINED_CELLS].max()
            assert best - 1e-12 <= profit_at(used, profit, 0, used.size, room) <= loose + 1e-12


def forced(instance: Instance, client: int, row: int | None) -> float:
    """The optimum among decisions that use the row, or that leave the client out; minus infinity if there is none."""
    others = instance.client != client
    budget = instance.budget * (1 + 5e-13)
    gained = 0.0
    if row is not None:
        budget[instance.server[row]] -= instance.cost[row]
        gained = instance.value[row]
    columns = (instance.value, instance.cost, instance.client, instance.server)
    return gained + brute_force(Instance(*(column[others] for column in columns), budget, instance.num_clients))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "duplicates"])
def test_what_is_ruled_out_is_in_no_better_decision(kind):
    out = out_clients = 0
    for turn, (instance, search, rng) in enumerate(searches(10 + KINDS.index(kind), kind, 60)):
        search.begin_knapsacks()
        if turn % 2:
            search.total = 0.9 * search.bound
            search.tighten(20)
            price = search.best_client_price
        else:
            price = rng.exponential(0.5, search.links.first.size - 1)
        optimum = brute_force(instance)
        scale = np.ldexp(1.0, search.exponent)
        floor = optimum * rng.uniform(0.8, 1.0)
        bound, keep, skip = fix_links(search.links, price, floor / scale)
        assert bound * scale >= optimum * (1 - 1e-12)
        for j in np.flatnonzero(~keep):
            row = search.row[j]
            assert forced(instance, instance.client[row], row) <= floor * (1 + 1e-9) + 1e-12
            out += 1
        for n in np.flatnonzero(~skip):
            client = instance.client[search.row[search.links.first[n]]]
            assert forced(instance, client, None) <= floor * (1 + 1e-9) + 1e-12
            out_clients += 1
    if kind in ("continuous", "free", "client-cost"):
        assert out > 0
        assert out_clients > 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "duplicates"])
def test_any_prices_find_the_optimum(kind):
    improved = 0
    for instance, search, rng in searches(30 + KINDS.index(kind), kind, 40, max_clients=7):
        optimum = brute_force(instance) / np.ldexp(1.0, search.exponent)
        price = rng.exponential(0.5, search.links.first.size - 1)
        start = 0.7 * optimum
        _, keep, skip = fix_links(search.links, price, start)
        core = core_of(search.links, keep, skip, price, np.zeros(keep.size), np.ones(search.price.size))
        assert optimum == 0 or (skip | np.logical_or.reduceat(keep, search.links.first[:-1])).all()
        if core.client.size == 0:
            continue
        functions = core_functions(core)
        *_, done, _ = search_by_prices(core, functions, start, 1e-12, 1)
        assert not done or core.client.size == 1
        floor, _, done, pick = search_by_prices(core, functions, start, 1e-12, 10**6)
        assert done
        held = core.link[pick[pick >= 0]]
        if optimum > 0:
            assert floor == pytest.approx(optimum, rel=1e-10)
            assert search.links.value[held].sum() == pytest.approx(optimum, rel=1e-10)
            check_decision(instance, np.sort(search.row[held]))
            improved += 1
    assert improved > 20


def test_the_whole_stage_on_small_instances(monkeypatch):
    # Without the exact search at the start, the search by prices must prove nearly all by itself.
    monkeypatch.setattr(module, "_SMALL_CORE", -1)
    proofs = []
    real = Search.prove_by_prices

    def spy(self, *arguments):
        proofs.append(real(self, *arguments))
        return proofs[-1]

    monkeypatch.setattr(Search, "prove_by_prices", spy)
    rng = np.random.default_rng(8)
    for kind in KINDS:
        for _ in range(40):
            instance = random_instance(rng, kind, max_clients=7, max_servers=4)
            optimum = brute_force(instance)
            for options in ({}, {"rng": rng}, {"gap": 0.05}, {"node_limit": 200}):
                check_certificate(instance, instance.solve(**options), optimum)
            assert instance.solve().is_optimal
    assert np.mean(proofs) > 0.9


def test_the_search_stops_at_its_limit():
    instance = table_one(5, num_clients=100, num_servers=10, budget=9.0)
    search = Search(*instance.rows, num_clients=instance.num_clients)
    search.begin_knapsacks()
    search.tighten(40)
    before = search.nodes
    search.limit = before + 2_000
    assert not search.prove_by_prices(10**9, 400)
    assert search.nodes - before < 2_100
    search.limit = 10**9
    assert not search.prove_by_prices(10**9, 3)


def test_doubled_links_are_seen():
    for server, doubled in (([0, 1, 0, 1], False), ([0, 1, 1, 1], True)):
        ones = np.ones(4)
        order = np.arange(4), np.arange(2), np.arange(2)
        links, _ = compact(ones, ones, np.array([0, 0, 1, 1]), np.array(server), np.full(2, 9.0), *order)
        assert lists_twice(links) == doubled
