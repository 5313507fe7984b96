"""A run that is killed goes on from its folder: the round, its nodes, what was measured of them."""

import logging
import math
from types import SimpleNamespace

import pytest

from federations import after_a_kill
from fedroster import COCS, RBCSF, EdgeSelector, Record, Selector
from fedroster.core.problem import Status
from fedroster.engine.choose import Choice, Node
from fedroster.engine.contexts import NodeContext
from fedroster.engine.outcomes import OpenRound, Outcomes
from fedroster.engine.pushed import PushedRounds, Resumed
from fedroster.engine.rounds import Rounds
from fedroster.engine.rules import Ending, RoundRules
from fedroster.errors import ConfigurationError
from fedroster.folder.chain import lines_of
from fedroster.folder.events import Left
from fedroster.policies import ParticipationWeights
from fedroster.record import Log, verify
from fedroster.selector import note

POLICY = RBCSF(V=5.0, beta=0.1)
NAMES = ["a", "b", "c", "d"]
NODES = [Node(2**63 + number, NodeContext(name, edge="n,s"), 0.0, registered=True) for number, name in enumerate(NAMES)]


def run(folder, selector=None, **options):
    selector = Selector(POLICY, cohort_size=2, **options) if selector is None else selector
    return Rounds(selector, rules=RoundRules(), state_dir=folder, log=logging.getLogger(__name__))


def end(rounds, choice, time_s=2.0):
    outcomes = Outcomes()
    for name in choice.clients:
        outcomes.times_s[name] = time_s
        outcomes.status[name] = Status.COMPLETED
    rounds.end(OpenRound(choice, 4, 4, 0.0, outcomes=outcomes, round_s=time_s))


class Loop(Resumed):
    """What a loop of an engine knows of its run."""

    def __init__(self, rounds):
        self._desk = PushedRounds(rounds)


def test_whatever_was_noted_before_a_kill_goes_on(tmp_path):
    """A loop begins again with the round in which it was killed, until its model is saved."""
    rounds = run(tmp_path / "run")
    assert Loop(rounds).round == 0
    for number in range(1, 4):
        rounds.bandwidth_bps["a"] = 1e6 * number
        choice = rounds.choose(NODES, 1e6)
        again = run(after_a_kill(tmp_path / "run", tmp_path / "begun"))
        assert again.is_resuming
        assert Loop(again).round == Loop(rounds).round == number - 1
        assert again.current == rounds.current
        assert again.current.clients == {node.name: node.node_id for node in NODES if node.name in choice.clients}
        again.release()
        end(rounds, choice)
        again = run(after_a_kill(tmp_path / "run", tmp_path / "told"))
        assert again.is_resuming  # its aggregation may not be through, or its model not saved
        assert Loop(again).round == Loop(rounds).round == number - 1
        assert again.bandwidth_bps == {"a": 1e6 * number}
        assert again.selector.open_rounds() == {}
        end(again, again.go_on([node for node in NODES if node.name in again.current.clients]))  # none counts twice
        assert again.selector.participation("trained") == rounds.selector.participation("trained")
        again.release()
        rounds.settle(save=number % 2 == 0)
        again = run(after_a_kill(tmp_path / "run", tmp_path / "settled"))
        assert not again.is_resuming
        assert Loop(again).round == Loop(rounds).round == number
        assert again.choose(NODES, 1e6) == run(after_a_kill(tmp_path / "run", tmp_path / "twin")).choose(NODES, 1e6)
        again.release()
    assert verify(tmp_path / "run", POLICY).is_whole
    assert not Log(tmp_path / "run").header.contexts


class Connected:
    """An engine's clients; some of them are not there when they are first asked for."""

    num_connected = 4

    def __init__(self, late=()):
        self.late = {*late}

    def nodes(self, cohort):
        here = [node for node in NODES if node.name not in self.late and (cohort is None or node.name in cohort)]
        self.late.clear()
        return here

    def may_more_come(self):
        return True


@pytest.mark.parametrize("in_places", [False, True])
def test_with_a_key_a_round_goes_on_with_the_clients_that_say_their_names_again(in_places, tmp_path):
    """One of them comes later than others that could be chosen."""

    def desk(folder):
        record = Record(folder, key=b"0123456789abcdef", contexts=False)
        selector = Selector(POLICY, cohort_size=2, observers=[record])
        return PushedRounds(Rounds(selector, rules=RoundRules(wait_s=5.0), log=logging.getLogger(__name__)))

    first = desk(tmp_path / "run")
    chosen = first.begin(Connected(), 1e6, at_most=2 if in_places else None).choice
    again, connected = desk(after_a_kill(tmp_path / "run", tmp_path / "again")), Connected([*chosen.clients][:1])
    rounds = again.fill_again(connected) if in_places else [again.begin(connected, 1e6)]
    assert {name: at for each in rounds for name, at in each.choice.clients.items()} == chosen.clients
    assert {(each.choice.round, each.choice.is_resumed) for each in rounds} == {(1, True)}
    assert set(again.selector.open_rounds()[1]) == chosen.clients.keys()


def test_members_that_are_gone_for_long_leave_in_their_order(tmp_path):
    record = Record(tmp_path)
    selector = Selector(POLICY, cohort_size=2, observers=[record])
    rounds = Rounds(selector, rules=RoundRules(absent_rounds=1), log=logging.getLogger(__name__))
    names = [f"node-{number}" for number in range(9)]
    rounds.choose([Node(number, NodeContext(name), 0.0) for number, name in enumerate(names)], 1e6)
    rounds.choose(NODES[:1], 1e6)
    record.close()
    (left,) = (line.content for line in lines_of(tmp_path) if isinstance(line.content, Left))
    assert left.clients == tuple(names)


@pytest.mark.parametrize("predicted_s", [math.nan, 20.0])
def test_who_is_waited_for_is_said_when_others_took_a_third_of_the_time(tmp_path, caplog, predicted_s):
    now_s, choice = [299.0], Choice(1, {"a": 1, "b": 2}, predicted_s=predicted_s)
    desk = PushedRounds(run(tmp_path), now=lambda: now_s[0])
    ending = Ending(RoundRules(), wanted=2, sent_s=0.0, until_s=math.inf, given_up_s=math.inf)
    round_ = OpenRound(choice, 2, 2, 0.0, ending, {"b"}, usable=[SimpleNamespace(time_s=100.0)])
    assert not desk.is_complete(round_)
    assert "still waiting" not in caplog.text  # it was said after a minute where nothing is predicted
    now_s[0] = 300.0
    assert not desk.is_complete(round_)
    assert "still waiting for b, 300 s; no deadline is set" in caplog.text


def weighing(folder, **options):
    selector = Selector(ParticipationWeights(), cohort_size=2)
    return Rounds(
        selector, rules=RoundRules(), state_dir=folder, log=logging.getLogger(__name__), weighs=True, **options
    )


def test_weights_go_on_and_are_refused_where_nobody_applies_them(tmp_path):
    rounds = weighing(tmp_path / "run")
    choice = rounds.choose(NODES, 1e6)
    assert choice.weights == dict.fromkeys(choice.clients, 0.25)
    again = weighing(after_a_kill(tmp_path / "run", tmp_path / "begun"))
    resumed = again.go_on([node for node in NODES if node.name in choice.clients])
    assert (resumed.is_resumed, resumed.weights) == (True, choice.weights)
    with pytest.raises(ConfigurationError, match="says how much each update counts"):
        run(tmp_path / "other", Selector(ParticipationWeights(), cohort_size=2))


@pytest.mark.parametrize("is_in_places", [False, True])
def test_weights_go_on_where_a_kill_comes_before_their_note(is_in_places, tmp_path, monkeypatch):
    rounds = weighing(tmp_path / "run", is_in_places=is_in_places)
    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "_note", lambda self: None)
        choice = rounds.choose(NODES, 1e6)
    for place in ("killed", "killed again"):
        rounds = weighing(after_a_kill(tmp_path / "run", tmp_path / place), is_in_places=is_in_places)
        assert rounds.current.weights == choice.weights == dict.fromkeys(choice.clients, 0.5 if is_in_places else 0.25)
        assert {name: own.weights[name] for name, own in rounds.awaited().items()} == choice.weights
        rounds.release()


def test_an_open_round_that_the_folder_has_not_seen_goes_on_without_weights(tmp_path):
    selector = Selector(ParticipationWeights(), cohort_size=2, clients=NAMES)
    cohort = selector.select()
    selector.save(tmp_path / "state.npz")
    loaded = Selector.load(tmp_path / "state.npz", ParticipationWeights())
    rounds = Rounds(
        loaded, rules=RoundRules(), state_dir=tmp_path / "run", log=logging.getLogger(__name__), weighs=True
    )
    assert (set(rounds.current.clients), rounds.current.weights) == (set(cohort.clients), None)


def test_nodes_that_are_forgotten_leave_no_measure(tmp_path):
    rounds = run(tmp_path / "run")
    rounds.bandwidth_bps |= {"a": 1e6, "b": 2e6}
    end(rounds, rounds.choose(NODES, 1e6))
    rounds.selector.leave(["a"], forget=True)
    rounds.selector.join(["z"])  # in its place
    again = run(after_a_kill(tmp_path / "run", tmp_path / "copy"))
    assert again.bandwidth_bps == {"b": 2e6}


@pytest.mark.parametrize("clients", [(), NAMES])
def test_a_record_of_the_selectors_own_is_the_folder_of_the_run(clients, tmp_path):
    record = Record(tmp_path / "log")
    rounds = run(None, clients=clients, observers=[record])
    end(rounds, rounds.choose(NODES, 1e6))
    rounds.release()
    rounds = run(tmp_path / "log", observers=[Record(tmp_path / "log")])
    assert (rounds.selector.round, rounds.selector.clients) == (1, tuple(NAMES))
    end(rounds, rounds.choose(NODES, 1e6))
    rounds.release()
    found = verify(tmp_path / "log", POLICY)
    assert found.is_whole
    assert found.num_decided == 2
    with pytest.raises(ConfigurationError, match="state_dir"):
        run(tmp_path / "other", observers=[Record(tmp_path / "log")])


def test_clients_that_a_new_selector_has_are_in_its_folder(tmp_path):
    rounds = run(tmp_path, clients=NAMES)
    end(rounds, rounds.choose(NODES, 1e6))
    rounds.release()
    assert verify(tmp_path, POLICY).is_whole


def test_edges_of_a_round_go_on_and_a_kill_between_two_notes_leaves_none_of_another_round(tmp_path, monkeypatch):
    def selector():
        return EdgeSelector(COCS(), budgets={"n": 2.0, "s": 2.0}, cohort_size=2)

    rounds = run(tmp_path / "run", selector())
    end(rounds, rounds.choose(NODES, 1e6))
    kept = []

    def killed(selector, name, numbers, **options):
        kept.append(after_a_kill(tmp_path / "run", tmp_path / f"before-{name}"))
        note(selector, name, numbers, **options)

    monkeypatch.setattr("fedroster.engine.rounds.note", killed)
    choice = rounds.choose(NODES, 1e6)
    for folder in kept:
        again = run(folder, selector())
        assert again.current.clients.keys() == choice.clients.keys()
        assert again.current.edges in ({}, choice.edges)
        again.release()
    again = run(after_a_kill(tmp_path / "run", tmp_path / "whole"), selector())
    assert again.go_on(NODES).edges == choice.edges != {}
