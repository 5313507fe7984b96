import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedroster import EdgeSelector
from fedroster.bounds import debt_bound, feasible_rates
from fedroster.core.errors import InfeasibleError
from fedroster.core.problem import ProblemSpec, RoundContext, Selection, Status
from fedroster.networks.hierarchical import GeometricMnist, HierarchicalCifar10, HierarchicalNetwork
from fedroster.optimization.budgeted import choices_of
from fedroster.policies.cocs import COCS
from fedroster.policies.oracle import OracleP
from fedroster.policies.partial_pooling import PartialPooling
from fedroster.simulation import simulate
from priced import priced_context
from rounds import report


def expected_utility(policy, network, num_rounds, seed=0):
    """Probabilities of what was chosen, summed: the utility without the noise of single updates."""
    total = 0.0
    for r in simulate(policy, network, rounds=num_rounds, seed=seed):
        total += float(r.outcome.participation_probability()[r.selection.links].sum())
    return total


class TestUtility:
    @pytest.mark.parametrize(
        "network",
        [HierarchicalNetwork(), HierarchicalCifar10(static_resources=True), GeometricMnist()],
        ids=["mnist", "static", "moving"],
    )
    def test_close_to_the_oracle_within_two_hundred_rounds(self, network):
        best = expected_utility(OracleP(), network, 200)
        assert expected_utility(PartialPooling(), network, 200) > 0.95 * best
        assert expected_utility(COCS(), network, 200) < 0.95 * best  # the negative control


class Ledger:
    """Who could be chosen and who was, in every round so far."""

    def __init__(self, num_clients):
        self.reached, self.served = np.zeros(num_clients), np.zeros(num_clients)

    def add(self, played):
        self.reached[np.unique(choices_of(played.context).client)] += 1
        self.served[played.context.client[played.selection.links]] += 1


class TestRates:
    @pytest.mark.parametrize(
        ("network", "V"), [(HierarchicalCifar10(), 5.0), (GeometricMnist(), 20.0)], ids=["printed", "moving"]
    )
    def test_promised_on_every_path(self, network, V):
        policy, ledger = PartialPooling(beta=0.05, V=V), Ledger(50)
        most, feasible = 0, True
        for played in simulate(policy, network, rounds=200, seed=1):
            ledger.add(played)
            most = max(most, played.selection.links.size)
            feasible = feasible and (played.number % 10 > 0 or feasible_rates(played.context)[0] >= 0.05)
            queue = played.policy_state.backlog
            assert (ledger.served >= 0.05 * ledger.reached - queue - 1e-6).all()
            assert queue.max() <= debt_bound(played.number, num_clients=50, cohort=most, beta=0.05, V=V)
        assert feasible
        assert queue.max() < 16.0
        often = ledger.reached > 80
        assert (ledger.served[often] / ledger.reached[often]).min() > 0.0

    def test_who_cannot_be_chosen_is_owed_nothing(self):
        policy, spec = PartialPooling(beta=0.5), ProblemSpec(3, 3, 1, 1)
        state = policy.init(spec, rng=np.random.default_rng(0))
        there = [True, True, False]
        context = priced_context([1.0, 5.0, 1.0], range(3), [0] * 3, [2.0], features=np.ones((3, 1)), available=there)
        state = policy.commit(state, context, Selection(1, np.zeros(0, np.int64)))
        assert state.backlog.tolist() == [0.5, 0.0, 0.0]
        state = policy.commit(state, replace(context, round=2), Selection(2, np.array([0])))
        assert state.backlog.tolist() == [0.0, 0.0, 0.0]

    def test_in_free_places_a_rate_is_owed_once_for_a_cohort(self):
        """Owed at each filling, 10 clients at 0.3 would be owed three of every place."""
        selector = EdgeSelector(PartialPooling(beta=0.3), budgets={"a": 9.0}, cohort_size=4, clients=range(10))
        for _ in range(200):
            cohort = selector.select(at_most=1)
            selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
        assert max(selector.backlog().values()) < 2.0
        assert min(selector.participation().values()) >= 0.3 * 50 - 2.0

    def test_where_budgets_pay_for_more_than_a_cohort(self):
        """On either server one costly client or three cheap ones, four places: both costly ones waste two of them.

        Cutting the best that the budgets buy down to four falls for that, and debts grow by 0.04 a round.
        """
        server = np.array([0, 0, 1, 1] + [0] * 6 + [1] * 6)
        policy, rng = PartialPooling(beta=0.2475, V=0.0, intervals=0), np.random.default_rng(5)
        state, features = policy.init(ProblemSpec(16, 4, 1, 2), rng=rng), np.zeros((16, 1))
        for number in range(1, 201):
            cheap = np.where(rng.random(2) < 0.5, 1 / 6, 1 / 3)
            cost = np.where(np.arange(16) < 4, 1.0, cheap[server])
            context = priced_context(cost, range(16), server, [1.0, 1.0], features=features, number=number, size=4)
            state = policy.commit(state, context, policy.select(state, context, rng=np.random.default_rng(number)))
        assert state.backlog.max() < 4.0

    def test_debts_decide(self):
        """Two clients, one place, one of them hopeless: it is chosen when it is owed more than V times the gap."""
        policy, spec = PartialPooling(beta=0.25, V=2.0), ProblemSpec(2, 2, 1, 1)
        state = policy.init(spec, rng=np.random.default_rng(0))
        chosen = []
        for number in range(1, 401):
            context = priced_context([1.0] * 2, [0, 1], [0, 0], [1.0], features=[[0.0], [1.0]], number=number, size=1)
            selection = policy.select(state, context, rng=np.random.default_rng(number))
            chosen.append(int(selection.links[0]))
            state = policy.commit(state, context, selection)
            time_s = np.where(selection.links == 1, 1.0, np.nan)
            told = {"time_s": time_s, "features": context.features[selection.links], "server": [0]}
            state = policy.update(state, report(selection.links, round=number, **told))
            assert state.backlog[0] < 2.0 + 1.0
        assert 100 - 3 <= chosen.count(0) <= 100


class TestFeasibleRates:
    @pytest.mark.parametrize(
        ("cost", "budget", "client", "server", "sure", "most"),
        [
            ([1, 1, 1, 1], [1], [0, 1, 2, 3], [0, 0, 0, 0], 0.25, 0.25),
            ([1, 1, 1, 1], [2], [0, 1, 2, 3], [0, 0, 0, 0], 0.5, 0.5),
            ([2, 1, 1, 1], [3], [0, 1, 2, 3], [0, 0, 0, 0], 0.5, 0.6),
            ([1, 3, 1], [3], [0, 1, 2], [0, 0, 0], 1 / 3, 0.6),
            ([1, 1], [9, 9], [0, 1], [0, 1], 1.0, 1.0),
            ([9, 1], [3], [0, 1], [0, 0], 1.0, 1.0),  # the first cannot be reached: the second alone counts
            ([9], [3], [0], [0], 1.0, 1.0),
            ([1, 1, 1, 1], [1, 1], [0, 1, 2, 2], [0, 0, 0, 1], 0.5, 0.5),  # the third moves to the other server
        ],
    )
    def test_by_hand(self, cost, budget, client, server, sure, most):
        assert_allclose(feasible_rates(priced_context(cost, client, server, budget)), (sure, most), rtol=1e-9)

    def test_the_cohort_counts(self):
        """Four clients that all fit, and two places."""
        context = priced_context([1] * 4, range(4), [0] * 4, [9], size=2)
        assert_allclose(feasible_rates(context), (0.5, 0.5), rtol=1e-9)

    def test_nobody(self):
        assert feasible_rates(priced_context([1], [0], [0], [1], available=[False])) == (1.0, 1.0)


class TestBound:
    def test_by_hand(self):
        drift = 0.5 * (10 * 0.01 + 4) + 3 * 4
        sizes = {"num_clients": 10, "cohort": 4, "beta": 0.1, "V": 3.0}
        assert_allclose(debt_bound(50, **sizes), math.sqrt(100 * drift))
        assert_allclose(debt_bound(10**9, slack=0.2, **sizes), math.sqrt((drift / 0.2) ** 2 + 2 * drift))
        assert debt_bound(50, gap=0.1, **sizes) == math.inf
        assert_allclose(debt_bound(10**9, slack=0.2, gap=0.1, **sizes), math.sqrt((drift / 0.17) ** 2 + 2 * drift))


def some_links(number=1, *, usable=None, seed=0):
    """A round of 80 clients with one server; those that are not usable have features far from the others'."""
    features = np.random.default_rng(seed).random((80, 2))
    usable = np.ones(80, np.bool_) if usable is None else usable
    features[~usable] = 1e6
    return RoundContext(number, features, usable, 80)


class TestWhatIsPassedOn:
    """Parameters and contexts reach the models."""

    spec = ProblemSpec(80, 80, 2)

    def test_one_model_for_each_variance_and_memory(self):
        belief = PartialPooling().init(self.spec, rng=np.random.default_rng(0)).belief
        assert belief.variance.tolist() == [0.0, 0.1, 1.0, 0.1, 1.0]
        assert_allclose(-1.0 / np.log(belief.decay[3:]), 30.0)
        assert (belief.decay[:3] == 1.0).all()

    def test_knots_are_those_of_usable_links(self):
        policy = PartialPooling()
        context = some_links(usable=np.arange(80) < 70)
        state = policy.init(self.spec, rng=np.random.default_rng(0))
        belief = policy.commit(state, context, Selection(1, np.zeros(0, np.int64))).belief
        assert belief.num_knots.tolist() == [9, 9]
        assert belief.knot.max() < 1.0

    def test_weight_is_spread_every_round(self):
        for share in (0.0, 0.1):
            policy = PartialPooling(share=share)
            state = policy.init(self.spec, rng=np.random.default_rng(0))
            state.belief.log_weight[1:] = -50.0
            belief = policy.commit(state, some_links(), Selection(1, np.zeros(0, np.int64))).belief
            assert_allclose(belief.weight[1:], share / 5, atol=1e-12)

    def test_only_updates_in_time_are_successes(self):
        worth = {}
        for status in Status:
            policy = PartialPooling(variances=(), memories=(), intervals=0)
            state = policy.init(self.spec, rng=np.random.default_rng(0))
            context, links = some_links(), np.arange(1)
            state = policy.commit(state, context, Selection(1, links))
            time_s = [1.0 if status <= Status.LATE else np.nan]
            told = {"status": [status], "time_s": time_s, "features": context.features[links]}
            state = policy.update(state, report(links, **told))
            worth[status] = policy.values(state, choices_of(context), some_links(2))[0]
        assert worth.pop(Status.COMPLETED) > 0.6
        assert max(worth.values()) < 0.4

    def test_the_gap_of_the_decision_is_told(self):
        policy = PartialPooling(beta=0.1)
        state = policy.init(self.spec, rng=np.random.default_rng(0))
        selection = policy.select(state, some_links(), rng=np.random.default_rng(0))
        assert selection.links.shape == (80,)
        assert selection.gap == 0.0


class TestParameters:
    def test_refuses_rates_that_no_prices_allow(self):
        with pytest.raises(InfeasibleError, match="cannot be met"):
            PartialPooling(beta=0.6).check(ProblemSpec(num_clients=10, cohort_size=5, num_features=1))
