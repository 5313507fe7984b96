"""P2 and the largest number of links against enumeration, two other solvers, and their own certificates."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, vstack

from assignments import (
    KINDS,
    Instance,
    brute_force,
    by_milp,
    check_certificate,
    check_decision,
    random_instance,
    searches,
    table_one,
)
from fedroster.core.errors import InvalidInputError
from fedroster.optimization.assignment import solve_assignment
from fedroster.optimization.assignment.links import compact
from fedroster.optimization.assignment.refill import CELLS, fill_server
from fedroster.optimization.assignment.relaxation import (
    dual_value,
    lifted_share,
    minimise_dual,
    most_clients,
    most_clients_apart,
)
from fedroster.optimization.assignment.solve import Search


@pytest.mark.parametrize("kind", KINDS)
def test_small_instances_match_enumeration(kind):
    """With ties broken by order, and by chance; stopped early, too, they bound."""
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(350):
        instance = random_instance(rng, kind)
        optimum = brute_force(instance)
        for options in ({}, {"rng": rng}, {"gap": 0.3}, {"node_limit": 1}, {"gap": 1.0}):
            result = instance.solve(**options)
            assert result.is_optimal or options.keys() & {"gap", "node_limit"}
            assert result.gap <= options.get("gap", 1.0) * (1 + 1e-12)
            check_certificate(instance, result, optimum)


@pytest.mark.parametrize("cifar", [False, True], ids=["mnist", "cifar"])
@pytest.mark.parametrize("kind", ["probability", "uneven", "realised", "ratios"])
@pytest.mark.parametrize("per_link", [False, True])
@pytest.mark.parametrize("size", [{}, {"num_clients": 40, "num_servers": 4}], ids=["paper's", "four servers"])
def test_table_one_matches_milp(cifar, kind, per_link, size):
    instance = table_one(0, cifar=cifar, kind=kind, per_link=per_link, **size)
    result = instance.solve()
    value, bound = by_milp(instance)
    assert result.is_optimal
    check_decision(instance, result.links)
    assert value - 1e-6 <= result.value <= bound + 1e-6


def test_large_instance_reports_its_gap():
    rng = np.random.default_rng(0)
    num_clients, num_servers = 20_000, 40
    client = np.repeat(np.arange(num_clients), 3)
    server = rng.integers(0, num_servers, client.size)
    cost = (rng.uniform(0.5, 2, num_clients) * rng.uniform(2, 4, num_clients))[client]
    instance = Instance(rng.random(client.size), cost, client, server, np.full(num_servers, 50.0), num_clients)
    result = instance.solve(gap=0.005)
    check_decision(instance, result.links)
    assert result.gap <= 0.005
    hurried = instance.solve(gap=1e-9, node_limit=300_000)
    check_decision(instance, hurried.links)
    assert 1e-9 < hurried.gap < 1.0
    assert hurried.value <= result.upper_bound
    assert result.value == pytest.approx(instance.value[result.links].sum())


def test_node_limit_is_reproducible():
    instance = table_one(1, num_clients=300, num_servers=6, budget=20.0, kind="uneven")
    for seed in (None, 5):
        first, second = (
            instance.solve(node_limit=400_000, rng=None if seed is None else np.random.default_rng(seed))
            for _ in range(2)
        )
        assert np.array_equal(first.links, second.links)
        assert first.upper_bound == second.upper_bound
        check_decision(instance, first.links)
        assert first.gap < 0.005


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("num_servers", [3, 130])
def test_dual_is_the_linear_relaxation(num_servers, cut):
    from scipy.optimize import linprog

    rng = np.random.default_rng(num_servers)
    num_clients = 4 * num_servers + 60
    reach = 3
    server = np.concatenate([rng.choice(num_servers, reach, replace=False) for _ in range(num_clients)])
    value, share = rng.random(server.size), rng.uniform(0.05, 0.6, server.size)
    rows = np.arange(server.size)
    matrix = vstack(
        [
            csr_matrix((share, (server, rows)), shape=(num_servers, server.size)),
            csr_matrix((np.ones(server.size), (np.repeat(np.arange(num_clients), reach), rows))),
        ]
    )
    relaxed = linprog(-value, A_ub=matrix, b_ub=np.ones(num_servers + num_clients), bounds=(0, 1))
    most = int(0.8 * relaxed.x.sum()) if cut else 0
    start = np.full(num_servers + cut, 0.3)
    limit = np.full(num_servers, 1.0)
    owner = np.repeat(np.arange(num_clients), reach)
    order = (np.arange(size) for size in (value.size, num_clients, num_servers))
    links, _ = compact(value, share, owner, server, limit, *order)
    price, bound, clients = minimise_dual(links, start, most)
    if cut:
        free = -relaxed.fun
        right = np.concatenate([np.ones(num_servers + num_clients), [most]])
        relaxed = linprog(-value, A_ub=vstack([matrix, np.ones((1, server.size))]), b_ub=right, bounds=(0, 1))
        assert -relaxed.fun < 0.99 * free
        assert price[-1] > 0
    assert bound == pytest.approx(dual_value(links, price, most))
    assert -relaxed.fun * (1 - 1e-9) <= bound <= -relaxed.fun * (1 + 2e-4)
    assert clients == pytest.approx(relaxed.x.sum(), rel=0.02)
    assert (price >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_cut_on_the_number_of_clients_bounds(kind):
    tight = tight_apart = broken = 0
    for instance, search, rng in searches(500 + KINDS.index(kind), kind, 120):
        links = search.links
        usable = (instance.value > 0).astype(float)
        count = round(brute_force(instance, usable))
        optimum = brute_force(instance)
        for weight in (search.room, search.price, rng.random(search.price.size), np.zeros(search.price.size)):
            most = most_clients(links, weight)
            assert most >= count
            tight += most == count
        apart = most_clients_apart(search.links)
        assert apart >= count
        tight_apart += apart == count
        price = rng.exponential(1.0, search.price.size + 1)
        bound = dual_value(search.links, price, count)
        assert np.ldexp(bound, search.exponent) >= optimum * (1 - 1e-12)
        # Negative control: one client fewer cuts optima off.
        if count > 1:
            cut = minimise_dual(search.links, price, count - 1)
            broken += np.ldexp(cut[1], search.exponent) < optimum * (1 - 1e-9)
        search.count_clients()
        assert search.upper_bound() >= optimum * (1 - 1e-10)
    assert tight > 0
    assert tight_apart > 0
    assert broken > 0


def test_the_cut_closes_what_counting_leaves_open():
    # Values near 1: the linear relaxation splits a client over all servers, which is one of 50.
    rng = np.random.default_rng(4)
    cost = np.repeat(rng.uniform(4, 30, 300), 6)
    client, server = np.repeat(np.arange(300), 6), np.tile(np.arange(6), 300)
    instance = Instance(1 - 1e-3 * rng.random(1800), cost, client, server, np.full(6, 50.0), 300)
    search = Search(*instance.rows, num_clients=300)
    plain = search.bound
    assert plain - np.floor(plain) > 0.1
    search.count_clients()
    assert search.bound < np.floor(plain)
    result = instance.solve(gap=0.002)
    check_decision(instance, result.links)
    assert result.gap <= 0.002


def test_the_cut_counts_what_each_budget_leaves_unused():
    # Four servers with room for nine clients and half a tenth: pooled, 37 would fit.
    rng = np.random.default_rng(5)
    cost = np.repeat(rng.uniform(1.0, 1.002, 400), 4)
    client, server = np.repeat(np.arange(400), 4), np.tile(np.arange(4), 400)
    instance = Instance(1 - 1e-4 * rng.random(1600), cost, client, server, np.full(4, 9.5), 400)
    search = Search(*instance.rows, num_clients=400)
    assert most_clients(search.links, search.room) == 37
    assert most_clients_apart(search.links) == 36
    result = instance.solve(gap=0.001, node_limit=200_000)
    check_decision(instance, result.links)
    assert result.gap <= 0.001  # a client more or less is 2.7 %
    assert result.links.size == 36


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_lifted_shares_keep_every_budget(size):
    rng = np.random.default_rng(size)
    for slope in (1.0, 1.5, 6.0, 40.0):
        assert lifted_share(np.array([1.0 / size]), size, slope)[0] == pytest.approx(1 / size)
        largest = 0.0
        for _ in range(2000):
            # Bundles that fill a budget, of equal shares and of very different ones.
            share = rng.dirichlet(np.full(int(rng.integers(1, 2 * size + 2)), 10 ** rng.uniform(-1, 4)))
            lifted = lifted_share(share, size, slope)
            assert (lifted >= 0).all()
            assert lifted.sum() <= 1 + 1e-9
            largest = max(largest, lifted.sum())
        assert largest > 0.99
    # Negative control: below a slope of 1 bundles of more clients break it.
    assert lifted_share(np.full(2 * size, 0.5 / size), size, 0.5).sum() > 1.1


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_by_lifted_shares_bounds(kind):
    tighter = 0
    for instance, search, rng in searches(900 + KINDS.index(kind), kind, 100, max_clients=9, max_servers=4):
        search.clients = rng.uniform(0, 4 * search.price.size)  # any size bounds
        before = search.bound
        search.begin_knapsacks()
        search.lift()
        assert search.upper_bound() >= brute_force(instance) * (1 - 1e-12)
        tighter += search.bound < before * (1 - 1e-6)
    assert tighter > 0 or kind in ("binary", "duplicates")  # whole multiples: the bound is rounded down already


def test_the_bound_by_lifted_shares_counts_clients_that_prices_are_not_sought_on():
    # All great values are at server 0; what server 1 can have is too small to be looked at, and counts all the same.
    rng = np.random.default_rng(11)
    server = np.repeat([0, 1], [100, 10])
    value = np.where(server == 0, rng.uniform(0.9, 1.0, 110), rng.uniform(0.4, 0.5, 110))
    instance = Instance(value, rng.uniform(0.8, 1.2, 110), np.arange(110), server, np.full(2, 2.7), 110)
    search = Search(*instance.rows, num_clients=110)
    search.begin_knapsacks()
    search.lift()
    optimum, _ = by_milp(instance)
    assert search.bound >= optimum
    assert optimum > 2 * np.sort(value)[-1] + 0.7  # server 1 has two clients


def test_all_clients_in_reach_of_many_servers():
    # Two or three clients a budget: the relaxation counts 10 % more than fit, and lifted shares 2 %.
    instance = table_one(2, num_clients=3000, num_servers=40)
    search = Search(*instance.rows, num_clients=3000)
    plain = search.bound
    search.begin_knapsacks()
    search.lift()
    assert search.bound < 0.94 * plain
    result = instance.solve(gap=0.005, node_limit=1_000_000)
    check_decision(instance, result.links)
    assert result.gap < 0.03
    # What is left of the nodes limits the steps on the decomposition bound.
    search = Search(*instance.rows, num_clients=3000, node_limit=40_000)
    search.begin_knapsacks()
    search.tighten(20)
    assert search.nodes < 40_000 / 4 + 40 * 3_001


def test_a_hopeless_search_ends_where_a_gap_will_do():
    # Two clients a budget: the relaxation counts half a client a server too many, and no search can close that.
    rng = np.random.default_rng(6)
    cost = np.repeat(rng.uniform(1.0, 1.3, 700), 8)
    client, server = np.repeat(np.arange(700), 8), np.tile(np.arange(8), 700)
    instance = Instance(1 - 1e-2 * rng.random(5600), cost, client, server, np.full(8, 3.2), 700)
    kept = []
    for options in ({"gap": 1e-4}, {"gap": 0.0}):
        search = Search(*instance.rows, num_clients=700, node_limit=1_500_000, **options)
        search.run()
        assert search.bound - search.total > search.gap * search.bound
        kept.append((search.nodes, search.total))
    (nodes, total), (all_nodes, all_total) = kept
    assert all_nodes >= 1_500_000  # negative control: asked for the optimum, it goes on until the nodes are gone
    assert nodes < 0.7 * all_nodes
    assert total > 0.997 * all_total


@pytest.mark.parametrize("bounding", [False, True])
def test_one_server_knapsack_for_any_price_and_window(bounding):
    # Prices and windows far from any sensible ones: the core is then counted, widened and cut in every order.
    table = np.empty((5, 1, CELLS))
    rng = np.random.default_rng(12)
    for turn in range(6000):
        count = int(rng.integers(0, 60) if turn % 4 == 0 else rng.integers(5, 11))
        share = rng.uniform(0, 1, count) * rng.choice([0.1, 0.3, 1.0])
        profit = rng.uniform(0.01, 1, count)
        price, half = 10 ** rng.uniform(-3, 1), 10 ** rng.uniform(-9, 1)
        picks = np.ones(count + 3, np.bool_)
        value, bound, following, _ = fill_server(
            share, profit, count, price, half, 1e-4 * price, 1.2 if bounding else 0.0, 200, table, picks
        )
        chosen = np.flatnonzero(picks[:count])
        assert share[chosen].sum() <= 1 + 1e-12
        assert value == pytest.approx(profit[chosen].sum(), abs=1e-12)
        assert following > 0
        # Any decision, e.g. the greedy one, keeps below the bound.
        room, greedy = 1.0, 0.0
        for j in np.argsort(-profit / np.maximum(share, 1e-12)):
            if share[j] <= room:
                room -= share[j]
                greedy += profit[j]
        assert max(value, greedy) <= bound * (1 + 1e-12) + 1e-12
        if 0 < count <= 14:
            single = Instance(profit, share, np.arange(count), np.zeros(count, int), [1.0], count)
            assert brute_force(single) <= bound * (1 + 1e-12) + 1e-12


def test_every_stage_bounds_and_stays_feasible():
    rng = np.random.default_rng(14)
    for turn in range(120):
        instance = random_instance(rng, KINDS[turn % len(KINDS)], max_clients=8)
        search = Search(*instance.rows, num_clients=instance.num_clients)
        if search.row.size == 0:
            continue
        optimum = brute_force(instance)
        search.begin_knapsacks()
        steps = (lambda: search.refill(2, 2), lambda: search.tighten(2), search.count_clients, search.lift)  # noqa: B023
        for which in rng.permutation(len(steps)):
            for _ in range(3):
                steps[which]()
            search.count_clients()
            assert search.upper_bound() >= optimum * (1 - 1e-10)
            check_decision(instance, search.rows())
            assert search.total == pytest.approx(search.links.value[search.chosen[search.chosen >= 0]].sum())


@st.composite
def instances(draw):
    num_clients = draw(st.integers(0, 8))
    num_servers = draw(st.integers(0, 4))
    size = draw(st.integers(0, 16)) if num_clients and num_servers else 0
    number = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 1e-9, 1e9]), st.floats(0, 4))

    def column(element):
        return draw(st.lists(element, min_size=size, max_size=size))

    return Instance(
        column(number),
        column(number),
        column(st.integers(0, max(num_clients - 1, 0))),
        column(st.integers(0, max(num_servers - 1, 0))),
        draw(st.lists(number, min_size=num_servers, max_size=num_servers)),
        num_clients,
    )


@settings(max_examples=250, deadline=None, derandomize=True)
@given(instances(), st.integers(0, 2**32 - 1))
def test_decisions_are_feasible_and_permutations_keep_the_value(instance, seed):
    result = instance.solve()
    check_decision(instance, result.links)
    assert (instance.value[result.links] > 0).all()
    rng = np.random.default_rng(seed)
    order = rng.permutation(instance.value.size)
    shuffled = Instance(*(column[order] for column in instance.rows[:4]), instance.budget, instance.num_clients)
    again = shuffled.solve(rng=rng)
    check_decision(shuffled, again.links)
    assert again.value == pytest.approx(result.value, rel=1e-9, abs=1e-12)
    assert result.value == pytest.approx(brute_force(instance), rel=1e-9, abs=1e-12)


def test_nothing_to_choose():
    for instance in (
        Instance([], [], [], [], [], 0),
        Instance([], [], [], [], [3.0, 1.0], 5),
        Instance([1.0], [2.0], [0], [0], [1.0], 1),
        Instance([0.0, 0.0], [1.0, 0.0], [0, 1], [0, 0], [9.0], 2),
        Instance([1.0], [1.0], [0], [0], [0.0], 1),
    ):
        result = instance.solve()
        assert result.links.size == 0
        assert result.links.dtype == np.int64
        assert (result.value, result.upper_bound, result.gap, result.is_optimal) == (0.0, 0.0, 0.0, True)


def test_budget_counts_as_kept_despite_rounding():
    # 0.1 + 0.2 > 0.3 in floating point.
    result = Instance([1.0, 1.0], [0.1, 0.2], [0, 1], [0, 0], [0.3], 2).solve()
    assert result.links.tolist() == [0, 1]
    result = Instance([1.0, 1.0], [0.1, 0.2001], [0, 1], [0, 0], [0.3], 2).solve()
    assert result.links.size == 1


def test_a_total_of_millions_of_steps_is_proved():
    result = Instance([1e6, 1.0, 3.0], [5.0, 6.0, 6.0], [0, 1, 2], [0, 0, 0], [7.0], 3).solve()
    assert (result.links.tolist(), result.upper_bound, result.is_optimal) == ([0], 1e6, True)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_units_do_not_matter(scale):
    instance = table_one(5, kind="uneven", per_link=True)
    plain = instance.solve()
    scaled = Instance(
        instance.value * scale, instance.cost / scale, instance.client, instance.server, instance.budget / scale, 50
    ).solve()
    assert scaled.is_optimal
    assert scaled.value == pytest.approx(plain.value * scale)


def _counts(rng, draws):
    """How often each of 12 identical clients is chosen by 3 servers that each hold one."""
    client = np.repeat(np.arange(12), 3)
    server = np.tile(np.arange(3), 12)
    counts = np.zeros((12, 3))
    for _ in range(draws):
        links = solve_assignment(np.ones(36), np.ones(36), client, server, np.ones(3), num_clients=12, rng=rng).links
        counts[client[links], server[links]] += 1
    return counts


def test_ties_are_even_with_rng_and_not_without():
    draws = 1500
    counts = _counts(np.random.default_rng(11), draws)
    expected = draws / 12
    statistic = ((counts - expected) ** 2 / expected).sum()
    # 36 cells, each server's row sum fixed: 33 degrees of freedom; 63.9 is the 99.9 % point.
    assert counts.sum() == 3 * draws
    assert statistic < 63.9
    # Negative control: the fixed order fails the same test.
    fixed = _counts(None, 50) * draws / 50
    assert ((fixed - expected) ** 2 / expected).sum() > 63.9


def counted(instance, **options):
    """As many links as possible."""
    ones = np.ones(instance.value.size)
    return solve_assignment(ones, *instance.rows[1:], num_clients=instance.num_clients, **options)


@pytest.mark.parametrize(
    ("size", "seed", "most"),
    [
        # All pairs in reach, two clients a budget: every server wants the same clients.
        ({"num_clients": 100, "num_servers": 10}, 2, 17),
        ({"num_clients": 100, "num_servers": 10}, 7, 18),
        # Eight or nine clients a budget, a cost for each link.
        ({"num_clients": 200, "num_servers": 5, "budget": 12.0, "per_link": True}, 6, 43),
        ({"num_clients": 200, "num_servers": 5, "budget": 12.0, "per_link": True}, 11, 47),
    ],
)
def test_counting_a_thousand_links_is_proven(size, seed, most):
    instance = table_one(seed, **size)
    result = counted(instance)
    check_decision(instance, result.links)
    assert result.is_optimal
    assert result.value == result.links.size == most  # as HiGHS says after seconds


GOOD = {
    "value": [0.5, 0.25, 0.75],
    "cost": [1.0, 2.0, 3.0],
    "client": [0, 1, 1],
    "server": [0, 0, 1],
    "budget": [3.0, 4.0],
    "num_clients": 2,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": [0.5, math.nan, 0.75]}, "value is nan at row 1"),
        ({"cost": [1.0, -2.0, 3.0]}, "cost is -2.0 at row 1"),
        ({"budget": [3.0, math.inf]}, "budget is inf at server 1"),
        ({"client": [0, 1, 2]}, "client is 2 at row 2"),
        ({"server": [0, -1, 1]}, "server is -1 at row 1"),
        ({"server": [0.0, 1.0, 1.0]}, "server has dtype float64"),
        ({"client": [0, 1]}, "3, 3, 2 and 3 rows"),
        ({"value": [[0.5, 0.25, 0.75]]}, "one dimension"),
        ({"num_clients": -1}, "num_clients is -1"),
        ({"gap": 1.5}, "gap is 1.5"),
        ({"node_limit": -1}, "node_limit is -1"),
    ],
)
def test_bad_input_says_what_and_where(change, message):
    with pytest.raises(InvalidInputError, match=message):
        solve_assignment(**GOOD | change)
