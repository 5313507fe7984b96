"""The selector for edge servers: budgets, links, and everything that it has in common with the flat one."""

import numpy as np
import pytest

from fedroster import RBCSF, EdgeSelector, FailureRules, Floor, Oort, Uniform
from fedroster.core.errors import ConfigurationError, FairnessWarning
from fedroster.policies import COCS

POLICY = COCS(h_T=2, scale=0.02)


def test_servers_without_a_budget_reach_nobody():
    selector = EdgeSelector(POLICY, budgets={"a": 1.0}, cohort_size=2, clients=["x", "y"])
    (chosen,) = (cohort := selector.select(servers=[["a"], ["a"]])).clients
    assert cohort.servers == ("a",)
    selector.leave(["x"])
    assert selector.select(clients=["y"], servers=[["b"]]).is_empty
    selector.join(["x"])
    assert selector.select(servers=[["b"], [""]]).is_empty
    assert selector.participation_rates() == {"x": (chosen == "x") / 2, "y": (chosen == "y") / 3}


def test_a_promise_to_clients_that_no_edge_server_reaches_is_warned_of():
    class Promising(COCS):
        beta = 0.5

    selector = EdgeSelector(Promising(h_T=2), budgets={"a": 2.0}, cohort_size=2)
    selector.join(["x", "y", "z"])
    links = {"clients": ["x", "y", "z"], "servers": [["a"], ["a"], ["nowhere"]]}
    for _ in range(64):
        selector.select(np.full((3, 2), 0.5), **links)
    with pytest.warns(FairnessWarning, match=r"1 clients that are available less often, such as \['z'\]"):
        selector.select(np.full((3, 2), 0.5), **links)


def test_no_client_pauses_where_all_that_a_server_reaches_would():
    options = {"cohort_size": 2, "clients": ["x", "y", "far"], "failures": FailureRules(pause_after=1)}
    selector = EdgeSelector(Uniform(), budgets={"a": 2.0}, **options)
    for _ in range(3):
        cohort = selector.select(servers=[["a"], ["a"], []])
        assert cohort.clients == ("x", "y")
        selector.observe(cohort.round, failed=cohort.clients)


def test_the_server_of_a_link_is_told_with_its_feedback(tmp_path):
    seen = []

    class Recorder(COCS):
        def update(self, state, feedback, /):
            seen.append(dict(zip(feedback.client.tolist(), feedback.server.tolist(), strict=True)))
            return super().update(state, feedback)

    policy = Recorder(h_T=2, scale=0.02)
    selector = EdgeSelector(policy, budgets={"b": 1.0, "a": 2.0}, cohort_size=3)
    selector.join(["x", "y", "z"])
    cohort = selector.select(np.full((3, 2), 0.5), clients=["x", "y", "z"], servers=[["a"], ["a"], ["b"]])
    selector.save(tmp_path / "selector.npz")
    assert list(EdgeSelector.load(tmp_path / "selector.npz", policy).budgets) == ["b", "a"]  # it numbers the servers
    for each in (selector, EdgeSelector.load(tmp_path / "selector.npz", policy)):
        each.observe(1, times_s=dict.fromkeys(cohort.clients, 1.0))
    assert seen == [{0: 1, 1: 1, 2: 0}] * 2


def test_servers_and_prices_are_told_by_id_or_in_the_order_of_clients():
    by_id, in_order, by_ids = (
        EdgeSelector(POLICY, budgets={"n": 2.0, "s": 1.0}, cohort_size=3, clients=["x", "y", "z"]) for _ in range(3)
    )
    servers, prices = {"z": "s", "x": ["n"], "y": ["n", "s"]}, {"y": 1.5, "x": 0.5, "z": 1.0}
    cohort = by_id.select({client: [0.5] for client in "xyz"}, servers=servers, prices=prices)
    assert dict(zip(cohort.clients, cohort.servers, strict=True)) == {"x": "n", "y": "n", "z": "s"}
    rows = [servers[client] for client in "xyz"], [prices[client] for client in "xyz"]
    assert in_order.select([[0.5]] * 3, servers=rows[0], prices=rows[1]) == cohort
    assert by_ids.select(["x", "y", "z"], servers=servers, prices=prices) == cohort


def test_without_servers_each_one_reaches_each_client_and_without_prices_each_costs_one():
    selector = EdgeSelector(POLICY, budgets={"n": 1.0, "s": 1.0}, cohort_size=9, clients=range(5))
    cohort = selector.select()
    assert sorted(cohort.servers) == ["n", "s"]
    assert selector.select(available=[True] + [False] * 4).clients == (0,)


def test_prices_and_servers_belong_to_links():
    """A client that costs more than a budget is not chosen, wherever its links stand among all."""
    selector = EdgeSelector(Uniform(), budgets={"n": 1.0, "s": 2.0}, cohort_size=9, clients=["x", "y", "z"])
    for prices, servers in (
        ({"x": 3.0, "y": 3.0, "z": 1.0}, {"z": "n"}),
        ({"x": 3.0, "y": 2.0, "z": 1.0}, {"y": "s", "z": "n"}),
        ({"x": 3.0, "y": 1.5, "z": 1.5}, {"y": "s"}),
    ):
        cohort = selector.select(servers={"x": ["n", "s"], "y": ["n", "s"], "z": ["n"]}, prices=prices)
        assert dict(zip(cohort.clients, cohort.servers, strict=True)) == servers


@pytest.mark.parametrize("policy", [RBCSF(beta=0.1), Floor(), Oort()], ids=str)
@pytest.mark.parametrize("budgets", [{"a": 1.0}, {"a": 1.0, "b": 1.0}], ids=len)
def test_a_policy_that_keeps_no_budgets_is_refused_at_the_start(policy, budgets):
    with pytest.raises(ConfigurationError, match=f"{type(policy).__name__} fills every cohort, whatever its"):
        EdgeSelector(policy, budgets=budgets, cohort_size=2)
