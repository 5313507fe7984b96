"""Clients of a Collab job that a policy chooses, in FLARE's own groups with sites that are threads."""

from __future__ import annotations

import logging
import math
import time

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVFlare: run .ci/nvflare, or install the extra 'nvflare'")

from fake_flare import Site, job, model
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.collab.api.exceptions import RunAborted

from fedroster import Rules, Selector, Uniform, make_policy
from fedroster.adapters.nvflare import NoNodesError, RoundRules, RoundSink, SelectingClients
from fedroster.core.errors import ConfigurationError, InUseError, InvalidInputError
from fedroster.core.problem import Status
from fedroster.folder.events import Told


def clients_of(m=2, policy=None, rules=None, **options):
    reports = []
    selector = Selector(policy or Uniform(), cohort_size=m, observers=[RoundSink(reports.append)])
    clients = SelectingClients(selector, rules=rules or RoundRules(), **options)
    return clients, reports


def test_a_round_calls_the_cohort_and_nobody_else():
    sites = {f"site-{n}": Site() for n in range(5)}
    with job(sites):
        clients, reports = clients_of(m=2)
        replies = clients.call("train", model(), number=7)
    assert {reply.name for reply in replies} == {name for name, site in sites.items() if site.log == [7]}
    assert sum(len(site.log) for site in sites.values()) == len(replies) == 2
    assert all((reply.content[0]["w"] == 1.0).all() and reply.time_s >= 0.01 for reply in replies)
    assert [report.round for report in reports] == [1]
    assert reports[0].num_connected == reports[0].num_available == 5


def test_a_job_with_fewer_sites_than_a_cohort_warns_and_waits_for_none_since_none_can_come(caplog):
    with job({"a": Site(), "b": Site()}):
        clients, _ = clients_of(m=5)
        started_s = time.monotonic()
        replies = clients.call("train", model())
        assert time.monotonic() - started_s < 10.0
    assert {reply.name for reply in replies} == {"a", "b"}
    assert "only 2 clients can be chosen; the first round was to have 5" in caplog.text


@pytest.mark.parametrize(("fate", "deadline_s"), [("raises", math.inf), ("gone", 5.0)])
def test_a_client_that_is_lost_late_is_learned_as_a_slow_one(fate, deadline_s):
    told = []
    sites = {"lost": Site(delay_s=0.5, fate=(fate,)), "good": Site()}
    with job(sites):
        clients, reports = clients_of(m=2, rules=RoundRules(deadline_s=deadline_s))
        clients.selector._observers._observers += (lambda event, _: told.append(event),)
        assert [reply.name for reply in clients.call("train", model())] == ["good"]
    (told,) = (event for event in told if isinstance(event, Told))
    assert told.learned_s.max() >= 0.5
    assert reports[0].status["lost"] is (Status.DROPPED if fate == "gone" else Status.FAILED)
    assert reports[0].round_s >= 0.5
    assert reports[0].used_s < 0.4


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("raises", "no data here"),
        (None, "NoneType"),
        ([1.0, 2.0], "list"),
        ({}, "its arrays are none"),
        ({"w": np.zeros((3, 2))}, "its arrays are 'w'"),
        ({"w": np.zeros((3, 2)), "b": np.zeros(2), "c": np.zeros(1)}, "'c'"),
        ({"w": np.zeros((2, 3)), "b": np.zeros(2)}, "shape (2, 3)"),
        ({"w": np.full((3, 2), math.nan), "b": np.zeros(2)}, "not finite"),
        ({"w": np.full((3, 2), "x"), "b": np.zeros(2)}, "expected numbers"),
        ({"w": [[1.0], [2.0, 3.0]], "b": np.zeros(2)}, "cannot be read"),
        (({"w": np.zeros((3, 2)), "b": np.zeros(2)}, {"num-examples": -1}), "weight"),
        (({"w": np.zeros((3, 2)), "b": np.zeros(2)}, {"num-examples": "many"}), "weight"),
        (({"w": np.zeros((3, 2)), "b": np.zeros(2)}, {"loss": math.inf}), "'loss' is inf"),
        (({"w": np.zeros((3, 2)), "b": np.zeros(2)}, {"loss": np.float32("nan")}), "'loss' is nan"),
        (({"w": np.zeros((3, 2)), "b": np.zeros(2)}, {"loss": np.array([1.0, math.nan])}), "'loss' is [ 1. nan]"),
        (FLModel(params={"w": np.zeros(1), "b": np.zeros(2)}), "shape (1,)"),
    ],
)
def test_a_malformed_reply_is_refused_with_its_reason_and_ends_a_round_as_others_do(returned, reason):
    with job({"bad": Site(fate=(returned,)), "good": Site()}):
        clients, reports = clients_of(m=2)
        assert [reply.name for reply in clients.call("train", model())] == ["good"]
    assert reports[0].status["bad"] is Status.FAILED
    assert set(reports[0].times_s) == {"good"}
    assert reason in reports[0].reasons["bad"]


@pytest.mark.parametrize("wrong", [1e300, 1e30])
def test_a_diverged_client_is_refused_and_owns_no_round(wrong):
    reply = {"w": np.full((3, 2), wrong), "b": np.zeros(2)}
    heavy = {"w": np.ones((3, 2)), "b": np.ones(2)}, {"num-examples": 1e18}
    sites = {"bad": Site(fate=(reply,)), "heavy": Site(fate=(heavy,)), "a": Site(), "b": Site(), "c": Site()}
    with job(sites):
        clients, reports = clients_of(m=5)
        assert {reply.name for reply in clients.call("train", model())} == {"a", "b", "c"}
    assert reports[0].refused == {"bad", "heavy"}
    assert "its change is" in reports[0].reasons["bad"]
    assert "its weight is" in reports[0].reasons["heavy"]


def test_nobody_is_blamed_for_a_broken_model(caplog):
    broken = {"w": np.full((3, 2), math.nan), "b": np.zeros(2)}
    with job({"a": Site(fate=(broken,)), "b": Site(fate=(broken,))}):
        clients, reports = clients_of(m=2)
        assert clients.call("train", broken) == []
    assert "the model that is sent holds numbers that are not finite; no client is blamed" in caplog.text
    assert set(reports[0].status.values()) == {Status.LATE}
    assert sum(clients.selector.participation("trained").values()) == 2


def test_no_client_for_long_is_an_error_that_says_why():
    with job({"stuck": Site(fate=(3.0,))}):
        clients, _ = clients_of(m=1, rules=RoundRules(deadline_s=0.05, wait_s=0.2))
        assert clients.call("train", model()) == []
        with pytest.raises(NoNodesError, match="1 clients are connected and 1 are still busy"):
            clients.call("train", model())


def test_an_aborted_run_ends_the_wait():
    with job({"stuck": Site(fate=(3.0,))}) as signal:
        clients, _ = clients_of(m=1)
        signal.trigger(True)
        with pytest.raises(RunAborted):
            clients.call("train", model())


def test_a_run_goes_on_after_a_restart_with_the_interrupted_round(tmp_path):
    sites = {f"site-{n}": Site() for n in range(4)}
    with job(sites):
        clients, _ = clients_of(m=2, state_dir=tmp_path)
        for number in range(3):
            clients.call("train", model(), number=number)
        before = clients.selector.participation()
        with pytest.raises(InUseError):
            clients_of(m=2, state_dir=tmp_path)
        clients.release()
    with job(sites):  # the last round's aggregation was not booked as done: it is played again
        clients, reports = clients_of(m=2, state_dir=tmp_path)
        assert clients.round == 2
        clients.call("train", model(), number=9)
        assert (reports[0].round, reports[0].resumed) == (3, True)
        assert clients.selector.participation() == before  # no client is counted twice
        clients.settle()
        assert clients.round == 3
        clients.call("train", model(), number=10)
        clients.release()
    del sites[reports[1].clients[0]]
    with job(sites):  # started again without a site of the interrupted round
        clients, reports = clients_of(m=2, state_dir=tmp_path, rules=RoundRules(wait_s=0.1))
        (reply,) = clients.call("train", model(), number=10)
        assert (reports[0].round, reports[0].clients) == (4, (reply.name,))
        clients.release()


def test_evaluation_asks_the_idle_not_the_dead_and_one_that_is_back_while_its_lost_call_goes_on_at_others():
    sites = {"slow": Site(fate=(1.0,)), "dead": Site(fate=("gone",)), "late": Site(fate=("ok", 0.4))}
    for site in sites.values():
        site.evaluate = lambda model: 0.5
    with job(sites):
        clients, _ = clients_of(m=3, rules=RoundRules(deadline_s=0.2))
        clients.call("train", model())
        assert clients.ask("evaluate", model()) == {"late": 0.5}
        sites["dead"].fate = ("ok",)
        assert [reply.name for reply in clients.call("train", model())] == ["dead"]
        assert clients.ask("evaluate", model()) == {"dead": 0.5}


def test_rules_keep_a_client_from_training_and_evaluating():
    sites = {name: Site() for name in ("ours", "theirs")}
    for site in sites.values():
        site.evaluate = lambda model: 0.5
    with job(sites):
        selector = Selector(Uniform(), cohort_size=2, rules=Rules(allow=["our*"]))
        clients = SelectingClients(selector)
        assert [reply.name for reply in clients.call("train", model())] == ["ours"]
        assert clients.ask("evaluate", model()) == {"ours": 0.5}


def test_a_model_that_is_none_is_refused_before_anything_is_chosen():
    with job({"a": Site()}):
        clients, _ = clients_of(m=1)
        with pytest.raises(InvalidInputError, match="it is a int; expected"):
            clients.call("train", 3)
        assert clients.selector.round == 0


def test_a_newer_flare_is_warned_of(monkeypatch, caplog):
    monkeypatch.setattr("fedroster.engine.rounds.metadata.version", lambda name: "3.1.0")
    with job({"a": Site()}), caplog.at_level(logging.WARNING, "nvflare.fedroster"):
        clients_of(m=1)
    assert "NVFlare is 3.1.0, and fedroster's adapter was tested up to 2.9" in caplog.text


def test_replies_have_the_decisions_weights_where_the_loop_applies_them():
    sites = {f"site-{n}": Site() for n in range(5)}
    with job(sites):
        clients, _ = clients_of(m=3, policy=make_policy("f3ast"), weighs=True)
        replies = clients.call("train", model())
        with pytest.raises(ConfigurationError, match="how much each update counts"):
            clients_of(m=3, policy=make_policy("f3ast"))
        plain, _ = clients_of(m=3)
        assert {each.weight for each in plain.call("train", model())} == {None}
    cohort = Selector(make_policy("f3ast"), cohort_size=3, clients=sites).select()
    assert {reply.name: reply.weight for reply in replies} == dict(zip(cohort.clients, cohort.weights, strict=True))
