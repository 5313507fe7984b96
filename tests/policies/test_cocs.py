import dataclasses
import math

import numpy as np
import pytest

from fedroster.bounds import cocs_regret
from fedroster.core.errors import ConfigurationError
from fedroster.estimation.hypercubes import estimates, look_up
from fedroster.networks.hierarchical import HierarchicalCifar10, HierarchicalNetwork
from fedroster.policies.cocs import COCS
from fedroster.simulation import simulate
from fedroster.types import ProblemSpec, Selection, Status, Streams
from priced import priced_context
from rounds import report


def make_context(features, cost, *, client=None, server=None, budget=(3.5,), number=2):
    size = len(cost)
    client = np.arange(size) if client is None else client
    server = np.zeros(size, np.int64) if server is None else server
    return priced_context(cost, client, server, budget, features=features, number=number)


def learn(policy, state, context, links, in_time):
    """Play ``links`` with the given results."""
    links = np.asarray(links, np.int64)
    state = policy.commit(state, context, Selection(context.round, links))
    status = np.where(in_time, Status.COMPLETED, Status.LATE)
    where = {"features": context.features[links], "server": context.server[links]}
    return policy.update(state, report(context.client[links], round=context.round, status=status, **where))


def start(policy, num_clients=4, num_servers=1, num_features=1):
    spec = ProblemSpec(num_clients, num_clients, num_features, num_servers)
    return policy.init(spec, rng=Streams(0).at("policy-init"))


def rng(seed=0):
    return Streams(seed).at("policy", 1)


def explores(policy, state, context):
    """Whether a round with these links explores."""
    nothing = Selection(context.round, np.zeros(0, np.int64))
    return policy.commit(state, context, nothing).exploring_rounds > state.exploring_rounds


class TestAlgorithm1:
    def test_case_i_takes_as_many_under_explored_links_as_possible(self):
        policy = COCS(h_T=2)
        context = make_context([[0.1], [0.2], [0.6], [0.9]], [3.0, 1.0, 1.5, 1.0])
        state = start(policy)
        decision = policy.select(state, context, rng=rng())
        assert decision.links.tolist() == [1, 2, 3]
        assert decision.gap == 0.0
        assert policy.commit(state, context, decision).exploring_links == 3

    def test_case_ii_explores_first_and_fills_with_the_best_estimates(self):
        policy = COCS(h_T=1, scale=0.0)
        state = start(policy)
        context = make_context([[0.5]] * 4, [1.0, 1.0, 1.0, 1.0], budget=[2.0])
        for in_time in ([True, False, True], [True, True, False], [True, False, False]):
            state = learn(policy, state, context, [0, 1, 2], in_time)
        decision = policy.select(state, context, rng=rng())
        assert decision.links.tolist() == [0, 3]
        assert policy.commit(state, context, decision).exploring_links == state.exploring_links + 1

    def test_exploitation_takes_the_best_estimates_under_one_server_each(self):
        policy = COCS(h_T=1, scale=0.0)
        context = make_context([[0.5]] * 4, [1.0] * 4, client=[0, 0, 1, 1], server=[0, 1, 0, 1], budget=[1.0, 1.0])
        state = start(policy, num_servers=2)
        for links, in_time in (([0], [True]), ([1], [True]), ([0], [False]), ([2], [True]), ([3], [False])):
            state = learn(policy, state, context, links, in_time)
        assert not explores(policy, state, context)
        decision = policy.select(state, context, rng=rng())
        assert decision.links.tolist() == [1, 2]  # 1 + 1 beats 1/2 + 0

    def test_the_control_function_decides_what_is_under_explored(self):
        policy = COCS(h_T=1, scale=1.0)
        context = make_context([[0.5]], [1.0], number=10)
        threshold = policy.control_at(10)
        assert threshold == pytest.approx(10**0.4 * math.log(10))
        state = start(policy, num_clients=1)
        explored = []
        for _ in range(math.ceil(threshold) + 1):
            explored.append(explores(policy, state, context))
            state = learn(policy, state, context, [0], [True])
        assert explored == [True] * math.ceil(threshold) + [False]

    def test_contexts_land_in_their_own_hypercube(self):
        policy = COCS(h_T=2, scale=0.0)
        here, there = make_context([[0.1]], [1.0]), make_context([[0.9]], [1.0])
        state = learn(policy, start(policy, num_clients=1), here, [0], [True])
        assert not explores(policy, state, here)
        assert explores(policy, state, there)

    @pytest.mark.parametrize("status", [Status.LATE, Status.DROPPED, Status.FAILED, None])
    def test_all_that_is_not_in_time_counts_as_a_failure(self, status):
        policy = COCS(h_T=1)
        context = make_context([[0.5]], [1.0])
        state = policy.commit(start(policy, num_clients=1), context, Selection(2, np.array([0])))
        if status is not None:
            told = {"features": context.features, "server": [0]}
            time_s = [9.0 if status is Status.LATE else np.nan]
            state = policy.update(state, report([0], round=2, status=[status], time_s=time_s, **told))
        assert look_up(state.cells, np.array([0]), None, np.array([0])) == (1, 0)

    def test_a_link_beyond_every_budget_is_never_explored(self):
        policy = COCS(h_T=1, scale=0.0)
        context = make_context([[0.5], [0.5]], [1.0, 9.0])
        state = learn(policy, start(policy), context, [0], [True])
        assert not explores(policy, state, context)

    def test_both_utilities_decide_alike_with_the_exact_solver(self):
        network = HierarchicalCifar10(num_clients=15)
        runs = [
            [r.selection.links.tolist() for r in simulate(COCS(scale=0.0, utility=u), network, rounds=40, seed=1)]
            for u in ("linear", "square-root")
        ]
        assert runs[0] == runs[1]

    def test_fast_lazy_greedy_reaches_its_share(self):
        network = HierarchicalCifar10(num_clients=15)
        policy = COCS(scale=0.0, h_T=1, solver="fast-lazy-greedy", utility="square-root")
        exploited = 0
        state = policy.init(network.spec, rng=rng())
        for r in simulate(policy, network, rounds=60, seed=1):
            if not explores(policy, state, r.context):
                exploited += 1
                decision = policy.select(state, r.context, rng=Streams(1).at("policy", r.number))
                best = COCS(scale=0.0, h_T=1).select(state, r.context, rng=rng())
                cell = np.zeros(r.context.num_links, np.int64)
                p = estimates(*look_up(state.cells, r.context.client, r.context.server, cell))
                share = math.sqrt(p[decision.links].sum()) / math.sqrt(p[best.links].sum())
                assert share >= 1.0 / (1.3 * 8.0)  # Lemma 3
            state = r.policy_state
        assert exploited


class TestExploreShare:
    def test_counts_rounds_and_links(self):
        policy = COCS(h_T=1, scale=0.0)
        context = make_context([[0.5]] * 2, [1.0, 1.0], budget=[2.0])
        state = start(policy)
        assert state.explore_share == 0.0
        for number, share in ((1, 1.0), (2, 0.5), (3, 1 / 3)):
            state = learn(policy, state, dataclasses.replace(context, round=number), [0, 1], [True, True])
            assert state.explore_share == pytest.approx(share)
        assert (state.chosen_links, state.exploring_links) == (6, 2)

    def test_an_empty_round_does_not_count(self):
        policy = COCS()
        context = make_context(np.zeros((0, 1)), [])
        state = policy.commit(start(policy), context, Selection(2, np.zeros(0, np.int64)))
        assert state.rounds == 0


class TestRegretBound:
    known = {"num_clients": 50, "num_servers": 3, "budget": 3.5, "least_cost": 1.0, "holder_constant": 1.0}

    def test_by_hand(self):
        # alpha = 1: exponents 4/5 and 2/5; B / c = 2, so 3 + 3 decisions; L 2^(1/2) = sqrt(2).
        found = cocs_regret(32, num_clients=3, num_servers=2, budget=2.0, least_cost=1.0, holder_constant=1.0)
        root = math.sqrt(2.0)
        explore = 4 * 9 * 2 * 2 * (16 * math.log(32) + 4)
        exploit = 3 * 2 * 2 * (6 * math.pi**2 / 3 + (3 * root + (2 + root) / 0.8) * 16)
        assert found == pytest.approx(explore + exploit)

    def test_grows_with_the_approximation(self):
        share = 1.0 / (1.3 * 8.0)  # Lemma 3
        approximate = cocs_regret(1000, approximation=share, **self.known)
        assert approximate == pytest.approx(cocs_regret(1000, **self.known) / share)

    def test_rounding_costs_no_client(self):
        less, whole = {"budget": 0.3, "least_cost": 0.1}, {"budget": 3.0}  # 0.3 / 0.1 is less than 3
        assert cocs_regret(9, **(self.known | less)) == pytest.approx(cocs_regret(9, **(self.known | whole)))

    @pytest.mark.parametrize("large", [{"budget": 1e200, "least_cost": 1e-200}, {"num_clients": 10**5, "budget": 1e4}])
    def test_overflow_is_infinite(self, large):
        assert cocs_regret(10, **(self.known | large)) == math.inf

    def test_bad_arguments(self):
        for name, value in (("least_cost", 0.0), ("approximation", 0.0), ("num_clients", 0), ("holder", 0.0)):
            with pytest.raises(ConfigurationError, match=name):
                cocs_regret(10, **(self.known | {name: value}))


class TestBadInput:
    def test_bounds_that_do_not_fit(self):
        with pytest.raises(ConfigurationError, match="2 features"):
            COCS(low=(0.0,) * 2, high=(1.0,) * 2).check(ProblemSpec(5, 5, 3))

    def test_a_partition_without_end(self):
        with pytest.raises(ConfigurationError, match="2\\^62"):
            COCS().check(ProblemSpec(50, 50, 40, 3))

    def test_parameters_are_derived_or_set(self):
        assert COCS().intervals == 5
        assert COCS(h_T=0).intervals == 4
        assert COCS(h_T=0, horizon=1880).intervals == 5
        assert COCS().control_at(1000) == pytest.approx(109.48, abs=0.01)
        assert COCS(z=0.5).control_at(100) == pytest.approx(10 * math.log(100))


def test_a_cohort_that_is_cut_explores_as_many_as_it_may():
    policy = COCS()
    network = HierarchicalNetwork()
    for cohort_size, full in ((50, False), (2, True)):
        state = policy.init(dataclasses.replace(network.spec, cohort_size=cohort_size), rng=np.random.default_rng(0))
        context, _ = network.observe(network.init(rng=np.random.default_rng(0)), 1, rng=np.random.default_rng(0))
        context = dataclasses.replace(context, cohort_size=cohort_size)
        selection = policy.select(state, context, rng=np.random.default_rng(0))
        assert (selection.links.size == cohort_size) == full
        assert selection.gap == 0.0
