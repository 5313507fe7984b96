"""What nodes report, and how little of it is believed."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import FakeNode, fleet, model
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from test_grid import play, selecting

from fedroster import RBCSF
from fedroster.adapters.flower import ContextOptions, ContextReporter, NodeContext, paper_features, report_context
from fedroster.adapters.flower.context import RECORD
from fedroster.core.errors import InvalidInputError
from fedroster.engine.contexts import measured_bandwidth, read_context


def context_of(**node_config) -> Context:
    return Context(run_id=1, node_id=7, node_config=node_config, state=RecordDict(), run_config={})


def message(kind: str) -> Message:
    made = Message(content=RecordDict({"arrays": model()}), dst_node_id=7, message_type=kind)
    made.metadata.__dict__["_message_id"] = "m"
    return made


def record(**values) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({key.replace("_", "-"): value for key, value in values.items()})})


def test_the_node_config_is_reported_and_read_back():
    told = {"cpu-share": 0.5, "bandwidth-bps": 1e6, "num-examples": 120, "willing": False, "edge": "north"}
    found = report_context.report(context_of(name="alice", **told))
    assert read_context(found) == NodeContext("alice", 0.5, 1e6, 120, False, "north")


@pytest.mark.parametrize(
    ("measured", "config", "expected"),
    [
        ({}, {"partition-id": 3}, {"name": "partition-3"}),
        ({}, {}, {"name": "node-7"}),
        ({}, {"partition-id": 1, "client-name": "site-2"}, {"name": "site-2"}),  # inside NVFlare
        ({}, {"partition-id": 1, "client-name": "site-2", "name": "mine"}, {"name": "mine"}),
        ({"cpu-share": 0.25, "num-examples": 9}, {"name": "a", "cpu-share": 1.0}, {"cpu-share": 0.25}),
        ({"num-examples": None, "price": 2.0}, {"num-examples": 5}, {"num-examples": 5, "price": 2.0}),
    ],
)
def test_what_the_application_measures_goes_before_the_config(measured, config, expected):
    assert expected.items() <= ContextReporter(lambda context: measured).report(context_of(**config)).items()


@pytest.mark.parametrize("wrong", [OSError("no battery"), {"cpu-share": object()}, 7])
def test_a_reporter_that_fails_loses_no_training(wrong, caplog):
    def measure(context):
        if isinstance(wrong, OSError):
            raise wrong
        return wrong

    content = RecordDict({"arrays": model()})
    reply = ContextReporter(measure)(message("train"), context_of(), lambda m, c: Message(content, reply_to=m))
    assert set(reply.content) == {"arrays"}
    assert "goes without a context" in caplog.text


def test_the_free_processor_share_is_measured_when_none_is_declared(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 0.0, 0.0))
    assert ContextReporter().report(context_of())["cpu-share"] == pytest.approx(0.25)
    monkeypatch.setattr("os.getloadavg", lambda: (9.0, 0.0, 0.0))
    assert ContextReporter().report(context_of())["cpu-share"] == 0.01
    monkeypatch.delattr("os.getloadavg")  # Windows has none
    assert ContextReporter().report(context_of())["cpu-share"] == 1.0


def test_an_app_answers_queries_and_attaches_its_context_to_training_only():
    app = ClientApp(mods=[report_context])
    report_context.register(app)

    @app.train()
    def train(message, context):
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict(), reply_to=message)

    context = context_of(name="a")
    assert read_context(app(message("query.fedroster"), context).content[RECORD]).name == "a"
    reply = app(message("train"), context)
    assert set(reply.content) == {"arrays", RECORD}
    assert read_context(reply.content[RECORD]).busy_s >= 0.0
    assert RECORD not in app(message("evaluate"), context).content
    alone = ClientApp(client_fn=lambda context: None, mods=[report_context])
    assert read_context(alone(message("query.fedroster"), context).content[RECORD]).name == "a"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"cpu_share": -5.0}, NodeContext("a", 0.01)),
        ({"cpu_share": math.nan}, NodeContext("a")),
        ({"cpu_share": "fast"}, NodeContext("a")),
        ({"bandwidth_bps": math.inf}, NodeContext("a", bandwidth_bps=1e12)),
        ({"bandwidth_bps": 0.0}, NodeContext("a", bandwidth_bps=1e3)),
        ({"num_examples": -1}, NodeContext("a")),
        ({"num_examples": 10**18}, NodeContext("a", num_examples=10**12)),
        ({"willing": "yes"}, NodeContext("a", willing=False, doubt="'willing' is 'yes'; expected true or false")),
        ({"edge": "e" * 1000}, NodeContext("a")),
        ({"edge": "a\nb"}, NodeContext("a")),
        ({"busy_s": -3.0}, NodeContext("a", busy_s=0.0)),
    ],
)
def test_values_are_clipped(values, expected):
    assert read_context(record(name="a", **values)[RECORD]) == expected


@pytest.mark.parametrize(
    "name",
    [None, "", "x" * 129, "a\nb", 1.5, True, 1 << 20_000],
    ids=["none", "empty", "long", "line", "float", "bool", "huge"],
)
def test_what_has_no_usable_name_is_no_context(name):
    with pytest.raises(InvalidInputError, match="expected 1 to 128 printable characters"):
        read_context({} if name is None else {"name": name})


def test_papers_features():
    nodes = [NodeContext("a", 0.5), NodeContext("b", 1.0)]
    features = paper_features(nodes, bandwidth_bps=np.array([1e6, 2e6]), cold=np.array([True, False]), model_bit=4e6)
    assert features.tolist() == [[2.0, 1.0, 4.0], [1.0, 0.0, 2.0]]


def test_bandwidth_is_measured_and_bounded():
    assert measured_bandwidth(8e6, 5.0, 1.0) == pytest.approx(2e6)
    assert measured_bandwidth(8e6, 5.0, 500.0) == 1e12
    assert measured_bandwidth(1.0, 5000.0, 0.0) == 1e3


def test_measured_bandwidth_is_used_when_none_is_declared():
    nodes = fleet(2)
    nodes[100].config = {"bandwidth-bps": 5e5}
    seen = []

    def features(contexts, *, bandwidth_bps, **others):
        seen.append(bandwidth_bps.tolist())
        return paper_features(contexts, bandwidth_bps=bandwidth_bps, **others)

    grid, fake, _ = selecting(nodes, m=2, policy=RBCSF(beta=0.1), contexts=ContextOptions(features=features))
    play(grid, fake, 2)
    model_bit = 8 * sum(len(array.data) for array in model().values())
    assert seen == [[5e5, 1e7], [5e5, pytest.approx(2 * model_bit / 1.0, rel=0.1)]]  # there and back in a second


def test_newcomers_do_not_hold_up_a_round():
    nodes = fleet(5)
    grid, fake, reports = selecting(nodes, m=3)
    play(grid, fake)
    nodes[200] = FakeNode("slow to answer", query_delay_s=8.0)
    play(grid, fake)
    assert reports[-1].select_s < 0.5
    play(grid, fake, 20)
    assert nodes[200].trained > 0


def test_contexts_are_renewed_at_half_their_life_without_waiting():
    nodes = fleet(3, query_delay_s=0.5)
    grid, fake, reports = selecting(nodes, m=1)
    play(grid, fake, 3)
    assert [node.queries for node in nodes.values()] == [1, 1, 1]
    fake.clock.sleep(200.0)
    play(grid, fake, 2)
    fake.clock.sleep(200.0)
    play(grid, fake)
    assert [report.select_s for report in reports[1:]] == [0.0] * 5
    assert [node.queries for node in nodes.values()] == [3, 3, 3]


def test_a_context_under_another_name_changes_nothing():
    grid, fake, _ = selecting({})
    roster = grid._roster
    assert roster.note(1, record(name="a")).name == "a"
    fake.clock.sleep(1.0)
    assert roster.note(1, record(name="b")) is None
    assert roster.note(2, record(name="a")) is None
    assert [node.seen_s for node in roster.named("a")] == [1000.0]
    assert roster.stale([1, 2]) == []  # the impostor is not asked again
    fake.nodes[2] = FakeNode("a")
    assert [node.node_id for node in roster.nodes(None)] == [2]  # the first one is gone, and its name free


# ---------------------------------------------------------------- names and places from the SuperLink


def test_a_registered_name_goes_before_what_a_node_says():
    nodes = fleet(3)
    nodes[100].registered = "clinic"
    nodes[100].name = ""  # needs none of its own
    nodes[101].name = "clinic"  # claims to be the first one
    grid, fake, reports = selecting(nodes, m=3)
    play(grid, fake, 2)
    assert set(reports[-1].clients) == {"clinic", "n02"}
    assert nodes[100].trained == 2
    assert nodes[101].trained == 0


def test_a_name_that_was_claimed_first_goes_to_the_node_for_which_it_is_registered(caplog):
    nodes = fleet(2)
    nodes[101].name = "clinic"
    grid, fake, reports = selecting(nodes, m=3)
    play(grid, fake)
    assert nodes[101].trained == 1
    nodes[300] = FakeNode("whatever", registered="clinic")
    play(grid, fake, 3)
    assert "node 101 is excluded: its name 'clinic' is registered for node 300" in caplog.text
    assert nodes[101].trained == 1
    assert nodes[300].trained == 3
    nodes[300].is_online = False
    play(grid, fake, 3)
    assert nodes[101].trained == 1  # not even while the owner is away
    assert reports[-1].clients == ("n00",)


def test_registered_names_count_without_contexts_too():
    nodes = fleet(3)
    nodes[100].registered = "clinic"
    grid, fake, reports = selecting(nodes, m=3, contexts=False)
    play(grid, fake)
    assert set(reports[-1].clients) == {"clinic", "node-101", "node-102"}
    assert not any(node.queries for node in nodes.values())


def test_grids_that_know_ids_only_do():
    nodes = fleet(2)
    grid, fake, reports = selecting(nodes, m=2)
    fake.get_nodes = lambda: (type("Info", (), {"node_id": node_id})() for node_id in nodes)
    play(grid, fake)
    assert set(reports[-1].clients) == {"n00", "n01"}
