"""Restarts, silence, times and what is said of them: nothing ends a run or goes unsaid."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import FakeNode, fleet, model, reply_to, train_messages
from flwr.app import Array, ArrayRecord, Error
from flwr.serverapp.strategy import FedAvg
from test_grid import counts, evaluated, interrupted, play, renumber, selecting

from fedroster import RBCSF
from fedroster.adapters.flower import ContextOptions, RoundRules
from fedroster.core.problem import Status
from fedroster.folder.events import Told

# ---------------------------------------------------------------- restarts


def test_a_run_of_five_rounds_that_was_killed_in_its_second_has_four_to_play_and_then_none(tmp_path):
    nodes = fleet(6)
    interrupted(nodes, tmp_path)
    numbers = []
    again, *_ = selecting(nodes, m=2, state_dir=tmp_path, strategy=FedAvg(fraction_evaluate=0.0))
    assert again.round == 1
    again.start(model(), num_rounds=5, evaluate_fn=lambda number, arrays: numbers.append(number))
    assert numbers == [1, 2, 3, 4, 5]  # the model that it begins with is that of round 1
    assert again.round == again.selector.round == 5
    list(again.send_and_receive([]))
    again, *_ = selecting(nodes, m=2, state_dir=tmp_path, strategy=FedAvg(fraction_evaluate=0.0))
    again.start(model(), num_rounds=5, evaluate_fn=lambda number, arrays: numbers.append(number))
    assert numbers == [1, 2, 3, 4, 5, 5]
    assert again.selector.round == 5


@pytest.mark.parametrize("by", [0, 1000])
@pytest.mark.parametrize("changes", [{"query_delay_s": 45.0}, {"answers_queries": False}])
def test_the_interrupted_cohort_goes_on_under_its_ids_its_names_or_its_registered_names(tmp_path, by, changes):
    nodes = fleet(6)
    for node in nodes.values():
        node.registered = "" if changes.get("answers_queries", True) else node.name
    cohort = interrupted(nodes, tmp_path)
    renumber(nodes, by, **changes)
    again, fake, reports = selecting(nodes, m=2, state_dir=tmp_path)
    before = fake.clock.now()
    play(again, fake)
    assert (reports[0].round, set(reports[0].clients), reports[0].num_in_time) == (2, cohort, 2)
    assert reports[0].resumed
    assert by or fake.clock.now() - before < 10.0  # nothing has to be asked of nodes whose ids are known
    assert sum(counts(again).values()) == 4


def test_a_node_that_is_gone_is_named(tmp_path, caplog):
    nodes = fleet(4)
    gone = sorted(interrupted(nodes, tmp_path))[0]
    for node in nodes.values():
        node.is_online = node.name != gone
    again, fake, reports = selecting(nodes, m=2, state_dir=tmp_path, rules=RoundRules(wait_s=20.0))
    before = fake.clock.now()
    assert len(play(again, fake)[0]) == 1
    assert 20.0 <= fake.clock.now() - before < 25.0
    assert reports[0].num_in_time == 1
    assert f"gone since round 2 was interrupted: {gone}" in caplog.text
    assert again.selector.open_rounds() == {}
    renumber(nodes, is_online=True)
    play(again, fake)
    assert reports[1].num_available == 4  # it is back, and not busy


@pytest.mark.parametrize(("min_nodes", "least"), [(0, 3), (5, 5)])
def test_the_first_round_waits_for_a_cohort_or_for_as_many_as_it_is_told(min_nodes, least):
    nodes = fleet(6, each=lambda number: {"query_delay_s": 0.1 + 15.0 * number})
    grid, fake, reports = selecting(nodes, m=3, rules=RoundRules(min_nodes=min_nodes, wait_s=100.0))
    play(grid, fake)
    assert least <= reports[0].num_available < 6
    nodes[200] = FakeNode("late", query_delay_s=20.0)
    play(grid, fake)  # later rounds wait for one only
    assert reports[1].select_s < 1.0


# ---------------------------------------------------------------- what is said


def test_every_round_has_one_line_in_flowers_log_whatever_nodes_say(caplog):
    fates = ("ok", 7.0, "error", "nan", "gone")
    nodes = fleet(5, each=lambda number: {"fate": (fates[number],)})
    grid, fake, _ = selecting(nodes, m=5, policy=RBCSF(beta=0.5), rules=RoundRules(deadline_s=3.0))
    play(grid, fake)
    (line,) = (record for record in caplog.records if record.getMessage().startswith("round 1: "))
    assert (line.name, line.levelname) == ("flwr.fedroster", "INFO")
    text = line.getMessage()
    for part in (
        "1 of 5 updates used in 3.0 s: n00, the last after 1.0 s; not answered yet n01; failed",
        r"failed n02 (\x1b[31mTraceback round 9: 2 of 2 updates used xxx",
        "xxx at last)",
        "refused n03 (array 'w' holds numbers that are not finite)",
        "lost n04 (node unavailable)",
    ):
        assert part in text
    fake.clock.sleep(5.0)
    play(grid, fake)
    assert "n01 in round 1, which is over: its update came after" in caplog.text
    assert all("\n" not in said and len(said) < 600 for said in caplog.messages)


def test_nodes_that_are_shut_out_are_told_once_and_why(caplog):
    nodes = fleet(6)
    nodes[101].name = "x" * 5000
    nodes[102].config = {"willing": "yes"}
    nodes[103].answers_queries = False
    nodes[104].name = "n00"
    refuse = nodes[105]
    grid, fake, _ = selecting(nodes, m=6, contexts=ContextOptions(fresh_s=1.0, timeout_s=2.0))
    react = fake._react

    def raising(node_id, message):
        react(node_id, message)
        if fake.nodes[node_id] is refuse and message.metadata.message_type.startswith("query"):
            fake.mail[-1] = (fake.mail[-1][0], reply_to(message, node_id, None, Error(2, "No query function")))

    fake._react = raising
    play(grid, fake, 3)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sorted(line for line in warned if "is excluded" in line) == [
        f"node 101 is excluded: its name is '{'x' * 199}...; expected 1 to 128 printable characters",
        "node 102 is excluded: 'willing' is 'yes'; expected true or false",
        "node 103 is excluded: it gave no context within 2 s",
        "node 104 is excluded: it claims the name 'n00', which is not its own",
        "node 105 is excluded: the query for its context failed: No query function",
    ]


def test_reports_of_rounds_hold_what_the_policy_knows():
    nodes = fleet(6, each=lambda number: {"delay_s": 1.0 + number})
    grid, fake, reports = selecting(nodes, m=2, policy=RBCSF(V=5.0, beta=0.3))
    play(grid, fake, 30)
    last = reports[-1]
    assert last.predicted_s == pytest.approx(max(last.times_s.values()), rel=0.2)
    assert math.fsum(last.rate) == pytest.approx(2.0)
    assert last.least_rate >= 0.3 - last.backlog.max() / 30 - 1e-9


def test_a_sink_that_fails_does_not_stop_training(caplog):
    grid, fake, _ = selecting(fleet(3), take=lambda report: 1 / 0)
    assert len(play(grid, fake, 2)[1]) == 3
    assert "division by zero" in caplog.text


# ---------------------------------------------------------------- evaluation


@pytest.mark.parametrize(("rules", "limit_s"), [({}, 5.0), ({"evaluate_deadline_s": 2.0}, 2.0)])
def test_evaluation_keeps_the_deadline(rules, limit_s, caplog):
    nodes = fleet(4)
    nodes[103].evaluation = None
    grid, fake, _ = selecting(nodes, m=4, rules=RoundRules(deadline_s=5.0, **rules))
    play(grid, fake)
    before = fake.clock.now()
    assert len(evaluated(grid, nodes, 3600.0)) == 3
    assert grid._exchange.open == {}  # it is waited for no more
    assert fake.clock.now() - before == pytest.approx(limit_s, abs=0.1)
    assert f"1 of 4 nodes have not answered in {limit_s:.0f} s" in caplog.text


def test_a_training_without_a_context_counts_all_the_same():
    nodes = fleet(2, fate=("unreported",))
    grid, fake, reports = selecting(nodes, m=2)
    play(grid, fake, 3)
    assert [set(report.status.values()) for report in reports] == [{Status.COMPLETED}] * 3


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("version", "is_new"), [("1.22.0", False), ("1.42.9", False), ("1.43.0", True), ("2.0.0rc1", True), ("dev", False)]
)
def test_a_flower_newer_than_what_was_tested_is_warned_of(monkeypatch, caplog, version, is_new):
    monkeypatch.setattr("fedroster.engine.rounds.metadata.version", lambda name: version)
    selecting(fleet(1))
    assert ("was tested up to 1.42" in caplog.text) is is_new


# ---------------------------------------------------------------- times


def broken(content):
    content["arrays"] = ArrayRecord({"w": Array(np.full((3, 2), np.nan)), "b": Array(np.zeros(2))})


@pytest.mark.parametrize("fate", ["error", "expired", "gone", broken, "silent"])
@pytest.mark.parametrize("deadline_s", [math.inf, 100.0, 20.0])
def test_a_drop_out_of_a_minute_costs_a_minute(fate, deadline_s):
    """It is learned as the time at which it was settled; the last update that is used has a number of its own."""
    told = []
    nodes = fleet(2)
    nodes[101].fate, nodes[101].delay_s = (fate,), 60.0
    rules = RoundRules(deadline_s=deadline_s, give_up_s=200.0, longest_s=math.inf)
    observers = [lambda event, _: told.append(event)]
    grid, fake, reports = selecting(nodes, m=2, rules=rules, told={"observers": observers})
    list(grid.send_and_receive(train_messages(nodes), timeout=300.0))
    for _ in range(20):
        fake.clock.sleep(20.0)
        grid._exchange.look()
        grid._desk.busy()
    round_s = min(deadline_s, 300.0 if fate == "silent" else 60.0)
    settled_s = max(200.0, round_s) if fate == "silent" else 60.0
    learned_s = [
        time_s
        for event in told
        if isinstance(event, Told)
        for slot, time_s in zip(event.feedback.client, event.learned_s, strict=True)
        if grid.selector.ids_of(np.array([slot])) == ("n01",)
    ]
    assert learned_s == [pytest.approx(settled_s + 10.0, abs=11.0)]
    assert reports[0].used_s == pytest.approx(1.0, abs=0.2)
    assert reports[0].round_s == pytest.approx(round_s, abs=1.0)
