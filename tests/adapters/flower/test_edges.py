"""Edge servers on a flat grid: assignment within budgets."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import Clock, fleet, model
from flwr.serverapp.strategy import FedAvg
from test_grid import selecting, trained

from fedroster import EdgeSelector
from fedroster.adapters.flower import ContextOptions, EdgeMap, NodeContext, edge_features
from fedroster.core.errors import ConfigurationError, LogFileError
from fedroster.policies import COCS

POLICY = COCS(h_T=2, scale=0.02)


def on_edges(nodes, budgets, *, policy=POLICY, **options):
    contexts, told = ContextOptions(features=edge_features), {"kind": EdgeSelector, "budgets": budgets}
    return selecting(nodes, m=10, policy=policy, told=told, contexts=contexts, **options)[::2]


def labelled(num_nodes, *labels):
    nodes = fleet(num_nodes)
    for number, node in enumerate(nodes.values()):
        node.config = {"edge": labels[number % len(labels)], "bandwidth-bps": 1e6}
    return nodes


def test_budgets_are_kept_and_the_assignment_is_reported():
    nodes = labelled(12, "north", "south", "north,south", "nowhere")
    labels = {node.name: node.config["edge"].split(",") for node in nodes.values()}
    grid, reports = on_edges(nodes, {"north": 2.0, "south": 1.0})
    FedAvg().start(grid=grid, initial_arrays=model(), num_rounds=20)
    for report in reports:
        served = [*report.edges.values()]
        assert set(report.edges) == set(report.clients)
        assert served.count("north") <= 2
        assert served.count("south") <= 1
        assert all(edge in labels[name] for name, edge in report.edges.items())
    assert sum(len(report.clients) for report in reports) == sum(node.trained for node in nodes.values()) > 20


def test_features_lie_in_the_unit_square():
    nodes = [NodeContext("a", 0.3), NodeContext("b", 1.0)]
    features = edge_features(nodes, bandwidth_bps=np.array([1e3, 1e12]), cold=np.zeros(2, bool), model_bit=1.0)
    assert features.tolist() == [[0.3, 0.0], [1.0, 1.0]]


def test_a_restart_goes_on(tmp_path):
    nodes = labelled(8, "north", "south")
    budgets = {"north": 2.0, "south": 1.0}
    clock = Clock()
    grid, reports = on_edges(nodes, budgets, state_dir=tmp_path, clock=clock)
    FedAvg().start(grid=grid, initial_arrays=model(), num_rounds=5)
    again, more = on_edges(nodes, budgets, state_dir=tmp_path, clock=clock)
    assert again.selector.participation() == grid.selector.participation()
    FedAvg().start(grid=again, initial_arrays=model(), num_rounds=5)
    straight, all_reports = on_edges(labelled(8, "north", "south"), budgets)
    FedAvg().start(grid=straight, initial_arrays=model(), num_rounds=10)
    assert [report.edges for report in all_reports] == [report.edges for report in (*reports, *more)]
    with pytest.raises(ConfigurationError, match="budgets is"):
        on_edges(nodes, {"north": 2.0, "south": 2.0}, state_dir=tmp_path)
    with pytest.raises(LogFileError, match="expected COCS"):
        on_edges(nodes, budgets, policy=COCS(h_T=3), state_dir=tmp_path)


# ---------------------------------------------------------------- what the operator says


def test_the_operators_edges_go_before_what_nodes_report():
    nodes = labelled(4, "north")
    nodes[103].config.pop("edge")
    rules = EdgeMap(edges={"n00": ["south"], "n01": [], "n03": ["north", "south"]})
    grid, reports = on_edges(nodes, {"north": 9.0, "south": 9.0}, edge_rules=rules)
    FedAvg(min_available_nodes=1).start(grid=grid, initial_arrays=model(), num_rounds=8)
    served = {name: {report.edges[name] for report in reports if name in report.edges} for name in trained(nodes)}
    assert served.pop("n03")  # of either
    assert served == {"n00": {"south"}, "n01": set(), "n02": {"north"}}


def test_nodes_are_not_trusted_where_the_operator_says_so():
    rules = EdgeMap(edges={"n00": ["north"]}, trust_nodes=False, price=2.0)
    assert rules.edges_of(NodeContext("n01", edge="north")) == ()
    assert rules.price_of(NodeContext("n01", price=0.5)) == 2.0
    assert EdgeMap().price_of(NodeContext("n09")) == 1.0
    assert EdgeMap().edges_of(NodeContext("n01", edge=" north ,, south")) == ("north", "south")


def test_budgets_are_spent_by_price():
    nodes = labelled(4, "north")
    for node, price in zip(nodes.values(), (3.0, 1.0, 0.0, 2.0), strict=True):
        node.config["price"] = price
    rules = EdgeMap(prices={"n03": 9.0})
    grid, reports = on_edges(nodes, {"north": 3.0}, edge_rules=rules)
    FedAvg(min_available_nodes=1).start(grid=grid, initial_arrays=model(), num_rounds=30)
    cohorts = [{"n00"}, {"n01", "n02"}]  # at 3 and at 1 + 0.01; 9 is never paid
    assert all(set(report.clients) in cohorts for report in reports)
    assert len({report.clients for report in reports}) > 1


@pytest.mark.parametrize("options", [{"price": -1.0}, {"prices": {"a": -1.0}}, {"edges": {"a": "north"}}])
def test_edge_rules_out_of_range_are_refused(options):
    with pytest.raises(ConfigurationError):
        EdgeMap(**options)
