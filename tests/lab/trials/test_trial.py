"""A trial: checked, timed, stopped, killed and resumed."""

import dataclasses
import time
from types import SimpleNamespace

import numpy as np
import pytest

from fedroster import simulation
from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.errors import ConfigurationError, InfeasibleError, UnknownNameError
from fedroster.lab import federated
from fedroster.lab.task import Task
from fedroster.lab.training.cohort import CohortTrainer
from fedroster.lab.trials import processes
from fedroster.lab.trials import trial as trials
from fedroster.lab.trials.run import gather, run_trials
from fedroster.lab.trials.trial import Conditions, Trial
from runs import assert_same_run

PLAIN = Trial("rbcs-f/table-1", "rbcs-f:V=5", 3, 20)
TASK = Task("digits", "labels:2", samples_per_client=20)
FLAT = Trial("rbcs-f/table-1", "rbcs-f:V=5", 2, 8, task=TASK)
EDGES = Trial("cocs/mnist", "cocs:h_T=2,scale=0.001", 2, 8, {"global_period": "3"}, TASK, evaluate_every=3)
DEVICES = Trial(
    "traces/devices", "rbcs-f:beta=0.01", 2, 8, {"num_clients": "200", "cohort_size": "6", "round_interval_s": "1800"}
)


@pytest.mark.parametrize("policy", ["random", "oort", "p3:beta=0.01", "power-of-choice:variant=pow-d"])
def test_a_run_is_that_of_the_round_loop(policy):
    run = dataclasses.replace(DEVICES, policy=policy).run()
    environment = make_scenario(DEVICES.scenario, DEVICES.settings)
    played = list(simulation.simulate(make_policy(policy), environment, rounds=8, seed=2))
    assert run.round_time_s.tolist() == [one.time_s for one in played]
    chosen = np.bincount(np.concatenate([one.selection.links for one in played]), minlength=200)
    np.testing.assert_array_equal(run.chosen, chosen)
    np.testing.assert_array_equal(run.available, sum(one.context.available.astype(int) for one in played))
    assert run.num_rounds == 8


def test_queues_are_measured_at_the_rate_that_is_asked_for_or_the_policys_own_or_the_papers():
    def backlog(policy, rate=None):
        return dataclasses.replace(PLAIN, policy=policy, rate=rate).run().mean_backlog.tolist()

    assert backlog("random", 0.0) == [0.0] * 20
    assert backlog("random", 0.25)[-1] > 1.0
    assert backlog("random") == backlog("random", 0.15)
    assert backlog("rbcs-f:V=5,beta=0.1") == backlog("rbcs-f:V=5,beta=0.1", 0.1) != backlog("rbcs-f:V=5,beta=0.1", 0.15)


def test_decisions_are_timed_and_polls_are_not(monkeypatch):
    """By a clock that only work moves: in select, commit and update it counts, in a client's answer it does not."""
    asked, now = [], [0.0]
    losses = CohortTrainer.losses
    monkeypatch.setattr(simulation, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def slow(self, parameters, clients, /):
        asked.append(len(clients))
        now[0] += 0.5
        return losses(self, parameters, clients)

    monkeypatch.setattr(CohortTrainer, "losses", slow)
    settings = {**DEVICES.settings, "num_clients": "2000"}
    run = dataclasses.replace(DEVICES, policy="power-of-choice:variant=pow-d", settings=settings, task=TASK).run()
    assert len(asked) == 8
    assert {11, 12} >= set(asked) >= {12}  # one of the candidates leaves before it could answer
    assert run.decision_s.tolist() == [0.0] * 8

    class Slow:
        def __getattr__(self, name):
            now[0] += {"select": 1.0, "commit": 2.0, "update": 4.0}.get(name, 0.0)
            return getattr(make_policy("random"), name)

    monkeypatch.setattr(trials, "make_policy", lambda text: Slow())
    assert dataclasses.replace(DEVICES, rounds=2).run().decision_s.tolist() == [7.0, 7.0]


@pytest.mark.parametrize("scenario", ["cocs/mnist", "cocs/mnist-geometric"])
def test_with_prices_the_share_of_the_budgets_and_who_could_be_paid_are_measured(scenario):
    run = Trial(scenario, "random", 1, 12).run()
    played = list(simulation.simulate(make_policy("random"), make_scenario(scenario), rounds=12, seed=1))
    spent = [one.context.cost[one.selection.links].sum() / one.context.budget.sum() for one in played]
    assert run.budget_used.tolist() == pytest.approx(spent)
    assert 0.0 < run.budget_used.min() <= run.budget_used.max() <= 1.0
    payable = np.zeros(50, np.int64)
    for one in played:
        for client in range(50):
            rows = np.flatnonzero((one.context.client == client) & one.context.available)
            payable[client] += (one.context.cost[rows] <= one.context.budget[one.context.server[rows]]).any()
    np.testing.assert_array_equal(run.available, payable)
    assert (payable == 0).any()  # some are too expensive for every server
    assert (run.chosen <= payable).all()
    assert np.isnan(PLAIN.run().budget_used).all()  # nothing has a price


def test_work_grows_with_the_clients_of_the_scenario():
    more = dataclasses.replace(PLAIN, settings={"num_clients": "1000000"})
    assert more.work > 100 * PLAIN.work
    assert dataclasses.replace(PLAIN, task=TASK).work > 10 * PLAIN.work


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"scenario": "rbcs-f/table-2"}, UnknownNameError),
        ({"policy": "unknown"}, UnknownNameError),
        ({"policy": "rbcs-f:beta=0.9"}, InfeasibleError),
        ({"settings": {"num_clients": "x"}}, ConfigurationError),
        ({"rounds": 0}, ConfigurationError),
        ({"rounds": 2.5}, ConfigurationError),
        ({"rate": 1.5}, ConfigurationError),
        ({"evaluate_every": 0}, ConfigurationError),
        ({"task": Task("nothing")}, UnknownNameError),
        ({"task": Task(partition="much")}, ConfigurationError),
    ],
)
def test_a_trial_is_checked_without_running(monkeypatch, change, error):
    monkeypatch.delattr(Trial, "run")
    PLAIN.check()
    with pytest.raises(error):
        dataclasses.replace(PLAIN, **change).check()


def test_a_run_without_training_does_not_begin_when_the_time_is_up():
    assert PLAIN.run(Conditions(stop_at=0.0)) is None
    assert PLAIN.run(Conditions(stop_at=time.time() + 600.0)) is not None


POLLING = dataclasses.replace(DEVICES, policy="power-of-choice:variant=pow-d", task=TASK)


@pytest.fixture(scope="module")
def whole():
    """A run that nothing stops."""
    return FLAT.run()


@pytest.mark.parametrize("trial", [FLAT, EDGES, POLLING], ids=["flat", "edges", "polling"])
def test_a_run_in_pieces_equals_one_in_one_piece(tmp_path, trial):
    path, pieces = tmp_path / "trial.npz", 1
    while (result := trial.run(Conditions(checkpoint=path, stop_at=0.0))) is None:
        pieces += 1
        assert path.exists()
    assert pieces == 8  # one round each, as the time is always up
    assert_same_run(result, trial.run())
    assert (result.decision_s > 0.0).all()


@pytest.mark.parametrize(("policy", "measured"), [("oort", True), ("e3cs", False)])
def test_losses_are_measured_for_policies_that_want_them(monkeypatch, policy, measured):
    asked, trainer = [], Task.trainer
    monkeypatch.setattr(Task, "trainer", lambda self, **how: asked.append(how) or trainer(self, **how))
    dataclasses.replace(FLAT, policy=policy, rounds=1).run()
    assert [how["measure_losses"] for how in asked] == [measured]


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path, monkeypatch, whole):
    monkeypatch.setattr(trials, "_CHECKPOINT_EVERY_S", -1.0)
    path, played = tmp_path / "trial.npz", []

    def killed(count):
        played.append(count)
        if sum(played) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FLAT.run(Conditions(checkpoint=path, played=killed))
    counted = []
    assert_same_run(FLAT.run(Conditions(checkpoint=path, played=counted.append)), whole)
    assert counted[0] == 4  # the fifth round was not saved yet
    assert sum(counted) == 8


def test_a_checkpoint_that_is_damaged_or_of_another_run_or_just_gone_is_not_used(tmp_path, monkeypatch, whole):
    path = tmp_path / "trial.npz"
    path.write_bytes(b"no checkpoint")
    assert_same_run(FLAT.run(Conditions(checkpoint=path)), whole)
    other = dataclasses.replace(FLAT, task=Task("digits", "labels:3", samples_per_client=20))
    assert other.run(Conditions(checkpoint=path, stop_at=0.0)) is None
    assert_same_run(FLAT.run(Conditions(checkpoint=path)), whole)
    assert FLAT.run(Conditions(checkpoint=path, stop_at=0.0)) is None
    load = federated.load_arrays  # another process that runs the same trial has finished it
    monkeypatch.setattr(federated, "load_arrays", lambda file, **how: path.unlink(True) or load(file, **how))
    assert_same_run(FLAT.run(Conditions(checkpoint=path)), whole)


def test_trials_that_stop_leave_checkpoints_and_go_on(tmp_path):
    asked = [FLAT, dataclasses.replace(FLAT, seed=3)]
    options = {"workers": 1, "folder": tmp_path}
    assert list(run_trials(asked, **options, conditions=Conditions(stop_at=time.time()))) == []
    (path,) = tmp_path.iterdir()  # the second did not begin
    assert path.name.endswith(".checkpoint.npz")
    for trial, result in zip(asked, gather(asked, **options), strict=True):
        assert_same_run(result, trial.run())
    assert not any(path.name.endswith(".checkpoint.npz") for path in tmp_path.iterdir())


def test_no_process_begins_a_trial_when_the_time_is_up_and_one_has_played(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_PLAYED", [0, 0, 1])
    paths = [tmp_path / name for name in ("first.npz", "second.npz")]
    for index, path in enumerate(paths):
        assert processes._run(FLAT, index, Conditions(checkpoint=path, stop_at=0.0)) is None
    assert [path.exists() for path in paths] == [True, False]
    assert processes._PLAYED == [1, 0, 1]


def test_an_error_says_in_which_run(monkeypatch):
    monkeypatch.setattr(trials, "simulate", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError) as error:
        Trial("rbcs-f/table-1", "random", 3, 5).run()
    assert error.value.__notes__ == ["in the run of random in rbcs-f/table-1, seed 3"]
