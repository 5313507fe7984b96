import dataclasses
import math

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import ProblemSpec, Selection, Status, check_selection
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.optimization.budgeted import choices_of
from fedroster.optimization.decision_pool import playable, pool_init, recall, remember, with_arms
from fedroster.policies.cucb import CUCB, CUCBPairs, pair_bounds, ucb1
from fedroster.simulation import simulate
from priced import priced_context
from rounds import report


class TestPool:
    context = priced_context([1.0, 2.0, 1.5, 1.0], [0, 0, 1, 2], [0, 1, 0, 1], [2.0, 2.0])

    def test_arms_are_feasible_maximal_and_the_same_whenever_asked_for(self):
        context, _ = next((r.context, r) for r in simulate(CUCBPairs(), HierarchicalNetwork(), rounds=1, seed=0))
        choices = choices_of(context)
        state = pool_init(np.random.default_rng(3))
        pool, again = with_arms(state, choices, 50), with_arms(state, choices, 50)
        np.testing.assert_array_equal(pool.client, again.client)
        assert len({tuple(arm) for arm in pool.client.tolist()}) > 40
        position = playable(pool.client, pool.server, choices)
        np.testing.assert_array_equal(position >= 0, pool.client >= 0)  # all of every arm can be played
        for arm in position:
            links = np.sort(choices.rows[arm[arm >= 0]])
            check_selection(Selection(1, links), context, fills_cohort=False)
            left = context.budget - np.bincount(context.server[links], weights=context.cost[links], minlength=3)
            free = ~np.isin(context.client, context.client[links])
            assert not (free & (context.cost <= left[context.server])).any()

    def test_what_the_round_does_not_allow_is_left_out_in_order(self):
        client, server = np.array([[0, 1, 2], [2, 1, -1]]), np.array([[0, 0, 1], [1, 0, -1]])
        whole = dataclasses.replace(self.context, budget=np.array([2.5, 2.0]))
        assert playable(client, server, choices_of(whole)).tolist() == [[0, 2, 3], [3, 2, -1]]
        assert playable(client, server, choices_of(self.context)).tolist() == [[0, -1, 3], [3, 2, -1]]
        gone = dataclasses.replace(whole, available=np.array([False, True, True, True]))
        positions = playable(client, server, choices_of(gone))
        assert [choices_of(gone).rows[row[row >= 0]].tolist() for row in positions] == [[2, 3], [3, 2]]

    def test_remembers_recent_rounds_only(self):
        state = pool_init(np.random.default_rng(0))
        state = remember(state, 4, 10)
        assert (recall(state, 10), recall(state, 11), recall(state, 10 + 256)) == (4, -1, -1)
        state = remember(state, 2, 10 + 256)
        assert recall(state, 10) == -1


class TestUCB1:
    def test_by_hand(self):
        index = ucb1(np.array([4, 1, 0]), np.array([6.0, 3.0, 0.0]), rounds=5, scale=3.0)
        np.testing.assert_allclose(
            index, [1.5 + 3 * math.sqrt(2 * math.log(5) / 4), 3 + 3 * math.sqrt(2 * math.log(5)), np.inf]
        )

    def test_feedback_goes_to_the_arm_of_its_round(self):
        policy = CUCB(pool_size=3)
        context = TestPool.context
        state = policy.init(ProblemSpec(3, 3, 2, 2), rng=np.random.default_rng(0))
        arms = []
        for number in (1, 2, 3):
            now = dataclasses.replace(context, round=number)
            links = policy.select(state, now, rng=np.random.default_rng(0)).links
            state = policy.commit(state, now, Selection(number, links))
            arms.append(recall(state.pool, number))
        status = [Status.COMPLETED, Status.LATE]
        state = policy.update(state, report([0, 1], round=2, status=status, features=np.zeros((2, 2)), server=[0, 0]))
        assert sorted(arms) == [0, 1, 2]
        assert state.utility[arms[1]] == 1.0
        assert state.utility.sum() == 1.0


class TestPairs:
    def test_bounds_by_hand(self):
        bound = pair_bounds(np.array([0, 100, 2]), np.array([0, 30, 2]), rounds=50)
        np.testing.assert_allclose(bound, [1.0, 0.3 + math.sqrt(3 * math.log(50) / 200), 1.0])

    def test_finds_the_better_pairs(self):
        policy = CUCBPairs()
        p = np.array([0.9, 0.1, 0.8, 0.2, 0.1, 0.1])
        rng = np.random.default_rng(0)
        state = policy.init(ProblemSpec(6, 6, 2, 1), rng=rng)
        chosen = np.zeros(6)
        for number in range(1, 801):
            context = priced_context(np.ones(6), np.arange(6), np.zeros(6), [2.0], number=number)
            links = policy.select(state, context, rng=rng).links
            state = policy.commit(state, context, Selection(number, links))
            status = np.where(rng.random(links.size) < p[links], Status.COMPLETED, Status.LATE)
            told = {"features": context.features[links], "server": np.zeros(links.size)}
            state = policy.update(state, report(links, round=number, status=status, **told))
            chosen[links] += number > 400
        assert chosen[[0, 2]].min() > 300
        assert chosen[[1, 3, 4, 5]].max() < 100

    def test_too_many_pairs(self):
        with pytest.raises(ConfigurationError, match="2\\^62"):
            CUCBPairs().check(ProblemSpec(2**40, 10, 2, 2**30))
