"""The selecting grid among scripted nodes, on a virtual clock."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import Clock, ClockThat, FakeGrid, FakeNode, fleet, held, model, train_messages
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedTrimmedAvg,
    Krum,
)

from fedroster import RBCSF, FailureRules, Rules, Selector, Uniform
from fedroster.adapters.flower import ContextOptions, NoNodesError, RoundRules, RoundSink, SelectingGrid
from fedroster.core.errors import ConfigurationError, LogFileError, RoundNotBegunError
from fedroster.core.problem import Status
from fedroster.selector import settings_of


def selecting(
    nodes, *, m=3, policy=None, strategy=None, clock=None, rules=None, contexts=True, told=None, take=None, **options
):
    """A selecting grid on these nodes, the grid that it wraps, and its reports; ``told`` is the selector's."""
    told = dict(told or {})
    fake = FakeGrid(clock or Clock(), nodes, call_s=options.pop("call_s", 0.0))
    reports = []
    observers = [RoundSink(take or reports.append), *told.pop("observers", ())]
    kind = told.pop("kind", Selector)
    grid = held(
        partial(
            SelectingGrid,
            fake,
            kind(policy or Uniform(), cohort_size=m, observers=observers, **told),
            strategy,
            contexts=(ContextOptions() if contexts is True else contexts) or None,
            rules=rules or RoundRules(),
            clock=fake.clock,
        ),
        **options,
    )
    return grid, fake, reports


def play(grid, fake, rounds=1, timeout=None):
    return [list(grid.send_and_receive(train_messages(fake.get_node_ids()), timeout=timeout)) for _ in range(rounds)]


def evaluated(grid, nodes, timeout=None):
    return list(grid.send_and_receive(train_messages(nodes, "evaluate"), timeout=timeout))


def trained(nodes):
    return {node.name: node.trained for node in nodes.values()}


def counts(grid):
    return grid.selector.participation()


def arrive(grid, fake, nodes, time_s):
    """These nodes are there from this time on, and not before."""

    def sleep(seconds):
        fake.clock.sleep(seconds)
        for node in nodes:
            node.is_online = fake.clock.now() > time_s

    for node in nodes:
        node.is_online = False
    grid._exchange.clock = ClockThat(fake.clock, sleep)


def renumber(nodes, by=1000, **changes):
    """All nodes connect again, under new ids."""
    for node_id in list(nodes):
        nodes[node_id + by] = node = nodes.pop(node_id)
        vars(node).update(changes)


class Killed(BaseException):
    pass


def kill(*_):
    raise Killed


def interrupted(nodes, folder, *, m=2, **options):
    """A server that is killed while the cohort of round 2 trains; returns that cohort."""
    grid, fake, _ = selecting(nodes, m=m, state_dir=folder, **options)
    play(grid, fake)
    list(grid.send_and_receive([]))
    grid._exchange.clock = ClockThat(fake.clock, kill)
    with pytest.raises(Killed):
        play(grid, fake)
    return set(grid._rounds.current.clients)


STRATEGIES = {
    "FedAvg": lambda: FedAvg(),
    "FedAvg of a tenth": lambda: FedAvg(fraction_train=0.1),
    "FedAdam": lambda: FedAdam(),
    "FedAvgM": lambda: FedAvgM(server_momentum=0.9),
    "FedProx": lambda: FedProx(proximal_mu=0.25),
    "Krum": lambda: Krum(num_malicious_nodes=0),
    "FedTrimmedAvg": lambda: FedTrimmedAvg(beta=0.1),
    "DP": lambda: DifferentialPrivacyServerSideFixedClipping(
        FedAvg(fraction_train=0.0001, min_train_nodes=3), 0.01, 1.0, 3
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_trains_on_the_chosen_nodes_and_evaluates_on_all(name):
    nodes = fleet(12)
    strategy = STRATEGIES[name]()
    grid, _, reports = selecting(nodes, strategy=strategy)
    result = strategy.start(grid=grid, initial_arrays=model(), num_rounds=4)
    assert sum(trained(nodes).values()) == 12
    assert trained(nodes) == counts(grid)
    assert all(len(report.clients) == report.num_in_time == 3 for report in reports)
    assert all(node.evaluated == 4 for node in nodes.values())
    assert np.isfinite(result.arrays["w"].numpy()).all()
    assert [result.train_metrics_clientapp[number]["loss"] for number in (1, 2, 3, 4)] == pytest.approx([1.0] * 4)
    configs = [content["config"] for node in nodes.values() for content in node.received]
    assert name != "FedProx" or {config["proximal-mu"] for config in configs} == {0.25}


@pytest.mark.parametrize("call_s", [0.0, 0.02])
def test_times_are_measured_within_a_tenth_of_a_second(call_s):
    nodes = fleet(40, each=lambda number: {"delay_s": 0.013 + 0.37 * number})
    grid, fake, reports = selecting(nodes, m=40, call_s=call_s)
    play(grid, fake, 3)
    truth = {fake.nodes[node_id].name: time_s for node_id, time_s in fake.true_times_s}
    for report in reports:
        assert len(report.times_s) == 40
        errors = [abs(report.times_s[name] - truth[name]) for name in truth]
        assert max(errors) < 0.1
        assert report.round_s == pytest.approx(max(truth.values()), abs=0.1)


def test_the_deadline_of_a_round_closes_it_and_late_replies_are_learned_once():
    nodes = fleet(4)
    nodes[103].fate = (7.0,)
    rules = RoundRules(deadline_of=lambda number: 9.0 if number == 4 else 2.0)
    grid, fake, reports = selecting(nodes, m=4, rules=rules)
    assert [len(replies) for replies in play(grid, fake, 2)] == [3, 3]
    assert reports[0].round_s == pytest.approx(2.0, abs=0.1)
    assert reports[0].status["n03"] is None
    assert "n03" not in reports[1].clients  # still busy
    fake.clock.time_s = 1000.0 + 7.5
    play(grid, fake)
    assert grid.selector.open_rounds() == {}
    assert counts(grid)["n03"] == 1  # busy in rounds 2 and 3 begins before its reply is met
    assert len(play(grid, fake)[0]) == 4
    assert counts(grid)["n03"] == 2


@pytest.mark.parametrize(
    ("rules", "of_selector", "expected"),
    [
        (RoundRules(), 7.0, 7.0),
        (RoundRules(deadline_s=3.0), 5.0, 5.0),
        (RoundRules(deadline_s=3.0), 50.0, 6.0),
        (RoundRules(deadline_s=3.0, longest_s=4.0), None, 4.0),
        (RoundRules(deadline_s=3.0, longest_s=math.inf), 50.0, 50.0),
        (RoundRules(), "auto", "auto"),
        (RoundRules(deadline_s=3.0), "auto", 6.0),
    ],
)
def test_the_longest_time_that_is_learned_is_that_which_is_told_now(rules, of_selector, expected, tmp_path):
    assert rules.cap_s(of_selector) == expected
    grid, fake, _ = selecting(fleet(1), m=1, rules=RoundRules(longest_s=1.5), state_dir=tmp_path)
    play(grid, fake)
    for folder in (None, tmp_path):
        grid, *_ = selecting(fleet(1), m=1, rules=rules, told={"longest_s": of_selector}, state_dir=folder)
        assert grid.selector.longest_s == expected


def test_a_reply_that_is_met_after_the_deadline_is_late_though_the_server_overslept():
    nodes = fleet(2)
    nodes[101].delay_s = 2.5
    grid, fake, reports = selecting(nodes, m=2, contexts=False, rules=RoundRules(deadline_s=2.0))
    grid._exchange.clock = ClockThat(fake.clock, lambda seconds: fake.clock.sleep(seconds + 1.5))
    (replies,) = play(grid, fake)
    assert len(replies) == 1
    assert reports[-1].status == {"node-100": Status.COMPLETED, "node-101": Status.LATE}


@pytest.mark.parametrize(
    ("delays_s", "rules", "timeout_s", "num_used", "round_s"),
    [
        ((1.0, 2.0, 3.0, 4.0, 5.0), {"first": 3}, None, 3, 3.0),
        ((4.0, 5.0, 9.0), {"deadline_s": 2.0, "min_replies": 2}, None, 2, 5.0),
        ((1.0, 2.0, 9.0), {}, 5.0, 2, 5.0),
    ],
)
def test_a_round_ends_as_its_rules_and_the_strategys_timeout_say(delays_s, rules, timeout_s, num_used, round_s):
    nodes = fleet(len(delays_s), each=lambda number: {"delay_s": delays_s[number]})
    grid, fake, reports = selecting(nodes, m=len(nodes), rules=RoundRules(**rules))
    (replies,) = play(grid, fake, timeout=timeout_s)
    assert len(replies) == num_used
    assert reports[0].round_s == pytest.approx(round_s, abs=0.1)
    used = {name for name, status in reports[0].status.items() if status is Status.COMPLETED}
    assert used == {f"n{number:02d}" for number in range(num_used)}


def test_silent_nodes_are_given_up_though_replies_are_wanted(caplog):
    nodes = fleet(3, fate=("silent",))
    nodes[100].fate = ("ok",)
    grid, fake, reports = selecting(nodes, rules=RoundRules(deadline_s=20.0, min_replies=2))
    (replies,) = play(grid, fake)
    assert len(replies) == 1
    assert reports[0].round_s == pytest.approx(200.0, abs=0.1)
    assert "still waiting for n01, n02, 80 s; too few have answered" in caplog.text
    play(grid, fake)
    assert "n01 has not answered in round 1 and is given up" in caplog.text


FATES = {
    "error": Status.FAILED,
    "garbage": Status.FAILED,
    "expired": Status.DROPPED,
    "gone": Status.DROPPED,
    "twice": Status.COMPLETED,
}


@pytest.mark.parametrize("fate", FATES)
def test_faults_of_one_node_are_booked_and_training_goes_on(fate):
    nodes = fleet(4)
    nodes[102].fate = (fate,)
    grid, _, reports = selecting(nodes, m=4, policy=RBCSF(beta=0.5), rules=RoundRules(deadline_s=30.0))
    result = FedAvg(min_available_nodes=1).start(grid=grid, initial_arrays=model(), num_rounds=3)
    assert reports[0].status["n02"] is FATES[fate]
    assert [report.num_in_time for report in reports] == [3 + (fate == "twice")] * 3
    assert result.arrays["w"].numpy() == pytest.approx(np.full((3, 2), 3.0))
    assert grid.selector.open_rounds() == {}
    assert counts(grid)["n02"] == nodes[102].trained == (1 if fate == "gone" else 3)
    assert not any(math.isnan(value) for report in reports for value in report.times_s.values())


def test_a_reply_under_another_nodes_id_is_ignored():
    nodes = fleet(3)
    nodes[101].fate = ("stray", "ok")
    grid, fake, reports = selecting(nodes, rules=RoundRules(deadline_s=4.0, give_up_s=5.0))
    (replies,) = play(grid, fake)
    assert len(replies) == 2
    assert reports[0].status["n01"] is None


def test_a_straggler_whose_message_expires_is_dropped_once_though_another_node_says_so():
    nodes = fleet(3)
    nodes[101].fate = ("expired", "ok")
    nodes[101].delay_s = 5.0
    grid, fake, reports = selecting(nodes, rules=RoundRules(deadline_s=2.0, give_up_s=60.0))
    play(grid, fake)
    assert reports[0].status["n01"] is None
    assert grid.selector.open_rounds() == {1: ("n01",)}
    fake.clock.sleep(4.0)
    nodes[101].delay_s = 1.0
    play(grid, fake, 2)
    assert grid.selector.open_rounds() == {}
    assert reports[-1].status["n01"] is Status.COMPLETED
    assert sum(report.num_lost for report in reports) == 0  # it was missed in the first round, and is not counted again


def test_a_node_that_does_not_answer_queries_is_unavailable():
    nodes = fleet(4)
    nodes[100].answers_queries = False
    nodes[101].config = {"willing": False}
    grid, fake, reports = selecting(nodes, m=4)
    start_s = fake.clock.now()
    play(grid, fake)
    assert set(reports[0].clients) == {"n02", "n03"}
    assert fake.clock.now() - start_s < 60.0 + 2.0  # the first round waits for a cohort
    play(grid, fake)  # it is not waited for again
    assert fake.clock.now() - start_s < 60.0 + 4.0


def test_records_of_ours_do_not_reach_the_strategy():
    grid, fake, _ = selecting(fleet(3))
    (replies,) = play(grid, fake)
    assert all(set(reply.content) == {"arrays", "metrics"} for reply in replies)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ({}, "0 nodes are connected"),
        (fleet(3, config={"willing": False}), "3 are not willing"),
        ({100: FakeNode("")}, r"report_context\.register\(app\).*node 100: its name is ''"),
    ],
)
def test_nobody_who_can_be_chosen_is_an_error_that_says_why(nodes, why):
    grid, fake, _ = selecting(nodes, rules=RoundRules(wait_s=20.0))
    with pytest.raises(NoNodesError, match=why):
        list(grid.send_and_receive(train_messages([1])))
    assert fake.clock.now() == pytest.approx(1020.0, abs=1.0)


@pytest.mark.filterwarnings("ignore::fedroster.core.errors.FairnessWarning")
def test_rounds_that_rules_let_not_begin_pass_and_the_run_goes_on(caplog):
    groups = {"a": {"clients": ["n00", "n01", "n02"], "least": 2}, "b": {"clients": ["n03", "n04", "n05"], "least": 2}}
    told = {"rules": Rules(groups=groups, most_per_window=3, window=7)}
    grid, fake, reports = selecting(fleet(6), m=4, told=told, contexts=ContextOptions(trust_names=True))
    play(grid, fake, 4)
    assert [report.num_in_time for report in reports] == [4] * 4
    assert "is not begun: group" in caplog.text
    assert reports[-1].round == grid.selector.round > 4


def test_in_mid_run_nodes_are_waited_for_with_a_warning_a_minute(caplog):
    nodes = fleet(2)
    grid, fake, reports = selecting(nodes)
    play(grid, fake)
    arrive(grid, fake, nodes.values(), fake.clock.now() + 3600.0)
    list(grid.send_and_receive(train_messages(nodes)))
    assert [report.num_in_time for report in reports] == [2, 2]
    assert 55 <= caplog.text.count("waiting for clients: 0 nodes are connected") <= 60


def test_nodes_that_the_grid_refuses_are_dropped():
    grid, fake, reports = selecting(fleet(3))
    play(grid, fake)  # learns names first
    fake.refuse = {101}
    (replies,) = play(grid, fake)
    assert len(replies) == 2
    assert reports[-1].status["n01"] is Status.DROPPED
    assert grid._exchange.open == {}  # nothing is awaited of it


def test_mixed_messages_are_refused():
    grid, *_ = selecting(fleet(3))
    with pytest.raises(ConfigurationError, match="1 of 2 messages"):
        grid.send_and_receive([*train_messages([100]), *train_messages([101], "evaluate")])


def test_personal_messages_are_kept_when_everyone_has_one_and_refused_otherwise():
    def personal(node_ids):
        return [
            Message(
                content=RecordDict({"arrays": model(), "config": ConfigRecord({"mine": node_id})}),
                dst_node_id=node_id,
                message_type="train",
            )
            for node_id in node_ids
        ]

    grid, fake, _ = selecting(fleet(6))
    list(grid.send_and_receive(personal(range(100, 106))))
    for node_id, node in fake.nodes.items():
        assert all(content["config"]["mine"] == node_id for content in node.received)
    with pytest.raises(ConfigurationError, match=r"fraction_train = 1\.0"):
        list(grid.send_and_receive(personal([100, 101])))


@pytest.mark.parametrize(("evaluate", "expected"), [("", 3), ("all", 4), ("idle", 3), ("cohort", 2)])
def test_who_evaluates(evaluate, expected):
    nodes = fleet(4)
    nodes[100].fate = (50.0,)
    m = 2 if evaluate == "cohort" else 4
    grid, fake, _ = selecting(nodes, m=m, rules=RoundRules(deadline_s=3.0, evaluate=evaluate))
    play(grid, fake)
    assert len(evaluated(grid, nodes, 10.0)) == expected
    assert {flight.node_id for flight in grid._exchange.open.values()} == grid._roster.busy()


def test_the_rest_of_the_grid_is_the_wrapped_one_and_no_messages_are_no_round():
    grid, fake, _ = selecting(fleet(3))
    assert list(grid.send_and_receive([])) == []
    assert grid.selector.round == 0
    assert grid.run == "run"
    message = grid.create_message(RecordDict(), "query", 100, "g")
    (message_id,) = grid.push_messages([message])
    fake.clock.sleep(1.0)
    (reply,) = grid.pull_messages([message_id])
    assert reply.metadata.reply_to_message_id == message_id
    with pytest.raises(AttributeError):
        _ = grid.no_such_thing


# ---------------------------------------------------------------- restarts


@pytest.mark.parametrize("when", ["before sending", "while waiting", "before aggregation", "after aggregation"])
def test_a_killed_server_goes_on_where_it_stopped(tmp_path, when):
    nodes, is_done = fleet(8), when == "after aggregation"
    options = {"m": 3, "policy": RBCSF(beta=0.2), "clock": Clock(), "state_dir": tmp_path}
    grid, fake, _ = selecting(nodes, **options)
    play(grid, fake, 4)
    evaluated(grid, nodes)
    if when == "before sending":
        fake.on_push = kill
    elif when == "while waiting":
        grid._exchange.clock = ClockThat(fake.clock, kill)
    with pytest.raises(Killed) if when in ("before sending", "while waiting") else nullcontext():
        play(grid, fake)
    if is_done:
        evaluated(grid, nodes)
    cohort = set(grid._rounds.current.clients)
    assert sum(counts(grid).values()) == 15
    renumber(nodes)  # a new run
    before = trained(nodes)
    again, fake, reports = selecting(nodes, **options)
    play(again, fake)
    now = {name for name, count in trained(nodes).items() if count > before[name]}
    assert reports[0].resumed is not is_done
    assert is_done or now == cohort
    assert sum(counts(again).values()) == 15 + 3 * is_done  # no node is counted twice
    assert again.selector.open_rounds() == {}


def test_a_server_that_is_killed_again_while_it_resumes_still_goes_on(tmp_path):
    nodes = fleet(6)
    interrupted(nodes, tmp_path, m=3)
    again, fake, _ = selecting(nodes, m=3, state_dir=tmp_path)
    messages = train_messages(nodes)
    fake.get_node_ids = kill
    with pytest.raises(Killed):
        again.send_and_receive(messages)
    last, fake, reports = selecting(nodes, m=3, state_dir=tmp_path)
    play(last, fake)
    assert reports[0].resumed
    assert sum(counts(last).values()) == 6


def test_another_selector_does_not_resume_a_saved_one(tmp_path):
    grid, fake, _ = selecting(fleet(4), state_dir=tmp_path)
    play(grid, fake)
    with pytest.raises(ConfigurationError, match="cohort_size is 2"):
        selecting(fleet(4), m=2, state_dir=tmp_path)
    with pytest.raises(LogFileError, match="expected RBCSF"):
        selecting(fleet(4), policy=RBCSF(beta=0.0), state_dir=tmp_path)


def test_rules_that_are_given_at_a_restart_hold(tmp_path):
    grid, fake, _ = selecting(fleet(4), state_dir=tmp_path)
    play(grid, fake)
    told = {"failures": FailureRules(pause_after=1), "guarded": False, "longest_absence": 7, "longest_s": 9.0}
    again, _, _ = selecting(fleet(4), state_dir=tmp_path, told=told)
    now = settings_of(again.selector)
    assert {name: getattr(now, name) for name in told} == told | {"failures": (True, 1, 50)}


# -------------------------------------------------------------------- rules over nodes


def named(*names):
    """Nodes whose names an operator registered; an empty one reports a name of its own."""
    nodes = fleet(len(names))
    for node, name in zip(nodes.values(), names, strict=True):
        node.registered = name
    return nodes


def test_rules_hold_for_training_and_evaluation():
    nodes = named("clinic-1", "clinic-2", "lab-1", "")
    nodes[103].name = "clinic-3"  # says so itself
    grid, _, reports = selecting(nodes, m=4, told={"rules": Rules(allow=["clinic-*"])})
    FedAvg().start(grid=grid, initial_arrays=model(), num_rounds=3)
    assert [set(report.clients) for report in reports] == [{"clinic-1", "clinic-2"}] * 3
    assert [node.trained for node in nodes.values()] == [3, 3, 0, 0]
    assert [node.evaluated for node in nodes.values()] == [3, 3, 0, 0]
    assert grid.selector.excluded() == {
        "lab-1": "not on the allow list",
        "clinic-3": "it reports its own name, and the rules name clients",
    }


@pytest.mark.filterwarnings("ignore::fedroster.core.errors.FairnessWarning")
def test_a_round_waits_for_a_separation_and_then_says_why_it_is_not_begun():
    clock = Clock()
    told = {"rules": Rules(least_separation_s=20.0), "clock": clock.now}
    grid, fake, reports = selecting(fleet(3), m=3, clock=clock, told=told)
    before_s = clock.now()
    play(grid, fake, 3)
    assert [len(report.clients) for report in reports] == [3, 3, 3]
    assert clock.now() - before_s > 40.0
    grid.selector.rules = Rules(least_separation=2)
    play(grid, fake)  # round 4 cannot begin and passes
    assert [report.round for report in reports] == [1, 2, 3, 5]
    grid.selector.rules = Rules(deny=["n*"])
    with pytest.raises(RoundNotBegunError, match="round 6 is not begun: the rules exclude all 3 clients"):
        play(grid, fake)


def test_fewer_than_the_least_cohort_do_not_evaluate():
    nodes = named("a", "b", "c")
    grid, fake, _ = selecting(nodes, m=3, told={"rules": Rules(deny=["c"], least_cohort=2)})
    play(grid, fake)
    for ids in (fake.get_node_ids(), [100, 102]):
        evaluated(grid, ids)
        assert [node.evaluated for node in nodes.values()] == [1, 1, 0]


def test_messages_that_pass_unselected_are_said_once_and_asking_for_the_first_model_is_none_of_them(caplog):
    grid, fake, _ = selecting(fleet(3))

    def ask(kind):
        content = train_messages(fake.nodes)[0].content
        list(grid.send_and_receive([Message(content, dst_node_id=each, message_type=kind) for each in fake.nodes]))
        return [record.message for record in caplog.records if "go to all nodes" in record.message]

    assert ask("get_parameters") == ask("evaluate") == []
    assert len(ask("query")) == len(ask("query")) == 1
