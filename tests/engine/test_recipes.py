"""The recipes of examples/engines, against stubs that have the signatures of the engines named in each."""

from __future__ import annotations

import copy
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fedroster import RBCSF, Record, Selector
from fedroster.record import verify

RECIPES = Path(__file__).parents[2] / "examples" / "engines"


def recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stub(monkeypatch: pytest.MonkeyPatch, path: str, **names: Any) -> None:
    parts = path.split(".")
    for depth in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:depth]), module := ModuleType(".".join(parts[:depth])))
    for name, value in names.items():
        setattr(module, name, value)


def selector(cohort_size: int = 2) -> Selector:
    return Selector(RBCSF(V=1.0, beta=0.2), cohort_size=cohort_size)


class AlgorithmClient:
    """vantage6.algorithm.client.AlgorithmClient of 4.15: what a central function calls of it."""

    def __init__(self, time_s: dict[int, float], crashed: set[int]) -> None:
        self.sites, self.crashed, self.tasks = time_s, crashed, {}
        self.organization = SimpleNamespace(list=lambda: [{"id": site} for site in self.sites])
        self.task = SimpleNamespace(create=self.create)
        self.result = SimpleNamespace(from_task=lambda task_id: [f"weights of {self.tasks[task_id][0]}"])

    def create(
        self, input_: dict[str, Any], organizations: list[int] | None = None, name: str = "subtask"
    ) -> dict[str, int]:
        assert input_["method"] == "train"
        assert organizations is not None
        (site,) = organizations
        self.tasks[len(self.tasks)] = site, time.monotonic()
        return {"id": len(self.tasks) - 1}

    def request(self, endpoint: str) -> dict[str, str]:
        what, task, status = endpoint.split("/")
        assert (what, status) == ("task", "status")
        site, began = self.tasks[int(task)]
        if time.monotonic() - began < self.sites[site]:
            return {"status": "active"}
        return {"status": "crashed" if site in self.crashed else "completed"}


def test_vantage6_leaves_busy_sites_out_and_learns_from_late_ones() -> None:
    train_round = recipe("vantage6_central").train_round
    client = AlgorithmClient({1: 0.0, 2: 0.0, 3: 0.5, 4: 0.0}, crashed={2})
    chosen, running, results = selector(), {}, []
    until = time.monotonic() + 20.0
    while not chosen.round or (chosen.participation("trained").get(3, 0) == 0 and time.monotonic() < until):
        results.append(train_round(client, chosen, [0.0], running, 0.1))
        assert len(running) <= 1  # site 3 alone is slow
    assert all(set(result) <= {1, 4} for result in results)
    assert any(results)
    assert chosen.participation("used")[3] == 0
    assert chosen.participation("trained")[3] == 1  # it was left out while it was busy
    assert chosen.participation("trained")[2] == 0


def test_fed_biomed_goes_on_with_the_nodes_that_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    class DefaultStrategy:
        def __init__(self) -> None:
            self._sampling_node_history: dict[int, list[str]] = {}

        def sample_nodes(self, from_nodes: list[str], round_i: int) -> list[str]:
            raise AssertionError

        def refine(self, training_replies: dict[str, Any], round_i: int) -> list[str]:
            assert set(self._sampling_node_history[round_i]) == set(training_replies)
            assert all(reply["success"] for reply in training_replies.values())
            return sorted(training_replies)

    stub(monkeypatch, "fedbiomed.researcher.strategies.default_strategy", DefaultStrategy=DefaultStrategy)
    strategy = recipe("fedbiomed_strategy").SelectedNodes(selector(3))
    nodes = ["good", "broken", "silent"]
    assert sorted(strategy.sample_nodes(nodes, 0)) == sorted(nodes)
    good = {"node_id": "good", "success": True, "timing": {"rtime_training": 0.5}}
    broken = {"node_id": "broken", "success": False, "timing": {}}
    assert strategy.refine({"good": good, "broken": broken}, 0) == ["good"]
    assert strategy.selector.open_rounds() == {}
    assert strategy.selector.participation("used") == {"good": 1, "broken": 0, "silent": 0}


def test_plato_fills_free_places(monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, "plato.servers.strategies.base", ClientSelectionStrategy=object)
    strategy = recipe("plato_selection").SelectedClients(selector(3))
    pool = [1, 2, 3, 4, 5]
    first = strategy.select_clients(pool, 3, None)
    assert len(first) == 3
    report = SimpleNamespace(training_time=2.0, comm_time=0.5)
    strategy.on_reports_received([SimpleNamespace(client_id=first[0], report=report)], None)
    (more,) = strategy.select_clients([client for client in pool if client not in first[1:]], 1, None)
    assert more not in first[1:]
    rest = [SimpleNamespace(client_id=client, report=report) for client in {*first[1:], more}]
    strategy.on_reports_received(rest, None)
    assert strategy.selector.open_rounds() == {}
    assert sum(strategy.selector.participation("used").values()) == 4


class FLSpec:
    """openfl.experimental.workflow.interface.FLSpec of 1.9: each step names the next, on one side or the other.

    What steps leave behind travels to collaborators as copies, in Ray's store from step to step, too; the aggregator's
    private attributes are there in its own steps only.
    """

    def __init__(self, **options: Any) -> None:
        assert not options
        self.private: dict[str, Any] = {}

    def next(self, step: Any, foreach: str = "") -> None:
        self.coming = step.__name__, foreach

    def at_aggregator(self, step: str, *given: Any) -> None:
        vars(self).update(self.private)
        getattr(self, step)(*given)
        for name in self.private:
            delattr(self, name)
        left = {name: value for name, value in vars(self).items() if name not in {"private", "runtime"}}
        assert copy.deepcopy(left) == left

    def run(self) -> None:
        name, foreach = "start", ""
        while name != "end":
            self.at_aggregator(name)
            name, foreach = self.coming
            if foreach:
                sent = [copy.copy(self) for _ in getattr(self, foreach)]
                for one, site in zip(sent, getattr(self, foreach), strict=True):
                    one.input, one.pace_s = site, self.runtime.collaborators[site]
                    getattr(one, name)()
                self.at_aggregator("join", sent)
                name, _ = self.coming


def test_openfl_sends_a_step_to_the_chosen_collaborators(monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, "openfl.experimental.workflow.interface", FLSpec=FLSpec)
    stub(monkeypatch, "openfl.experimental.workflow.placement", aggregator=lambda f: f, collaborator=lambda f: f)

    class Flow(recipe("openfl_workflow").SelectedFlow):
        def fit(self, model: float) -> float:
            time.sleep(self.pace_s)
            return model + 1.0

        def average(self, models: list[float]) -> float:
            return sum(models) / len(models)

    selector = Selector(RBCSF(V=20.0, beta=0.1), cohort_size=2)
    flow = Flow(0.0, num_rounds=30)
    flow.private["selector"] = selector
    flow.runtime = SimpleNamespace(collaborators={"a": 0.0, "b": 0.0, "c": 0.0, "slow": 0.02})
    flow.run()
    used = selector.participation("used")
    assert flow.model == pytest.approx(30.0)
    assert sum(used.values()) == 60
    assert used["slow"] == min(used.values()) >= 3


class SyncSimDriver:
    """appfl.vsim.SyncSimDriver of 1.12: what a round does of it, the first ``min_responses`` of a cohort count."""

    def __init__(self, durations_s: dict[str, float], *, participants_per_round: int, min_responses: int) -> None:
        self.clients, self.min_responses, self.virtual_time = durations_s, min_responses, 0.0
        assert min_responses <= participants_per_round

    def _apply_barrier(self, completions: list[dict[str, Any]], t_start: float) -> Any:
        accepted, discarded = completions[: self.min_responses], completions[self.min_responses :]
        return accepted, discarded, accepted[-1]["completion_time"]

    def play(self) -> None:
        start_s, sent = self.virtual_time, self._select_participants()  # type: ignore[attr-defined]
        done = [{"cid": cid, "duration": self.clients[cid], "completion_time": start_s} for cid in sent]
        done = [each | {"completion_time": start_s + each["duration"]} for each in done]
        done.sort(key=lambda each: each["completion_time"])
        self.virtual_time = self._apply_barrier(done, start_s)[2]


@pytest.mark.parametrize("least", [2, 1])
def test_appfl_learns_from_its_virtual_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, least: int) -> None:
    stub(monkeypatch, "appfl.vsim", SyncSimDriver=SyncSimDriver)
    durations_s = {"a": 1.0, "b": 1.5, "c": 2.0, "slow": 17.0}
    policy = RBCSF(V=5.0, beta=0.1)
    chosen = Selector(policy, cohort_size=2, observers=[Record(tmp_path)])
    driver = recipe("appfl_simulation").SelectingDriver(durations_s, selector=chosen, min_responses=least)
    for _ in range(40):
        driver.play()
    assert chosen.open_rounds() == {}
    assert 40 * 0.1 - 2 <= chosen.participation()["slow"] <= 8
    assert sum(chosen.participation("used").values()) == 40 * least
    assert driver.virtual_time < 40 * (5.0 if least == 2 else 2.0)
    assert verify(tmp_path, policy).is_whole


class FlukeClient:
    """fluke.client.Client of 0.8: it tells those that observe it when it begins and ends to train."""

    def __init__(self, index: int, pace_s: float) -> None:
        self.index, self.pace_s, self.observers = index, pace_s, []

    def attach(self, observer: Any) -> None:
        self.observers.append(observer)

    def local_update(self, current_round: int) -> None:
        for event, more in (("start_fit", {}), ("end_fit", {"loss": 0.5})):
            for each in self.observers:
                getattr(each, event)(round=current_round, client_id=self.index, model=None, **more)
            time.sleep(self.pace_s * (event == "start_fit"))


class FlukeServer:
    """fluke.server.Server of 0.8, which its algorithm's loop asks."""

    def __init__(self, clients: list[FlukeClient]) -> None:
        self.clients, self.aggregated = clients, []

    def aggregate(self, eligible: list[FlukeClient], client_models: Any) -> None:
        self.aggregated.append([client.index for client in eligible])


def test_fluke_learns_how_long_each_client_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub(monkeypatch, "fluke.client", Client=FlukeClient)
    stub(monkeypatch, "fluke.server", Server=FlukeServer)
    policy = RBCSF(V=20.0, beta=0.1)
    server = recipe("fluke_server").SelectingServer([FlukeClient(number, 0.02 * (number == 3)) for number in range(4)])
    server.selector = Selector(policy, cohort_size=2, observers=[Record(tmp_path)])
    for number in range(30):
        eligible = server.get_eligible_clients(0.5)
        for client in eligible:
            client.local_update(number)
        server.aggregate(eligible, None)
    used = server.selector.participation("used")
    assert [len(set(each)) for each in server.aggregated] == [2] * 30
    assert used[3] == min(used.values()) >= 2
    assert all(len(client.observers) == 1 for client in server.clients)
    assert verify(tmp_path, policy).is_whole
