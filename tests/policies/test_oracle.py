import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.core.problem import Outcome, ProblemSpec, check_selection
from fedroster.core.streams import Streams
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.optimization.budgeted import Choices
from fedroster.policies.cocs import COCS
from fedroster.policies.cucb import CUCB, CUCBPairs
from fedroster.policies.linucb import LinUCB, LinUCBPairs
from fedroster.policies.oracle import Oracle, OracleP
from fedroster.policies.uniform import Uniform
from fedroster.simulation import simulate
from priced import priced_context

EVERY = [
    COCS(),
    COCS(scale=0.0, solver="fast-lazy-greedy", utility="square-root"),
    Oracle(),
    Oracle(solver="fast-lazy-greedy"),
    OracleP(),
    Uniform(),
    CUCB(pool_size=5),
    LinUCB(pool_size=5),
    CUCBPairs(),
    LinUCBPairs(),
]
NAMES = [f"{type(policy).__name__}-{number}" for number, policy in enumerate(EVERY)]


def priced(cost, client, server, budget, *, x=None, p=None, features=None, number=1, available=None):
    size = len(cost)
    context = priced_context(cost, client, server, budget, features=features, number=number, available=available)
    in_time = np.ones(size, np.bool_) if x is None else np.asarray(x, np.bool_)
    outcome = Outcome(
        exchange_time_s=np.where(in_time, 1.0, 3.0),
        expected_time_s=np.full(size, np.inf),
        expected_upload_s=np.zeros(size),
        responds=np.ones(size, np.bool_),
        deadline_s=2.0,
        participation_probability=lambda: np.full(size, 0.5) if p is None else np.asarray(p, np.float64),
    )
    return context, outcome


def decide(policy, context, outcome=None, *, num_clients=8, num_servers=3, seed=0):
    spec = ProblemSpec(num_clients, num_clients, context.features.shape[1], num_servers)
    policy.check(spec)
    state = policy.init(spec, rng=Streams(seed).at("policy-init"))
    known = context.with_truth(outcome) if policy.omniscient else context
    selection = policy.select(state, known, rng=Streams(seed).at("policy", context.round))
    check_selection(selection, context, fills_cohort=policy.fills_cohort)
    return selection


def best_by_brute_force(value, cost, client, server, budget):
    best = 0.0
    for size in range(len(value) + 1):
        for links in map(list, itertools.combinations(range(len(value)), size)):
            spent = np.bincount(server[links], weights=cost[links], minlength=len(budget))
            if len(set(client[links].tolist())) == size and (spent <= budget * (1 + 1e-12)).all():
                best = max(best, value[links].sum())
    return best


class TestOracles:
    @given(st.integers(0, 10_000))
    def test_optimal_by_brute_force(self, seed):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(1, 9))
        client, server = rng.integers(0, 5, size), rng.integers(0, 2, size)
        cost, p = rng.uniform(0, 2, size).round(1), rng.random(size)
        budget = rng.uniform(0, 3, 2).round(1)
        context, outcome = priced(cost, client, server, budget, x=rng.random(size) < p, p=p)
        for policy, value in ((Oracle(), outcome.in_time.astype(float)), (OracleP(), p)):
            links = decide(policy, context, outcome).links
            assert value[links].sum() == pytest.approx(best_by_brute_force(value, cost, client, server, budget))

    def test_oracle_p_needs_probabilities(self):
        context, outcome = priced([1.0] * 3, range(3), [0] * 3, [2.0])
        with pytest.raises(ConfigurationError, match="participation probabilities"):
            decide(OracleP(), context, dataclasses.replace(outcome, participation_probability=None))

    def test_ties_are_broken_by_the_generator(self):
        context, outcome = priced([1.0] * 6, range(6), [0] * 6, [2.0])
        chosen = np.bincount(
            np.concatenate([decide(Oracle(), context, outcome, seed=seed).links for seed in range(600)]), minlength=6
        )
        np.testing.assert_allclose(chosen, 200, atol=4.5 * np.sqrt(600 * 2 / 9))


class TestUniform:
    def test_every_link_is_first_equally_often(self):
        context, _ = priced([2.0] * 6, [0, 0, 1, 1, 2, 2], [0, 1] * 3, [2.0, 0.0])
        chosen = [decide(Uniform(), context, seed=seed).links.tolist() for seed in range(900)]
        assert all(len(links) == 1 for links in chosen)
        counts = np.bincount(np.ravel(chosen), minlength=6)
        np.testing.assert_allclose(counts[[0, 2, 4]], 300, atol=4.5 * np.sqrt(900 * 2 / 9))

    def test_no_link_could_be_added(self):
        for r in simulate(Uniform(), HierarchicalNetwork(), rounds=20, seed=0):
            context, links = r.context, r.selection.links
            left = context.budget - np.bincount(context.server[links], weights=context.cost[links], minlength=3)
            free = ~np.isin(context.client, context.client[links])
            assert not (free & (context.cost <= left[context.server])).any()


links_of_a_round = st.lists(
    st.tuples(
        st.integers(0, 7),  # client
        st.integers(0, 2),  # server
        st.sampled_from([0.0, 0.1, 0.3, 1.0, 1.7, 5.0]),  # cost
        st.booleans(),  # available
        st.floats(0, 1),  # probability
    ),
    max_size=24,
)
budgets = st.lists(st.sampled_from([0.0, 0.3, 1.0, 3.0, 3.5]), min_size=3, max_size=3)


@pytest.mark.parametrize("policy", EVERY, ids=NAMES)
class TestHardConstraints:
    @settings(max_examples=30)
    @given(st.lists(st.tuples(links_of_a_round, budgets), min_size=1, max_size=4))
    def test_decisions_keep_budgets_coverage_and_one_server_each(self, policy, rounds):
        spec = ProblemSpec(8, 8, 2, 3)
        state = policy.init(spec, rng=Streams(0).at("policy-init"))
        for number, (links, budget) in enumerate(rounds, start=1):
            client, server, cost, available, p = zip(*links, strict=True) if links else ((),) * 5
            context, outcome = priced(
                cost,
                client,
                server,
                budget,
                x=np.array(p) > 0.5,
                p=p,
                number=number,
                available=np.array(available, np.bool_),
                features=np.random.default_rng(number).random((len(cost), 2)),
            )
            known = context.with_truth(outcome) if policy.omniscient else context
            selection = policy.select(state, known, rng=Streams(0).at("policy", number))
            check_selection(selection, context, fills_cohort=False)
            state = policy.update(policy.commit(state, context, selection), outcome.reveal(context, selection))

    def test_a_cost_is_counted_once(self, policy):
        # Both fit exactly; were a cost counted twice, one would be left out.
        context, outcome = priced([1.0, 2.5], [0, 1], [0, 0], [3.5], p=[0.9, 0.9])
        may_stop_early = getattr(policy, "solver", "exact") == "fast-lazy-greedy"
        assert decide(policy, context, outcome).links.size in ((0, 1, 2) if may_stop_early else (2,))
        costly, truth = priced([1.0, 2.6], [0, 1], [0, 0], [3.5], p=[0.9, 0.9])
        assert decide(policy, costly, truth).links.size <= 1

    @pytest.mark.parametrize(
        ("cost", "budget", "most"), [(0.0, 0.0, 6), (9.0, np.inf, 6), (0.1, 3.5, 2)], ids=["free", "infinite", "two"]
    )
    def test_what_costs_nothing_beside_the_budget_is_taken_up_to_a_cohort(self, policy, cost, budget, most):
        context, outcome = priced([cost] * 6, range(6), [0, 1] * 3, [budget] * 3)
        assert decide(policy, dataclasses.replace(context, cohort_size=most), outcome).links.size == most

    @pytest.mark.parametrize("cost", [np.nan, -1.0, np.inf])
    def test_malformed_prices_are_refused_with_their_row(self, policy, cost):
        context, outcome = priced([1.0, cost], [0, 1], [0, 1], [3.5] * 3)
        with pytest.raises(InvalidInputError, match="cost of row 1"):
            decide(policy, context, outcome)
        unused = dataclasses.replace(context, available=np.array([True, False]))
        assert decide(policy, unused, outcome).links.tolist() == [0]

    @pytest.mark.parametrize("budget", [[np.nan] * 3, [-1.0] * 3, [3.5]])
    def test_malformed_budgets_are_refused(self, policy, budget):
        context, outcome = priced([1.0, 1.0], [0, 1], [0, 1], budget)
        with pytest.raises(InvalidInputError, match="budget"):
            decide(policy, context, outcome)


def test_a_search_that_stops_early_says_how_much_may_be_missing():
    rng = np.random.default_rng(0)
    client, server = np.repeat(np.arange(200), 5), np.tile(np.arange(5), 200)
    cost, value = np.repeat(rng.uniform(1, 8, 200), 5), rng.uniform(0.5, 1.0, 1000)
    choices = Choices(np.arange(1000), client, server, cost, server, np.full(5, 30.0), 200, 200)
    early, gap = Oracle(node_limit=1).best_links(choices, value, rng=np.random.default_rng(1))
    best, proven = Oracle().best_links(choices, value, rng=np.random.default_rng(1))
    assert 0.0 <= proven < gap < 0.05
    assert value[early].sum() <= value[best].sum() <= value[early].sum() / (1.0 - gap) * (1 + 1e-9)
