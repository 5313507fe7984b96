"""Instances of the assignment problem P2 for tests, two independent solvers, and checks of what is decided."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix, vstack

from fedroster.core.compiled import njit
from fedroster.optimization.assignment import AssignmentResult, solve_assignment
from fedroster.optimization.assignment.solve import Search

TIGHT = 1e-9


class Instance:
    """Rows of links, budgets, number of clients."""

    def __init__(self, value, cost, client, server, budget, num_clients):
        self.value = np.asarray(value, dtype=np.float64)
        self.cost = np.asarray(cost, dtype=np.float64)
        self.client = np.asarray(client, dtype=np.int64)
        self.server = np.asarray(server, dtype=np.int64)
        self.budget = np.asarray(budget, dtype=np.float64)
        self.num_clients = num_clients

    @property
    def rows(self):
        return self.value, self.cost, self.client, self.server, self.budget

    def solve(self, **options) -> AssignmentResult:
        return solve_assignment(*self.rows, num_clients=self.num_clients, **options)


def random_instance(rng, kind, max_clients=6, max_servers=3) -> Instance:
    """Small instances of every awkward kind; reach, budgets and numbers of rows vary."""
    num_clients = int(rng.integers(1, max_clients + 1))
    num_servers = int(rng.integers(1, max_servers + 1))
    pairs = np.array(list(itertools.product(range(num_clients), range(num_servers))))
    pairs = pairs[rng.random(len(pairs)) < rng.choice([0.4, 0.8, 1.0])]
    pairs = rng.permutation(pairs)
    size = len(pairs)
    if kind == "continuous":
        value, cost = rng.random(size), rng.uniform(0.1, 2, size)
    elif kind == "ties":
        value, cost = rng.integers(0, 4, size) / 3, rng.integers(0, 4, size).astype(float)
    elif kind == "binary":
        value, cost = rng.integers(0, 2, size).astype(float), rng.uniform(0, 2, size)
    elif kind == "free":
        value, cost = rng.random(size), rng.uniform(0, 2, size) * (rng.random(size) < 0.5)
    elif kind in ("client-cost", "alike"):
        value = rng.random(size) if kind == "client-cost" else 1 - 1e-3 * rng.random(size)
        cost = rng.uniform(0.5, 2, num_clients)[pairs[:, 0]] if size else np.empty(0)
    elif kind == "duplicates":
        pairs = np.concatenate([pairs, pairs[: size // 2]])
        size = len(pairs)
        value, cost = rng.integers(1, 5, size) / 4, rng.integers(1, 5, size) / 4
    else:
        raise AssertionError(kind)
    budget = rng.choice([0.0, 1.0, 2.0, 3.5], num_servers) * (
        1 if kind == "ties" else rng.uniform(0.5, 1.5, num_servers)
    )
    return Instance(value, cost, pairs[:, 0], pairs[:, 1], budget, num_clients + int(rng.integers(0, 2)))


KINDS = ["continuous", "ties", "binary", "free", "client-cost", "alike", "duplicates"]


def searches(seed, kind, number, **most):
    """Random instances of a kind in which there is something to choose: each with its search, and the generator."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        instance = random_instance(rng, kind, **most)
        search = Search(*instance.rows, num_clients=instance.num_clients)
        if search.row.size:
            yield instance, search, rng


@njit(cache=True)
def _enumerate(order_first, order, value, cost, server, left, n):
    if n == order_first.size - 1:
        return 0.0
    best = _enumerate(order_first, order, value, cost, server, left, n + 1)
    for i in range(order_first[n], order_first[n + 1]):
        j = order[i]
        m = server[j]
        if cost[j] <= left[m]:
            before = left[m]
            left[m] -= cost[j]
            best = max(best, value[j] + _enumerate(order_first, order, value, cost, server, left, n + 1))
            left[m] = before
    return best


def brute_force(instance: Instance, value=None) -> float:
    order = np.argsort(instance.client, kind="stable")
    first = np.searchsorted(instance.client[order], np.arange(instance.num_clients + 1))
    value = instance.value if value is None else value
    return float(_enumerate(first, order, value, instance.cost, instance.server, instance.budget * (1 + 1e-12), 0))


def check_decision(instance: Instance, links) -> None:
    links = np.asarray(links)
    assert np.array_equal(links, np.unique(links))
    assert np.unique(instance.client[links]).size == links.size
    for m, budget in enumerate(instance.budget):
        spent = math.fsum(instance.cost[links[instance.server[links] == m]])
        assert spent <= budget * (1 + 1e-12)


def check_certificate(instance: Instance, result: AssignmentResult, optimum: float) -> None:
    check_decision(instance, result.links)
    assert result.value == pytest.approx(math.fsum(instance.value[result.links]), rel=1e-12, abs=0)
    assert result.upper_bound >= optimum * (1 - 1e-10)
    assert result.value <= optimum * (1 + 1e-10)
    assert 0 <= result.gap <= 1
    if result.upper_bound > 0:
        assert result.gap == pytest.approx((result.upper_bound - result.value) / result.upper_bound)
    if result.is_optimal:
        assert result.value == pytest.approx(optimum, rel=TIGHT, abs=1e-12)


def table_one(seed, *, num_clients=50, num_servers=3, cifar=False, budget=None, kind="probability", per_link=False):
    """Table I's prices and costs (Choices B2, B3) with values that fall with the distance."""
    rng = np.random.default_rng(seed)
    low, high, default = (8, 15, 40.0) if cifar else (2, 4, 3.5)
    cost = rng.uniform(0.5, 2, num_clients) * rng.uniform(low, high, num_clients)
    client = np.repeat(np.arange(num_clients), num_servers)
    server = np.tile(np.arange(num_servers), num_clients)
    distance = 2 * (1 - rng.random(client.size))
    value = np.exp(-(distance**2)) if kind == "uneven" else 1 / (1 + np.exp(4 * (distance - 1.5)))
    if kind == "realised":
        value = (rng.random(client.size) < value).astype(float)
    elif kind == "ratios":
        seen = rng.integers(1, 10, client.size)
        value = rng.binomial(seen, value) / seen
    cost = cost[client]
    if per_link:
        cost = cost * rng.uniform(0.6, 1.4, client.size)
    budgets = np.full(num_servers, default if budget is None else budget)
    return Instance(value, cost, client, server, budgets, num_clients)


def by_milp(instance: Instance, time_limit_s=20.0) -> tuple[float, float]:
    """(value, bound) by scipy's HiGHS."""
    size = instance.value.size
    rows = np.arange(size)
    ones = np.ones(size)
    matrix = vstack(
        [
            csr_matrix((instance.cost, (instance.server, rows)), shape=(instance.budget.size, size)),
            csr_matrix((ones, (instance.client, rows)), shape=(instance.num_clients, size)),
        ]
    )
    upper = np.concatenate([instance.budget, np.ones(instance.num_clients)])
    usable = (instance.cost <= instance.budget[instance.server]).astype(float)
    found = milp(
        -instance.value,
        constraints=LinearConstraint(matrix.tocsr(), -np.inf, upper),
        integrality=ones,
        bounds=Bounds(0, usable),
        options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
    )
    return -found.fun, -found.mip_dual_bound
