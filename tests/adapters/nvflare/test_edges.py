"""A tree of sites: edge servers aggregate for the clients that a policy assigns to them within budgets."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVFlare: run .ci/nvflare, or install the extra 'nvflare'")

from fake_flare import Site, job, model
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fedroster import EdgeSelector, Selector, Uniform
from fedroster.adapters.nvflare import EdgeMap, RoundRules, RoundSink, SelectingEdges, call_clients, edges
from fedroster.adapters.nvflare.replies import UpdateCheck
from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.core.problem import Status
from fedroster.policies.cocs import COCS


@pytest.fixture(autouse=True)
def _a_job_of_its_own(monkeypatch):
    """What an edge server knows of earlier rounds is of its process, which FLARE starts for each job."""
    monkeypatch.setattr(edges, "_known", UpdateCheck(None))


class Edge(Site):
    """A site that trains with others."""

    def train_group(self, model, clients, deadline_s):
        self.log.append(tuple(clients))
        return call_clients("train", model, clients, deadline_s)


PAIRS = {"c0": ["north"], "c1": ["north"], "c2": ["south"], "c3": ["south"]}


def tree(clients, reach=None):
    """Edge servers that reach all clients and take two of them; or all that ``reach`` says."""
    sites = {"north": Edge(), "south": Edge(), **clients}
    budgets = dict.fromkeys(("north", "south"), 2.0 if reach is None else 9.0)
    reach = {name: ["north", "south"] for name in clients} if reach is None else reach
    reports = []
    selecting = SelectingEdges(
        EdgeSelector(Uniform(), budgets=budgets, cohort_size=4, num_features=2, observers=[RoundSink(reports.append)]),
        rules=RoundRules(deadline_s=0.4, min_nodes=min(4, len(clients))),
        grace_s=0.3,
        edge_rules=EdgeMap(edges=reach),
    )
    return sites, selecting, reports


def test_edge_servers_aggregate_for_their_clients_within_budgets():
    clients = {f"c{n}": Site() for n in range(6)}
    values = {name: float(n) for n, name in enumerate(clients)}
    for name, site in clients.items():
        site.fate = (({"w": np.full((3, 2), values[name]), "b": np.zeros(2)}, {"num-examples": 1 + values[name]}),)
    sites, selecting, reports = tree(clients)
    with job(sites):
        replies = selecting.call("train_group", model())
    assert {reply.name for reply in replies} == {"north", "south"}
    for reply in replies:
        ((names),) = sites[reply.name].log
        assert len(names) == 2  # a budget of 2, and each client costs 1
        weights = [1.0 + values[name] for name in names]
        arrays, metrics = reply.content
        assert arrays["w"][0, 0] == pytest.approx(np.average([values[name] for name in names], weights=weights))
        assert metrics["num-examples"] == sum(weights)
        assert {reports[0].edges[name] for name in names} == {reply.name}
    assert sum(len(site.log) for site in clients.values()) == 4
    assert set(reports[0].status.values()) == {Status.COMPLETED}


@pytest.mark.parametrize("added", [np.float16(1.0), np.int64(1)])
def test_edge_models_have_the_types_that_were_sent_and_no_overflow(added):
    sent = {"w": np.zeros((3, 2), np.float32), "n": np.zeros(2, added.dtype)}
    reply = {"w": sent["w"] + np.float32(1.0), "n": sent["n"] + added}, {"num-examples": 70_000}
    sites, selecting, reports = tree({name: Site(fate=(reply,)) for name in PAIRS}, PAIRS)
    with job(sites):
        replies = selecting.call("train_group", sent)
    assert set(reports[0].status.values()) == {Status.COMPLETED}
    for edge in replies:
        assert {key: array.dtype for key, array in edge.content[0].items()} == {"w": np.float32, "n": added.dtype}
        assert all((array == 1.0).all() for array in edge.content[0].values())


def test_faults_below_an_edge_server_are_told_apart():
    clients = {"good": Site(), "late": Site(fate=(0.8,)), "raises": Site(fate=("raises",))}
    bad = {"w": np.full((3, 2), np.nan), "b": np.zeros(2)}
    clients["bad"] = Site(fate=(bad,))
    sites, selecting, reports = tree(clients, {name: ["north"] for name in clients})
    with job(sites):
        (reply,) = selecting.call("train_group", model())
        assert (reply.content[0]["w"] == 1.0).all()
        status = reports[0].status
        assert (status["good"], status["late"]) == (Status.COMPLETED, Status.LATE)
        assert (status["raises"], status["bad"]) == (Status.FAILED, Status.FAILED)
        assert "no data here" in reports[0].reasons["raises"]
        assert "not finite" in reports[0].reasons["bad"]
        assert reports[0].round_s >= 0.4
        selecting.call("train_group", model())
        assert "late" not in reports[1].clients  # it is still busy, as its edge server says
        time.sleep(0.5)
        selecting.call("train_group", model())
        selecting.call("train_group", model())
        assert len(clients["late"].log) == 2
        time.sleep(0.5)


def test_an_edge_server_averages_differences_too():
    moved = FLModel(params={"w": np.full((3, 2), 2.0), "b": np.zeros(2)}, params_type=ParamsType.DIFF)
    sites, selecting, _ = tree({name: Site(fate=(moved,)) for name in PAIRS}, PAIRS)
    with job(sites):
        replies = selecting.call("train_group", {name: array + 5.0 for name, array in model().items()})
    assert [reply.content[0]["w"][0, 0] for reply in replies] == [7.0, 7.0]


def test_an_edge_server_knows_what_its_clients_usually_return():
    zeros = {"w": np.zeros((3, 2)), "b": np.zeros(2)}
    lie = FLModel(params=zeros, params_type=ParamsType.DIFF)
    clients = {"a": Site(), "b": Site(), "liar": Site(fate=("ok", lie))}
    with job(clients):
        call_clients("train", model(), ["a", "b", "liar"], 2.0)
        mean, told = call_clients("train", model(), ["a", "liar"], 2.0)
    assert (mean["w"] == 1.0).all()  # without the round before neither is usual
    assert "it is a difference" in str(told)


def test_a_client_that_fails_after_the_deadline_is_called_again():
    dies = Site(fate=("gone",), delay_s=0.4)
    with job({"good": Site(), "dies": dies}):
        _, told = call_clients("train", model(), ["good", "dies"], 0.2)
        assert told["clients"]["dies"] == "late"
        time.sleep(0.4)  # its call has timed out meanwhile
        dies.fate, dies.delay_s = ("ok",), 0.01
        _, told = call_clients("train", model(), ["good", "dies"], 0.2)
        assert isinstance(told["clients"]["dies"], float)
        assert told["busy"] == []


def test_a_kill_before_a_decision_is_noted_costs_its_clients_their_round(tmp_path, monkeypatch):
    sites, _, _ = tree({name: Site() for name in PAIRS}, PAIRS)

    def selecting():
        selector = EdgeSelector(Uniform(), budgets={"north": 9.0, "south": 9.0}, cohort_size=4, num_features=2)
        return SelectingEdges(
            selector, rules=RoundRules(deadline_s=0.4), edge_rules=EdgeMap(edges=PAIRS), state_dir=tmp_path
        )

    def killed(*_, **__):
        raise KeyboardInterrupt

    with job(sites):
        before = selecting()
        with monkeypatch.context() as patch:
            patch.setattr("fedroster.engine.rounds.note", killed)
            with pytest.raises(KeyboardInterrupt):
                before.call("train_group", model())
        before.release()
        again = selecting()
        assert again.call("train_group", model()) == []
        assert {reply.name for reply in again.call("train_group", model())} == {"north", "south"}
        assert (again.selector.round, again.selector.open_rounds()) == (2, {})


def test_an_edge_server_that_fails_costs_its_clients_their_round_and_no_more():
    sites, selecting, reports = tree({name: Site() for name in PAIRS}, PAIRS)

    def breaks(model, clients, deadline_s):
        raise ValueError("disk full")

    sites["north"].train_group = breaks
    with job(sites):
        assert [reply.name for reply in selecting.call("train_group", model())] == ["south"]
    assert [reports[0].status[name] for name in PAIRS] == [*[Status.FAILED] * 2, *[Status.COMPLETED] * 2]


def test_cocs_assigns_clients_below_flares_own_tree():
    clients = {f"c{n}": Site(fqn=f"{'north' if n < 3 else 'south'}.c{n}") for n in range(6)}
    sites = {"north": Edge(), "south": Edge(), **clients}
    selecting = SelectingEdges(
        EdgeSelector(COCS(), budgets={"north": 2.0, "south": 1.0}, cohort_size=6, num_features=2),
        rules=RoundRules(deadline_s=0.4, min_nodes=4),
        grace_s=0.3,
    )
    with job(sites):
        for _ in range(4):
            selecting.call("train_group", model())
    assert all(set(names) <= {"c0", "c1", "c2"} and len(names) <= 2 for names in sites["north"].log)
    assert all(set(names) <= {"c3", "c4", "c5"} and len(names) <= 1 for names in sites["south"].log)
    assert sites["north"].log
    assert sites["south"].log


def test_what_cannot_be_a_tree_is_refused():
    selector = EdgeSelector(Uniform(), budgets={"north": 2.0}, cohort_size=2, num_features=2)
    with pytest.raises(ConfigurationError, match="assigns no edge servers"):
        SelectingEdges(Selector(Uniform(), cohort_size=2), rules=RoundRules(deadline_s=1.0))
    for more in ({"deadline_s": math.inf}, {"deadline_of": lambda number: 1.0}, {"first": 1}, {"min_replies": 1}):
        with pytest.raises(ConfigurationError, match="until one finite deadline_s"):
            SelectingEdges(selector, rules=RoundRules(**{"deadline_s": 1.0} | more))
    selecting = SelectingEdges(selector, rules=RoundRules(deadline_s=1.0))
    with pytest.raises(ConfigurationError, match="grace_s is nan"):
        SelectingEdges(selector, rules=RoundRules(deadline_s=1.0), grace_s=float("nan"))
    with job({"c": Site()}), pytest.raises(InvalidInputError, match=r"edge servers \['north'\] are no sites"):
        selecting.call("train_group", model())


def test_nobody_is_blamed_for_a_broken_model(caplog):
    sites, selecting, reports = tree({name: Site() for name in PAIRS})
    broken = {name: np.full_like(array, np.nan) for name, array in model().items()}
    with job(sites):
        assert selecting.call("train_group", broken) == []
    assert set(reports[0].status.values()) == {Status.LATE}
    assert "the model that is sent holds numbers that are not finite; no client is blamed" in caplog.text


@pytest.mark.parametrize("wrong", [({"w": 1e30}, 3), ({}, 1e18)])
def test_a_diverged_client_is_refused_by_its_edge_server(wrong):
    changed, samples = wrong
    clients = {name: Site() for name in PAIRS}
    arrays = {name: np.full_like(array, changed.get(name, 9.0)) for name, array in model().items()}
    clients["c3"].fate = ((arrays, {"num-examples": samples}),)
    sites, selecting, reports = tree(clients, {name: ["north"] for name in clients})
    with job(sites):
        (reply,) = selecting.call("train_group", model())
    assert (reply.content[0]["w"] == 1.0).all()
    assert reports[0].status == dict.fromkeys(clients, Status.COMPLETED) | {"c3": Status.FAILED}
    assert "edge server north: its " in reports[0].reasons["c3"]
    assert reports[0].refused == {"c3"}


def test_a_diverged_edge_server_is_refused_with_its_clients():
    sites, selecting, reports = tree({name: Site() for name in PAIRS}, PAIRS)
    trained = sites["north"].train_group

    def diverges(model, clients, deadline_s):
        arrays, metrics = trained(model, clients, deadline_s)
        return {name: array * 1e30 for name, array in arrays.items()}, metrics

    sites["north"].train_group = diverges
    with job(sites):
        assert [reply.name for reply in selecting.call("train_group", model())] == ["south"]
    assert [reports[0].status[name] for name in ("c0", "c2")] == [Status.FAILED, Status.COMPLETED]
    assert "edge server north: its change is 1e+30" in reports[0].reasons["c1"]


def test_clients_that_are_late_alone_are_not_blamed():
    clients = {"late": Site(fate=(0.8,)), "good": Site()}
    sites, selecting, reports = tree(clients, {"late": ["north"], "good": ["south"]})
    with job(sites):
        assert [reply.name for reply in selecting.call("train_group", model())] == ["south"]
        time.sleep(0.5)
    assert reports[0].status == {"late": Status.LATE, "good": Status.COMPLETED}
