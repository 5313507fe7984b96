"""Malformed replies: each is refused with its reason, and never ends a run or shuts an honest node out."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import fleet, model, train_messages
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg, FedMedian, QFedAvg
from test_grid import play, selecting

from fedroster.core.problem import Status
from fedroster.engine.rules import AllRefusedError


def arrays(change):
    """Spoil every array."""

    def spoil(content):
        record = content["arrays"]
        for key in list(record):
            record[key] = change(record[key])

    return spoil


def values(change):
    return arrays(lambda array: Array(change(array.numpy())))


def claims(**changes):
    def change(array):
        parts = {"dtype": array.dtype, "shape": array.shape, "stype": array.stype, "data": array.data}
        return Array(**(parts | changes))

    return arrays(change)


def metrics(**changes):
    def spoil(content):
        for key, value in changes.items():
            content["metrics"][key.replace("_", "-")] = value

    return spoil


MALFORMED = {
    "no weight": lambda content: content["metrics"].pop("num-examples"),
    "weight is a list": metrics(num_examples=[1, 2]),
    "no examples": metrics(num_examples=0),
    "weight is negative": metrics(num_examples=-10),
    "weight is nearly minus that of the others": metrics(num_examples=-9),
    "weight is NaN": metrics(num_examples=float("nan")),
    "weight is huge": metrics(num_examples=1e300),
    "complex array": values(lambda array: array.astype(complex)),
    "integer array": values(lambda array: array.astype(np.int64)),
    "text array": values(lambda array: np.full(array.shape, "x")),
    "NaN": values(lambda array: array * np.nan),
    "other shape": values(lambda array: np.zeros((7, 7))),
    "object array": claims(dtype="object", data=b"cos\nsystem\n(S'true'\ntR."),
    "unreadable bytes": claims(data=b"\x00garbage"),
    "says another type than it is": claims(dtype="float32"),
    "says another shape than it has": claims(data=b"".join([b"\x93NUMPY\x01\x00v\x00{", b"}"])),
    "type of no name": claims(dtype=""),
    "unknown serialisation": claims(stype="pickle"),
    "no arrays": lambda content: content.pop("arrays"),
    "no metrics": lambda content: content.pop("metrics"),
    "an array is missing": lambda content: content["arrays"].pop("b"),
    "an array is added": lambda content: content["arrays"].update({"c": Array(np.zeros(2))}),
    "two records of arrays": lambda content: content.update({"more": model()}),
    "two records of metrics": lambda content: content.update({"more": MetricRecord({"num-examples": 10})}),
    "a metric is NaN": metrics(loss=float("nan")),
    "a metric holds NaN": metrics(loss=[0.5, float("nan")]),
    "1,000 records": lambda content: content.update({f"r{n}": MetricRecord({"a": 1}) for n in range(1_000)}),
}


@pytest.mark.parametrize(("m", "strategy"), [(1, FedAvg), (2, FedMedian), (3, FedAvg)])
@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_reply_is_refused_and_the_run_goes_on(kind, m, strategy, caplog):
    nodes = fleet(m)
    nodes[100].fate = (MALFORMED[kind],)
    nodes[100].delay_s = 0.5  # it answers first
    strategy = strategy(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0)
    grid, _, reports = selecting(nodes, m=m, strategy=strategy)
    result = grid.start(model(), num_rounds=2)
    assert [(report.status["n00"], report.num_in_time) for report in reports] == [(Status.FAILED, m - 1)] * 2
    assert caplog.text.count("the reply of n00 in round 1 is refused: ") == 1
    if m == 1:
        assert "round 1 has no update" in caplog.text
    elif type(strategy) is FedAvg:
        assert result.arrays["w"].numpy() == pytest.approx(np.full((3, 2), 2.0))
        assert result.arrays["w"].dtype == "float64"


def test_a_run_whose_replies_are_all_refused_for_one_reason_is_no_success():
    nodes = fleet(2, fate=(metrics(num_examples=0),))
    grid, _, reports = selecting(nodes, m=2, strategy=FedAvg(fraction_evaluate=0.0))
    with pytest.raises(AllRefusedError, match=r"all 2 replies .* refused: its weight 'num-examples' is 0"):
        grid.start(model(), num_rounds=2)
    assert [report.refused for report in reports] == [{"n00", "n01"}]


LARGE = {
    "1e300": values(lambda array: array + 1e300),
    "1e30": values(lambda array: array + 1e30),
    "a weight of 1e18": metrics(num_examples=1e18),
}


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize(("nodes", "m"), [(4, 2), (6, 1)])
def test_one_diverged_node_owns_no_model_and_nobody_else_is_blamed(kind, nodes, m, caplog):
    nodes = fleet(nodes)
    nodes[100].fate = ("ok", "ok", LARGE[kind])
    grid, _, reports = selecting(nodes, m=m, strategy=FedAvg(fraction_evaluate=0.0))
    result = grid.start(model(), num_rounds=40)
    assert result.arrays["w"].numpy() == pytest.approx(np.full((3, 2), 40.0), abs=1.0)
    assert {name for report in reports for name in report.refused} == {"n00"}
    assert caplog.text.count("is refused: its ") == sum(bool(report.refused) for report in reports)


def test_of_a_broken_model_no_node_is_blamed(caplog):
    nodes = fleet(3)
    grid, _, reports = selecting(nodes)
    messages = train_messages(nodes)
    for message in messages:
        message.content["arrays"] = model(float("nan"))
    assert list(grid.send_and_receive(messages)) == []
    assert "the model that is sent holds numbers that are not finite; no client is blamed" in caplog.text
    assert set(reports[0].status.values()) == {Status.LATE}
    assert grid.selector.paused() == {}


@pytest.mark.parametrize("metrics", [{}, *({"train_loss": loss} for loss in ([0.5], -1.0, 1e300))])
def test_a_loss_by_which_the_strategy_weighs_neither_ends_a_run_nor_owns_the_model(metrics):
    nodes = fleet(4, metrics={"train_loss": 0.001})
    nodes[100].metrics, nodes[100].value = metrics, 9.0
    nodes[101].metrics = {"train_loss": 2.0}
    strategy = QFedAvg(client_learning_rate=0.1, q=0.1, fraction_evaluate=0.0)
    grid, _, reports = selecting(nodes, m=4, strategy=strategy)
    result = grid.start(model(), num_rounds=2)
    assert [report.refused for report in reports] == [{"n00"}] * 2
    assert (result.arrays["w"].numpy() < 3.0).all()


def test_an_update_of_the_app_and_lists_of_several_lengths_are_no_failures():
    nodes = fleet(6)
    for number, node in enumerate(nodes.values()):
        node.metrics = {"losses": [0.5] * (number + 1)} | ({"new": 1.0} if number % 2 else {})
    grid, _, reports = selecting(nodes, m=3, strategy=FedAvg(fraction_evaluate=0.0))
    result = grid.start(model(), num_rounds=10)
    assert {report.num_in_time for report in reports} == {3}
    assert all(set(each) <= {"loss", "new"} for each in result.train_metrics_clientapp.values())


def test_arrays_get_the_order_that_was_sent():
    def turned(content):
        record = content["arrays"]
        content["arrays"] = ArrayRecord({key: record[key] for key in reversed(list(record))})

    nodes = fleet(3, metrics={"train_loss": 1.0})
    nodes[100].fate = (turned,)
    grid, fake, _ = selecting(nodes)
    assert {tuple(reply.content["arrays"]) for reply in play(grid, fake)[0]} == {("w", "b")}


def test_arrays_of_the_legacy_workflow_say_no_type(caplog):
    nodes = fleet(2)
    nodes[101].fate = (values(lambda array: array * np.nan),)
    grid, _, reports = selecting(nodes, m=2)
    messages = train_messages(nodes)
    untyped = claims(dtype="")
    for node in nodes.values():
        fate = node.fate[0]
        node.fate = (lambda content, fate=fate: [fate(content) if callable(fate) else None, untyped(content)],)
    untyped(messages[0].content)
    list(grid.send_and_receive(messages))
    assert reports[0].status["n00"] is Status.COMPLETED
    assert "not finite" in reports[0].reasons["n01"]


@pytest.mark.parametrize("metrics", [{"accuracy": 0.5, "more": 1.0}, {}, {"accuracy": [0.5, 0.5]}])
def test_a_fast_node_of_another_form_never_shuts_an_honest_partner_out(metrics):
    nodes = fleet(6, metrics={"accuracy": 0.5})
    nodes[105].delay_s, nodes[105].metrics = 0.1, metrics
    grid, _, reports = selecting(nodes, m=2, strategy=FedAvg(fraction_evaluate=0.0))
    grid.start(model(), num_rounds=40)
    honest = [status for report in reports[4:] for name, status in report.status.items() if name != "n05"]
    assert set(honest) == {Status.COMPLETED}
    assert any("n05" in report.clients for report in reports[4:])


def test_in_the_first_tie_of_all_the_common_metrics_are_kept():
    for first in (100, 101):
        nodes = fleet(2)
        nodes[first].delay_s = 0.2
        nodes[101].metrics = {"more": 1.0}
        grid, _, reports = selecting(nodes, m=2, strategy=FedAvg(fraction_evaluate=0.0))
        result = grid.start(model(), num_rounds=3)
        assert [report.num_in_time for report in reports] == [2, 2, 2]
        assert set(result.train_metrics_clientapp[1]) == {"loss"}


def test_what_a_reply_is_alone_it_is_in_evaluation_too(caplog):
    nodes = fleet(3)
    nodes[101].evaluation["num-examples"] = [1, 2]
    grid, *_ = selecting(nodes, strategy=FedAvg())
    result = grid.start(model(), num_rounds=2)
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2]
    assert "the reply of node 101 is refused: its weight 'num-examples' is [1, 2]" in caplog.text


def raises(sent, reply):
    if reply.metadata.src_node_id == 101:
        raise ZeroDivisionError("mine")


@pytest.mark.parametrize("check", [raises, None])
def test_a_check_of_ones_own_that_raises_refuses_the_reply_and_without_one_all_pass(check, caplog):
    nodes = fleet(2)
    nodes[101].fate = (MALFORMED["NaN"],)
    grid, fake, _ = selecting(nodes, m=2, check=check)
    assert len(play(grid, fake)[0]) == (2 if check is None else 1)
    assert ("it cannot be read (ZeroDivisionError: mine)" in caplog.text) is (check is not None)
