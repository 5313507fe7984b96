import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroster.aggregation.hierarchical import (
    aggregate_edges,
    aggregate_globally,
    broadcast,
    edge_answers,
)
from fedroster.core.problem import Outcome, RoundContext, Selection
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.policies import Uniform
from fedroster.simulation import simulate

INF = float("inf")


def deadline(times, servers, *, responds=None, deadline_s=3.0, min_updates=1):
    times, links = np.array(times, np.float64), np.arange(len(times))
    answers = np.ones(len(times), np.bool_) if responds is None else np.array(responds, np.bool_)
    context = RoundContext(1, np.zeros((len(times), 0)), answers, len(times), server=np.array(servers, np.int64))
    outcome = Outcome(times, times, 0.0 * times, answers, deadline_s=deadline_s, min_updates=min_updates)
    return edge_answers(outcome, context, Selection(1, links))


class TestEdgeDeadline:
    @pytest.mark.parametrize(
        ("times", "responds", "least", "used", "closed_s"),
        [
            ([1, 2], [1, 1], 1, [1, 1], 2.0),  # all there before the deadline
            ([1, 5], [1, 1], 1, [1, 0], 3.0),  # one late
            ([1, 2], [1, 0], 1, [1, 0], 3.0),  # one silent
            ([4, 5], [1, 1], 1, [1, 0], 4.0),  # (6): waits for the fastest
            ([1, 5, 6], [1, 1, 1], 2, [1, 1, 0], 5.0),  # (6): waits for the second
            ([4, 5, 5], [1, 1, 1], 2, [1, 1, 1], 5.0),  # both at tau^Z
            ([4, 5], [1, 0], 2, [1, 0], 4.0),  # fewer answers than Z: all there are
            ([1, 2], [1, 1], 5, [1, 1], 2.0),
            ([1, 2], [0, 0], 1, [0, 0], 3.0),  # no client answers
            ([3, 3], [1, 1], 1, [1, 1], 3.0),  # at the deadline is in time
        ],
    )
    def test_by_hand(self, times, responds, least, used, closed_s):
        found = deadline(times, [1] * len(times), responds=responds, min_updates=least)
        assert found.used.tolist() == [bool(x) for x in used]
        assert found.closed_s.tolist() == [0.0, closed_s]

    def test_servers_are_apart(self):
        found = deadline([1, 4, 5, 2], [0, 1, 1, 0])
        assert found.used.tolist() == [True, True, False, True]
        assert found.closed_s.tolist() == [2.0, 4.0]

    def test_without_a_deadline_nobody_is_late(self):
        found = deadline([1, 9, 2], [0, 0, 0], responds=[True, True, False], deadline_s=INF)
        assert found.used.tolist() == [True, True, False]
        assert found.closed_s.tolist() == [9.0]

    @given(
        st.lists(st.tuples(st.floats(0.1, 9), st.booleans(), st.integers(0, 2)), max_size=15),
        st.integers(1, 4),
        st.floats(0.5, 9),
    )
    def test_properties(self, clients, least, limit):
        times, responds, servers = zip(*clients, strict=True) if clients else ((), (), ())
        found = deadline(times, servers, responds=responds, deadline_s=limit, min_updates=least)
        for m in set(servers):
            mine = [i for i in range(len(clients)) if servers[i] == m]
            answers = sorted(times[i] for i in mine if responds[i])
            used = [i for i in mine if found.used[i]]
            assert all(responds[i] and times[i] <= max(found.closed_s[m], limit) for i in used)
            assert len(used) >= min(least, len(answers))  # at least Z
            assert all(found.used[i] for i in mine if responds[i] and times[i] <= limit)
            assert found.closed_s[m] <= max([limit, *answers])


class TestAggregation:
    edges = {"w": np.array([[0.0, 0.0], [10.0, 10.0], [20.0, 20.0]], np.float32), "b": np.array([0.0, 1.0, 2.0])}
    models = {
        "w": np.array([[1.0, 3.0], [3.0, 5.0], [12.0, 8.0], [99.0, 99.0]], np.float32),
        "b": np.array([2.0, 4.0, 6.0, 99.0]),
    }
    server = np.array([0, 0, 1, 1])
    used = np.array([True, True, True, False])

    def test_means_of_what_each_server_uses(self):
        found = aggregate_edges(self.edges, self.models, self.server, self.used)
        np.testing.assert_array_equal(found["w"], [[2, 4], [12, 8], [20, 20]])
        np.testing.assert_array_equal(found["b"], [3, 6, 2])
        assert found["w"].dtype == np.float32
        assert self.edges["b"].tolist() == [0.0, 1.0, 2.0]  # the old models are left as they were

    def test_an_update_that_is_not_finite_is_refused(self):
        models = {name: values.copy() for name, values in self.models.items()}
        models["w"][0, 1] = np.nan
        found = aggregate_edges(self.edges, models, self.server, self.used)
        np.testing.assert_array_equal(found["w"][0], [3, 5])
        np.testing.assert_array_equal(found["b"][0], 4)

    def test_nobody_used_changes_nothing(self):
        found = aggregate_edges(self.edges, self.models, self.server, np.zeros(4, np.bool_))
        for name in self.edges:
            np.testing.assert_array_equal(found[name], self.edges[name])

    def test_the_cloud_takes_the_mean_and_gives_it_back(self):
        model = aggregate_globally(self.edges)
        np.testing.assert_array_equal(model["w"], [10, 10])
        assert model["w"].dtype == np.float32
        back = broadcast(model, 3)
        np.testing.assert_array_equal(back["w"], [[10, 10]] * 3)
        np.testing.assert_array_equal(back["b"], [1, 1, 1])
        np.testing.assert_array_equal(aggregate_globally(back)["w"], model["w"])


class TestRoundTime:
    @pytest.mark.parametrize(
        "few", [{}, {"num_clients": 2, "geometry": "geometric", "speed_m_s": 300.0}], ids=["many", "empty rounds"]
    )
    def test_every_simulated_round(self, few):
        """Every round of a network that waits for two updates, and whose cloud aggregates every third round."""
        network = HierarchicalNetwork(
            deadline_s=1.2, min_updates=2, global_period=3, edge_time_s=0.25, cloud_time_s=2.0, dropout=0.2, **few
        )
        waited_longer = empty = 0
        for played in simulate(Uniform(), network, rounds=30, seed=1):
            outcome, chosen = played.outcome, played.selection.links
            longest = 0.0
            for m in range(3):
                mine = chosen[played.context.server[chosen] == m]
                answers = sorted(outcome.exchange_time_s[mine][outcome.responds[mine]])
                if len(mine) == len(answers) and (not answers or answers[-1] <= 1.2):
                    waited = answers[-1] if answers else 0.0
                else:
                    waited = max([1.2, *answers[:2]])
                waited_longer += waited > 1.2
                longest = max(longest, waited)
            cloud = 2.0 if played.number % 3 == 0 else 0.0
            assert played.time_s == pytest.approx(longest + 0.25 * (len(chosen) > 0) + cloud)
            empty += len(chosen) == 0
        assert waited_longer > 10 or few
        assert (empty > 10) == bool(few)
