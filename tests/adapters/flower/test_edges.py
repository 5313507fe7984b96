"""Edge servers on a flat grid: assignment within budgets, and aggregation at the server app."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import Clock, ClockThat, FakeGrid, fleet, held, model, train_messages
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg

from fedroster import RBCSF, EdgeSelector, Selector
from fedroster.adapters.flower import (
    ContextRules,
    EdgeAggregation,
    EdgeRules,
    NodeContext,
    RoundRules,
    RoundSink,
    SelectingGrid,
    edge_features,
)
from fedroster.adapters.flower.edge_models import weighted_mean
from fedroster.core.errors import ConfigurationError, InvalidInputError, StateFileError
from fedroster.engine.edges import distance_m
from fedroster.policies import COCS

POLICY = COCS(h_T=2, scale=0.02)


def on_edges(nodes, budgets, *, m=10, every=None, rules=None, policy=POLICY, strategy=None, clock=None, **options):
    clock = clock or Clock()
    fake = FakeGrid(clock, nodes)
    reports = []
    grid = held(
        partial(
            SelectingGrid,
            fake,
            EdgeSelector(policy, budgets=budgets, cohort_size=m, observers=[RoundSink(reports.append)]),
            strategy,
            contexts=ContextRules(features=edge_features),
            rules=rules or RoundRules(deadline_s=3.0),
            edges=None if every is None else EdgeAggregation(every=every),
            clock=clock,
        ),
        **options,
    )
    return grid, reports


def labelled(num_nodes, *labels):
    nodes = fleet(num_nodes)
    for number, node in enumerate(nodes.values()):
        node.config = {"edge": labels[number % len(labels)], "bandwidth-bps": 1e6}
    return nodes


def test_budgets_are_kept_and_the_assignment_is_reported():
    nodes = labelled(12, "north", "south", "north,south", "nowhere")
    grid, reports = on_edges(nodes, {"north": 2.0, "south": 1.0})
    FedAvg().start(grid=grid, initial_arrays=model(), num_rounds=20)
    assert len(reports) == 20
    for report in reports:
        assert set(report.edges) == set(report.clients)
        assert list(report.edges.values()).count("north") <= 2
        assert list(report.edges.values()).count("south") <= 1
        for name, edge in report.edges.items():
            label = next(node.config["edge"] for node in nodes.values() if node.name == name)
            assert edge in label.split(",")
    assert sum(len(report.clients) for report in reports) == sum(node.trained for node in nodes.values()) > 20
    assert all(node.trained == 0 for node in nodes.values() if node.config["edge"] == "nowhere")


def test_cocs_learns_whose_updates_come_in_time():
    nodes = labelled(8, "north")
    for number, node in enumerate(nodes.values()):
        node.delay_s = 1.0 if number % 2 else 3.5
    grid, reports = on_edges(nodes, {"north": 3.0})
    FedAvg(fraction_evaluate=0.0, min_available_nodes=1).start(grid=grid, initial_arrays=model(), num_rounds=120)
    early, late = reports[:20], reports[-20:]
    assert sum(report.num_in_time for report in late) > sum(report.num_in_time for report in early)
    assert np.mean([report.num_in_time for report in late]) > 2.7


def test_one_level_of_aggregation_every_round_equals_the_flat_mean():
    def train(every):
        nodes = labelled(6, "north", "south")
        for number, node in enumerate(nodes.values()):
            node.value = float(number)
        grid, _ = on_edges(nodes, {"north": 3.0, "south": 2.0}, every=every)
        return FedAvg().start(grid=grid, initial_arrays=model(), num_rounds=8).arrays["w"].numpy()

    assert train(1) == pytest.approx(train(None))


def test_between_global_aggregations_nodes_train_on_their_edge_servers_model():
    nodes = labelled(2, "north", "south")
    nodes[101].value = 10.0
    grid, reports = on_edges(nodes, {"north": 1.0, "south": 1.0}, every=3)
    result = FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=model(), num_rounds=6)
    assert all(len(report.clients) == 2 for report in reports)
    received = [content["arrays"]["b"].numpy()[0] for content in nodes[101].received]
    assert received == pytest.approx([0.0, 10.0, 20.0, 16.5, 26.5, 36.5])
    assert sorted(result.train_metrics_clientapp) == [3, 6]
    assert result.arrays["b"].numpy() == pytest.approx(np.full(2, 33.0))


def test_any_strategy_aggregates_the_edge_models():
    grid, _ = on_edges(labelled(6, "north", "south"), {"north": 2.0, "south": 2.0}, every=2)
    result = FedAdam().start(grid=grid, initial_arrays=model(), num_rounds=4)
    assert np.isfinite(result.arrays["w"].numpy()).all()
    assert (result.arrays["w"].numpy() > 0.0).all()


def test_means_are_weighted():
    def content(value, count):
        return RecordDict(
            {
                "a": ArrayRecord({"w": Array(np.full(2, value, np.float32))}),
                "m": MetricRecord({"num-examples": count, "loss": value}),
            }
        )

    mean = weighted_mean([content(1.0, 1), content(4.0, 3)], "num-examples")
    assert mean["a"]["w"].numpy().tolist() == [3.25, 3.25]
    assert mean["a"]["w"].dtype == "float32"
    assert dict(mean["m"]) == {"num-examples": 4.0, "loss": 3.25}
    with pytest.raises(InvalidInputError, match="the weight 'n'"):
        weighted_mean([content(1.0, 1)], "n")


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
    counts = grid.selector.participation()
    again, more = on_edges(nodes, budgets, state_dir=tmp_path, clock=clock)
    assert again.selector.round == 5
    assert again.selector.participation() == counts
    FedAvg().start(grid=again, initial_arrays=model(), num_rounds=5)
    assert [report.round for report in more] == [6, 7, 8, 9, 10]
    straight, all_reports = on_edges(labelled(8, "north", "south"), budgets)
    FedAvg().start(grid=straight, initial_arrays=model(), num_rounds=10)
    assert [report.edges for report in all_reports] == [report.edges for report in (*reports, *more)]
    with pytest.raises(ConfigurationError, match="budgets are"):
        on_edges(nodes, {"north": 2.0, "south": 2.0}, state_dir=tmp_path)
    with pytest.raises(StateFileError, match="belongs to"):
        on_edges(nodes, budgets, policy=COCS(h_T=3), state_dir=tmp_path)


def test_what_is_refused():
    with pytest.raises(ConfigurationError, match="every is 0"):
        EdgeAggregation(every=0)
    with pytest.raises(ConfigurationError, match="assigns no edge servers"):
        SelectingGrid(FakeGrid(Clock(), {}), Selector(RBCSF(), cohort_size=7), None, edges=EdgeAggregation())
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 10)
    grid, _ = on_edges(labelled(4, "north"), {"north": 2.0}, every=1, strategy=strategy)
    with pytest.raises(ConfigurationError, match="no aggregation at edges"):
        strategy.start(grid=grid, initial_arrays=model(), num_rounds=1)


# ---------------------------------------------------------------- what the operator says


def test_the_operators_edges_go_before_what_nodes_report():
    nodes = labelled(4, "north")
    nodes[103].config.pop("edge")
    rules = EdgeRules(edges={"n00": ["south"], "n01": [], "n03": ["north", "south"]})
    grid, reports = on_edges(nodes, {"north": 9.0, "south": 9.0}, edge_rules=rules)
    FedAvg(min_available_nodes=1).start(grid=grid, initial_arrays=model(), num_rounds=8)
    served = {name: {report.edges[name] for report in reports if name in report.edges} for name in trained(nodes)}
    assert served["n00"] == {"south"}
    assert served["n01"] == set()
    assert served["n02"] == {"north"}
    assert served["n03"] <= {"north", "south"}
    assert nodes[101].trained == 0
    assert nodes[103].trained > 0


def trained(nodes):
    return {node.name: node.trained for node in nodes.values()}


def test_nodes_are_not_trusted_where_the_operator_says_so():
    rules = EdgeRules(edges={"n00": ["north"]}, trust_nodes=False, price=2.0)
    assert rules.edges_of(NodeContext("n01", edge="north"), None) == ()
    assert rules.price_of(NodeContext("n01", price=0.5)) == 2.0
    assert EdgeRules().edges_of(NodeContext("n01", edge=" north ,, south"), None) == ("north", "south")


def test_an_edge_server_reaches_the_nodes_near_it():
    assert distance_m((52.52, 13.405), (48.8566, 2.3522)) == pytest.approx(878e3, rel=0.01)  # Berlin, Paris
    assert distance_m((0.0, 179.9), (0.0, -179.9)) == pytest.approx(22_239, rel=0.01)
    nodes = labelled(3, "paris")
    nodes[100].location = "52.5,13.4"
    nodes[101].location = "48.9,2.3"
    rules = EdgeRules(places={"berlin": (52.52, 13.405), "paris": (48.86, 2.35)}, reach_m=30e3)
    grid, reports = on_edges(nodes, {"berlin": 5.0, "paris": 5.0}, edge_rules=rules)
    FedAvg(min_available_nodes=1).start(grid=grid, initial_arrays=model(), num_rounds=4)
    assert reports[-1].edges == {"n00": "berlin", "n01": "paris", "n02": "paris"}  # the last one by its own report
    assert rules.edges_of(NodeContext("x", edge="berlin"), (0.0, 0.0)) == ()


def test_budgets_are_spent_by_price():
    nodes = labelled(4, "north")
    for node, price in zip(nodes.values(), (3.0, 1.0, 0.0, 2.0), strict=True):
        node.config["price"] = price
    rules = EdgeRules(prices={"n03": 9.0}, least_price=0.5)
    assert rules.price_of(NodeContext("n02", price=0.0)) == 0.5
    assert rules.price_of(NodeContext("n03", price=2.0)) == 9.0
    assert rules.price_of(NodeContext("n09")) == 1.0
    grid, reports = on_edges(nodes, {"north": 3.0}, edge_rules=rules)
    FedAvg(min_available_nodes=1).start(grid=grid, initial_arrays=model(), num_rounds=30)
    price = {"n00": 3.0, "n01": 1.0, "n02": 0.5, "n03": 9.0}
    assert all(sum(price[name] for name in report.clients) <= 3.0 for report in reports)
    assert nodes[103].trained == 0
    assert nodes[100].trained > 0
    assert any(set(report.clients) == {"n01", "n02"} for report in reports)


@pytest.mark.parametrize(
    "options",
    [
        {"reach_m": 0.0},
        {"price": -1.0},
        {"least_price": -1.0},
        {"prices": {"a": -1.0}},
        {"edges": {"a": "north"}},
        {"places": {"north": (91.0, 0.0)}},
        {"places": {"north": (0.0, 181.0)}},
    ],
)
def test_edge_rules_out_of_range_are_refused(options):
    with pytest.raises(ConfigurationError):
        EdgeRules(**options)


# ---------------------------------------------------------------- edge models and restarts


class Killed(BaseException):
    pass


def aggregated(grid, arrays):
    """The global model after a round, before the strategy goes on."""
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=1)
    messages = train_messages(grid.get_node_ids())
    for message in messages:
        message.content["arrays"] = arrays
    merged, _ = strategy.aggregate_train(1, list(grid.send_and_receive(messages)))
    return arrays if merged is None else merged


def step(grid, arrays):
    """One round as Flower's strategies play it; returns the global model afterwards."""
    arrays = aggregated(grid, arrays)
    list(grid.send_and_receive([]))  # evaluation: the strategy has gone on
    return arrays


@pytest.mark.parametrize("killed_in", [1, 2, 3, 4])
@pytest.mark.parametrize("when", ["while waiting", "before aggregation", "after aggregation", "between the files"])
def test_edge_models_survive_a_killed_server(tmp_path, monkeypatch, killed_in, when):
    def federation():
        nodes = labelled(2, "north", "south")
        nodes[101].value = 10.0
        return nodes

    budgets = {"north": 1.0, "south": 1.0}
    straight, _ = on_edges(federation(), budgets, every=3)
    expected = model()
    for _ in range(6):
        expected = step(straight, expected)

    nodes, clock = federation(), Clock()
    grid, _ = on_edges(nodes, budgets, every=3, state_dir=tmp_path, clock=clock)
    arrays = model()
    for _ in range(killed_in - 1):
        arrays = step(grid, arrays)

    def kill(*_, **__):
        raise Killed

    if when == "while waiting":
        monkeypatch.setattr(grid._exchange, "clock", ClockThat(clock, kill))
        with pytest.raises(Killed):
            aggregated(grid, arrays)
    elif when == "before aggregation":
        aggregated(grid, arrays)  # what came of it is lost with the server
    elif when == "between the files":
        arrays = aggregated(grid, arrays)
        monkeypatch.setattr(grid._rounds._folder, "save", kill)
        with pytest.raises(Killed):
            list(grid.send_and_receive([]))
    else:
        arrays = step(grid, arrays)
    restarted, _ = on_edges(nodes, budgets, every=3, state_dir=tmp_path, clock=clock)
    done = killed_in if when in ("after aggregation", "between the files") else killed_in - 1
    for _ in range(6 - done):
        arrays = step(restarted, arrays)
    assert arrays["b"].numpy() == pytest.approx(expected["b"].numpy())
    assert [*restarted.selector.participation().values()] == [6, 6]


def test_without_their_file_edge_models_would_be_lost(tmp_path):
    nodes, clock = labelled(2, "north", "south"), Clock()
    nodes[101].value = 10.0
    budgets = {"north": 1.0, "south": 1.0}
    grid, _ = on_edges(nodes, budgets, every=3, state_dir=tmp_path, clock=clock)
    step(grid, model())
    (tmp_path / "edges.npz").unlink()
    restarted, _ = on_edges(nodes, budgets, every=3, state_dir=tmp_path, clock=clock)
    step(restarted, model())
    assert nodes[101].received[-1]["arrays"]["b"].numpy()[0] == 0.0  # the control: 10 with the file


def test_edge_models_are_kept_exactly(tmp_path):
    values = np.array([1.0, 1e-40, np.pi], np.float32)
    metrics = {"num-examples": 30.0, "loss": 0.1, "per-class": [0.25, 1.0 / 3.0]}
    held = RecordDict({"a/b": ArrayRecord({"w.0": Array(values)}), "m": MetricRecord(metrics)})
    edges = EdgeAggregation(every=4, models={"north": held}, since=2)
    edges.save(tmp_path / "edges.npz", round=9)
    again = EdgeAggregation(every=4)
    assert again.load(tmp_path / "edges.npz") == 9
    assert again.since == 2
    assert again.models["north"]["a/b"]["w.0"].numpy().tobytes() == values.tobytes()
    assert again.models["north"]["a/b"]["w.0"].dtype == "float32"
    assert dict(again.models["north"]["m"]) == metrics
    (tmp_path / "edges.npz").write_bytes(b"no file of ours")
    with pytest.raises(StateFileError, match="damaged"):
        again.load(tmp_path / "edges.npz")
    assert again.since == 2


def test_an_edge_server_without_nodes_in_the_global_round_still_hands_in_its_model():
    nodes = labelled(2, "north", "south")
    nodes[100].fate = ("ok", "error")
    nodes[101].value = 10.0
    grid, _ = on_edges(nodes, {"north": 1.0, "south": 1.0}, every=2)
    result = FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=model(), num_rounds=2)
    assert result.arrays["b"].numpy() == pytest.approx(np.full(2, (1.0 + 20.0) / 2.0))
