"""FLARE's own FedAvg with clients that a policy chooses, on FLARE's own task server."""

from __future__ import annotations

import threading

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVFlare: run .ci/nvflare, or install the extra 'nvflare'")

from fake_flare import Site, model, run
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.workflows.fedavg import FedAvg

from fedroster import Selector, Uniform
from fedroster.adapters.nvflare import RoundRules, RoundSink, Selecting
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import Status


class SelectingFedAvg(Selecting, FedAvg):
    policy, size = Uniform(), 2

    def make_selector(self):
        return Selector(self.policy, cohort_size=self.size)

    def save_model(self, model):
        self.saved = model


def play(
    sites,
    *,
    rounds=1,
    m=2,
    rules=None,
    policy=None,
    kind=SelectingFedAvg,
    num_clients=None,
    poll_s=0.02,
    **attributes,
):
    reports = []

    class Own(kind):
        def make_selector(self):
            return Selector(policy or Uniform(), cohort_size=m, observers=[RoundSink(reports.append)])

    Own.rules = rules or RoundRules(wait_s=5.0)
    for name, value in attributes.items():
        setattr(Own, name, value)
    controller, engine = run(Own, sites, size=num_clients or m, rounds=rounds, poll_s=poll_s)
    return controller, engine, reports


def test_what_cannot_be_used_neither_stops_the_job_nor_looks_fast_nor_owns_the_model():
    fates = {
        "raises": ("raises", "EXECUTION_EXCEPTION"),
        "garbage": (FLModel(params={"w": np.full((3, 2), np.nan), "b": np.zeros(2)}), "not finite"),
        "huge": (({"w": np.full((3, 2), 1e30), "b": np.zeros(2)}, {"num-examples": 3}), "its change is"),
        "heavy": (({"w": np.full((3, 2), 9.0), "b": np.zeros(2)}, {"num-examples": 1e18}), "its weight is"),
    }
    good = {f"site-{n}": Site(delay_s=0.05) for n in range(3)}
    sites = good | {name: Site(fate=(fate,)) for name, (fate, _) in fates.items()}
    controller, engine, reports = play(sites, rounds=2, m=7)
    assert not engine.panics
    for report in reports:
        assert {name for name, how in report.status.items() if how is Status.FAILED} == set(fates)
        assert set(report.times_s) == set(good)
        assert all(said in report.reasons[name] for name, (_, said) in fates.items())
    assert (controller.saved.params["w"] == 2.0).all()


@pytest.mark.parametrize(
    ("metric", "said"),
    [(np.ones(3), "arrays as metrics"), (1j, "expected finite real numbers"), (np.array(1j), "real")],
)
def test_a_metric_of_another_form_ends_no_job_with_a_condition_to_stop(metric, said):
    class Stopping(SelectingFedAvg):
        def __init__(self, **options):
            super().__init__(stop_cond="loss < 0.001", **options)

    odd = FLModel(params=model(), metrics={"loss": metric})
    controller, engine, reports = play({"a": Site(), "b": Site(), "odd": Site(fate=(odd,))}, m=3, kind=Stopping)
    assert not engine.panics
    assert said in reports[0].reasons["odd"]
    assert (controller.saved.params["w"] == 1.0).all()


@pytest.mark.parametrize("check", [True, False])
def test_lists_in_place_of_arrays_leave_the_model_as_it_is(check):
    lists = FLModel(params={name: array.tolist() for name, array in model().items()})
    controller, engine, reports = play({"odd": Site(fate=(lists,))}, m=1, **({} if check else {"check": None}))
    assert not engine.panics
    assert (controller.saved.params["w"] == 0.0).all()
    assert reports[0].num_in_time == 1 - check


@pytest.mark.parametrize("delay_s", [0.0, 0.1])
def test_a_difference_among_models_is_refused_first_or_last(delay_s):
    nothing = FLModel(
        params={"w": np.zeros((3, 2)), "b": np.zeros(2)}, params_type=ParamsType.DIFF, metrics={"loss": 0.5}
    )
    sites = {f"site-{n}": Site(delay_s=0.05) for n in range(3)} | {"odd": Site(delay_s=delay_s, fate=(nothing,))}
    controller, engine, reports = play(sites, rounds=3, m=4)
    assert not engine.panics
    assert all("it is a difference" in report.reasons["odd"] for report in reports)
    assert (controller.saved.params["w"] == 3.0).all()


def test_a_model_that_is_broken_already_blames_no_client():
    sites = {f"site-{n}": Site() for n in range(3)}

    class Breaks(SelectingFedAvg):
        def update_model(self, model, aggr_result):
            model = super().update_model(model, aggr_result)
            if self.current_round == 1:
                model.params["w"] = np.full((3, 2), 1e30)
            return model

    _, engine, reports = play(sites, rounds=3, m=3, kind=Breaks)
    assert not engine.panics
    assert not any(how is Status.FAILED for report in reports for how in report.status.values())


def test_a_round_without_results_leaves_the_model_as_it_is():
    sites = {"flaky": Site(fate=("raises", "raises", "ok"))}
    controller, engine, reports = play(sites, rounds=3, m=1)
    assert not engine.panics
    assert [report.num_in_time for report in reports] == [0, 0, 1]
    assert (controller.saved.params["w"] == 1.0).all()


def test_a_killed_client_is_left_out_though_flare_still_shows_it():
    sites = {"dead": Site(fate=("ok", "gone")), "a": Site(), "b": Site()}
    _, engine, reports = play(sites, rounds=30, m=3, quiet_s=0.3, rules=RoundRules(deadline_s=0.3, wait_s=5.0))
    assert len(engine.get_clients()) == 3
    assert reports[-1].num_connected == 2
    assert len(sites["dead"].log) == 1
    assert all(report.num_in_time >= 2 for report in reports)


def test_a_client_that_lost_its_task_is_not_sent_the_old_one_again():
    sites = {"restarted": Site(delay_s=0.4, fate=("forgets", 0.01)), "good": Site(delay_s=0.05)}
    controller, engine, _ = play(sites, rounds=14, rules=RoundRules(deadline_s=0.2, wait_s=5.0))
    assert not engine.panics
    first, second, *_ = sites["restarted"].log
    assert second > first + 1  # a new round's task, not the old one
    assert not controller._desk.selector.open_rounds()


@pytest.mark.parametrize(
    ("fate", "options", "said"),
    [
        ("gone", {"m": 1, "rules": RoundRules(wait_s=0.2)}, "no client can be chosen after 0.2 s: 0 clients are conn"),
        ("ok", {"m": 1, "num_clients": 2}, "num_clients is 2 and cohort_size is 1; expected the same"),
    ],
)
def test_a_job_that_cannot_begin_ends_with_a_reason(fate, options, said):
    _, engine, _ = play({"a": Site(fate=(fate,))}, **options)
    assert said in engine.panics[0]


class Full(SelectingFedAvg):
    """The disk is full when the second model is saved."""

    def save_model(self, model):
        if self.current_round == 1:
            raise OSError("no space left on device")
        super().save_model(model)


class Aborted(Full):
    """The job is aborted while its second round is played."""

    save_model = SelectingFedAvg.save_model

    def sample_clients(self, num_clients=None):
        if self.current_round == 1:
            threading.Timer(0.2, self.abort_signal.trigger, [True]).start()
        return super().sample_clients(num_clients)


class Refused(SelectingFedAvg):
    """The second round cannot be sent."""

    def send_model(self, **options):
        super().send_model(**options, min_responses=3 * self.current_round)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Aborted, None),
        (Full, "no space left"),
        (Refused, "min_responses is 3; expected at most cohort_size = 2"),
    ],
)
def test_a_round_whose_model_was_not_saved_is_played_again_by_the_same_clients(tmp_path, kind, said):
    sites = {name: Site(delay_s=0.5 if kind is Aborted else 0.01) for name in "abc"}
    controller, engine, _ = play(sites, rounds=3, state_dir=tmp_path, kind=kind)
    assert said is None or said in engine.panics[0]
    again, _, after = play(sites, rounds=1, state_dir=tmp_path)
    assert (after[0].resumed, after[0].round) == (True, 2)
    assert again._desk.selector.participation() == controller._desk.selector.participation()
    _, _, after = play(sites, rounds=1, state_dir=tmp_path)
    assert (after[0].resumed, after[0].round) == (False, 3)


class Blocking(FedAvg):
    """A controller that waits for its round, and may have a number of results of its own, which ends it."""

    options = {}

    def run(self):
        clients = self.sample_clients(self.num_clients)
        self.got = self.send_model_and_wait(data=self.model, targets=clients, **self.options)


class SelectingBlocking(Selecting, Blocking):
    pass


@pytest.mark.parametrize(
    ("options", "rules"), [({}, RoundRules(deadline_s=0.3, wait_s=5.0)), ({"min_responses": 1}, RoundRules(wait_s=5.0))]
)
def test_a_blocking_controller_gets_the_replies_that_count(options, rules):
    sites = {"slow": Site(fate=(1.0,)), "fast": Site(delay_s=0.02)}
    controller, engine, reports = play(sites, kind=SelectingBlocking, options=options, rules=rules)
    assert not engine.panics
    assert [result.meta["client_name"] for result in controller.got] == ["fast"]
    assert reports[0].status == {"slow": None, "fast": Status.COMPLETED}


def test_fewer_clients_than_a_cohort_are_waited_for_and_warned_of(caplog):
    _, engine, reports = play({"a": Site(), "b": Site()}, rounds=2, m=5, rules=RoundRules(wait_s=0.3))
    assert not engine.panics
    assert [len(report.status) for report in reports] == [2, 2]
    warned = [record.getMessage() for record in caplog.records if record.name == "nvflare.fedroster"]
    assert sum("only 2 clients can be chosen; the first round was to have 5" in line for line in warned) == 1


def test_a_controller_without_a_selector_says_so():
    class Bare(Selecting, FedAvg):
        pass

    with pytest.raises(NotImplementedError, match="Bare has no make_selector"):
        Bare(num_clients=1).start_controller(None)


def test_a_mixin_that_comes_last_is_refused():
    with pytest.raises(TypeError, match=r"FedAvg comes before Selecting; expected \(Selecting, FedAvg\)"):

        class Last(FedAvg, Selecting):
            pass


def test_a_controller_without_the_private_hooks_is_refused(monkeypatch):
    monkeypatch.setattr("fedroster.adapters.nvflare.controllers._HOOKS", ("broadcast", "_renamed"))
    with pytest.raises(ConfigurationError, match="has no _renamed"):
        SelectingFedAvg(num_clients=2).start_controller(None)
