"""What policies for links with prices share: the automatic gap, and cohorts smaller than what the budgets pay for."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedroster.catalogue import make_policy
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import ProblemSpec
from fedroster.optimization.assignment import solve_assignment
from fedroster.optimization.budgeted import Choices, ExactOptions, choices_of, gap_for
from fedroster.policies.cocs import COCS
from priced import priced_context

WITH_GAP = ("cocs", "oracle", "oracle-p", "cucb-pairs", "linucb-pairs", "partial-pooling")


def a_round(num_clients, num_servers, *, seed=0):
    """Every client in reach of all servers, about 8 of them within a budget."""
    rng = np.random.default_rng(seed)
    client = np.repeat(np.arange(num_clients), num_servers)
    features, cost = rng.random((client.shape[0], 2)), np.repeat(rng.uniform(4.0, 30.0, num_clients), num_servers)
    server, budget = np.tile(np.arange(num_servers), num_clients), [50.0] * num_servers
    return priced_context(cost, client, server, budget, features=features, size=num_clients)


def test_the_gap_grows_with_the_number_of_choices():
    gaps = {0: 0.0, 1000: 0.0, 1001: 0.0025, 50_001: 0.005, 250_001: 0.01, 10**9: 0.01}
    assert {number: gap_for(number, None) for number in gaps} == gaps
    assert gap_for(10**9, 0.0) == 0.0
    assert gap_for(0, 0.03) == 0.03


class TestBestLinks:
    def test_few_choices_are_solved_to_the_optimum(self):
        choices = choices_of(a_round(100, 3))
        value = np.random.default_rng(1).random(choices.rows.shape[0])
        default, exact, rough = (
            ExactOptions(**given).best_links(choices, value, rng=np.random.default_rng(0))
            for given in ({}, {"gap": 0.0}, {"gap": 0.3})
        )
        assert default[1] == exact[1] == 0.0
        assert_array_equal(default[0], exact[0])
        assert rough[1] > 0.0  # negative control: here a gap tells

    def test_many_choices_are_solved_to_a_proven_gap(self):
        choices = choices_of(a_round(1000, 10))
        value = np.random.default_rng(1).random(choices.rows.shape[0])
        default, exact = (
            ExactOptions(node_limit=300_000, gap=gap).best_links(choices, value, rng=np.random.default_rng(0))
            for gap in (None, 0.0)
        )
        assert 0.0 < default[1] <= gap_for(choices.rows.shape[0], None)
        assert exact[1] < default[1]
        assert value[default[0]].sum() >= (1.0 - default[1]) * value[exact[0]].sum()


class TestPolicies:
    @pytest.mark.parametrize("name", WITH_GAP)
    def test_by_text(self, name):
        assert make_policy(name).gap is None
        assert make_policy(f"{name}:gap=auto").gap is None
        assert make_policy(f"{name}:gap=0.001").gap == 0.001
        with pytest.raises(ConfigurationError, match="gap is 'much'; expected a number or auto"):
            make_policy(f"{name}:gap=much")

    @pytest.mark.parametrize(
        ("num_clients", "given", "asked"), [(100, None, 0.0), (400, None, 0.0025), (400, 0.1, 0.1)]
    )
    def test_exploration_has_the_same_gap(self, num_clients, given, asked, monkeypatch):
        seen = []

        def spy(*args, gap, **options):
            seen.append(gap)
            return solve_assignment(*args, gap=gap, **options)

        monkeypatch.setattr("fedroster.optimization.budgeted.solve_assignment", spy)
        policy = COCS(gap=given)
        state = policy.init(ProblemSpec(num_clients, num_clients, 2, 6), rng=np.random.default_rng(0))
        policy.select(state, a_round(num_clients, 6), rng=np.random.default_rng(0))
        assert seen == [asked]


def best_by_hand(choices, value):
    """The optimum under budgets, one server a client, and the cohort size, by trying everything."""
    clients = np.unique(choices.client)
    options = [[-1, *np.flatnonzero(choices.client == n)] for n in clients]
    best = 0.0
    for pick in product(*options):
        links = np.array([i for i in pick if i >= 0], np.int64)
        spent = np.bincount(choices.purse[links], choices.cost[links], minlength=choices.budget.shape[0])
        if links.shape[0] <= choices.cohort_size and (spent <= choices.budget + 1e-12).all():
            best = max(best, float(value[links].sum()))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_optimum_and_proven_gap(seed):
    rng = np.random.default_rng(seed)
    for _ in range(8):
        client, server = np.repeat(np.arange(5), 2), np.tile(np.arange(2), 5)
        cost, budget = rng.choice([0.2, 0.3, 1.5, 2.0], 10), np.array([2.0, 3.0])
        value = rng.exponential(1.0, 10) * cost * (rng.random(10) < 0.9)  # costly ones are worth more, some nothing
        choices = Choices(np.arange(10), client, server, cost, server, budget, int(rng.integers(1, 4)), 5)
        links, gap = ExactOptions().best_links(choices, value, rng=rng)
        assert links.shape[0] <= choices.cohort_size
        assert value[links].all()
        assert np.unique(client[links]).shape[0] == links.shape[0]
        assert (np.bincount(server[links], cost[links], minlength=2) <= budget + 1e-9).all()
        worth, best = float(value[links].sum()), best_by_hand(choices, value)
        assert (1.0 - gap) * best <= worth * (1 + 1e-9)
        assert worth >= 0.9 * best


def test_a_place_that_is_left_stays_empty_rather_than_be_worth_nothing():
    """Two places: a costly client alone is worth more than two of three cheap ones; the last one is worth nothing."""
    cost, purse = np.array([2.0, 0.6, 0.6, 0.6, 0.5]), np.array([0, 0, 0, 0, 1])
    choices = Choices(np.arange(5), np.arange(5), purse, cost, purse, np.array([2.0, 1.0]), 2, 5)
    links, gap = ExactOptions().best_links(choices, np.array([10.0, 4.0, 4.0, 4.0, 0.0]), rng=np.random.default_rng(0))
    assert_array_equal(links, [0])
    assert gap < 0.2


@pytest.mark.parametrize("seed", range(6))
def test_most_links_then_the_best_beside_them(seed):
    """The two stages of COCS's exploration, each against trying everything."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        client, server = np.repeat(np.arange(5), 2), np.tile(np.arange(2), 5)
        cost, value, under = rng.uniform(0.3, 1.5, 10), rng.random(10), rng.random(10) < 0.4
        choices = Choices(np.arange(10), client, server, cost, server, np.array([1.5, 2.0]), int(rng.integers(2, 6)), 5)
        rows = np.flatnonzero(under)
        part = choices.part(rows)
        found, gap = ExactOptions().most_links(part, rng=rng)
        assert gap == 0.0
        assert found.shape[0] == round(best_by_hand(part, np.ones(rows.shape[0])))
        first = rows[found]
        rest, left = choices.beside(first, ~under)
        second, gap = ExactOptions().best_links(left, value[rest], rng=rng)
        links = np.concatenate((first, rest[second]))
        assert np.unique(client[links]).shape[0] == links.shape[0] <= choices.cohort_size
        assert not under[rest].any()
        assert (np.bincount(server[links], cost[links], minlength=2) <= choices.budget + 1e-9).all()
        best = best_by_hand(left, value[rest])
        assert (1.0 - gap) * best - 1e-9 <= value[rest[second]].sum() <= best + 1e-9


def test_no_more_links_than_a_cohort_are_missed():
    rng = np.random.default_rng(18)
    client, server = np.repeat(np.arange(30), 3), np.tile(np.arange(3), 30)
    cost = np.repeat(rng.uniform(0.3, 0.5, 30), 3)
    gaps = {}
    for size in (30, 9, 8):
        choices = Choices(np.arange(90), client, server, cost, server, np.ones(3), size, 30)
        found, gaps[size] = ExactOptions(node_limit=1).most_links(choices, rng=np.random.default_rng(0))
        assert found.shape == (8,)
    assert gaps == {30: 1 / 9, 9: 1 / 9, 8: 0.0}
