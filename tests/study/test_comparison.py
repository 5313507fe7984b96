"""One run of a comparison: the same as without a watch, in one piece or in many."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace

import numpy as np
import pytest

from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.errors import ConfigurationError, InfeasibleError, UnknownNameError
from fedroster.simulation import simulate
from fedroster.study import comparison
from fedroster.study.comparison import ComparisonCell, ComparisonRun, _Timed
from fedroster.study.experiment import Conditions, digest, gather
from fedroster.study.training import TrainingCell
from fedroster.task import Task
from fedroster.training.cohort import CohortTrainer

TASK = Task("digits", "labels:2", samples_per_client=20)
DEVICES = {"num_clients": "200", "cohort_size": "6", "round_interval_s": "1800"}
CELL = ComparisonCell("traces/devices", "rbcs-f:beta=0.01", 2, 8, 0.02, TASK, DEVICES)
PLAIN = dataclasses.replace(CELL, task=None)


def assert_same(one, other):
    for field in dataclasses.fields(ComparisonRun):
        if field.name != "decision_s":  # measured
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


@pytest.mark.parametrize("policy", ["random", "oort", "p3:beta=0.01", "power-of-choice:variant=pow-d"])
def test_the_watch_changes_nothing(policy):
    run = dataclasses.replace(PLAIN, policy=policy).run()
    played = list(simulate(make_policy(policy), make_scenario("traces/devices", DEVICES), num_rounds=8, seed=2))
    assert run.round_time_s.tolist() == [one.time_s for one in played]
    chosen = np.bincount(np.concatenate([one.selection.links for one in played]), minlength=200)
    np.testing.assert_array_equal(run.chosen, chosen)
    np.testing.assert_array_equal(run.available, sum(one.context.available.astype(int) for one in played))
    assert run.num_rounds == 8
    assert np.isnan(run.accuracy).all()


@pytest.mark.parametrize("policy", ["oort", "power-of-choice:variant=pow-d"])
def test_training_is_the_other_cells(policy):
    run = dataclasses.replace(CELL, policy=policy).run()
    other = TrainingCell("traces/devices", policy, 2, 8, TASK, DEVICES).run()
    for name in ("round_time_s", "cohort_size", "chosen", "available", "accuracy", "test_loss", "refused"):
        np.testing.assert_array_equal(getattr(run, name), getattr(other, name), err_msg=name)


def test_queues_are_measured_at_the_rate_that_is_asked_for():
    runs = [dataclasses.replace(PLAIN, policy="random", rate=rate).run() for rate in (0.0, 0.25)]
    assert runs[0].mean_backlog.tolist() == [0.0] * 8
    assert runs[1].mean_backlog[-1] > 1.0


@pytest.mark.parametrize("policy", ["rbcs-f:beta=0.01", "power-of-choice:variant=pow-d"])
def test_a_run_in_pieces_equals_one_in_one_piece(tmp_path, policy):
    cell = dataclasses.replace(CELL, policy=policy)
    path, pieces, result = tmp_path / "cell.npz", 0, None
    while result is None:
        result = cell.run(Conditions(checkpoint=path, stop_at=0.0))
        pieces += 1
    assert pieces == 8
    assert_same(result, cell.run())
    assert result.decision_s.shape == (8,)
    assert (result.decision_s > 0.0).all()


def test_cells_are_kept_as_files(tmp_path):
    cells = [PLAIN, dataclasses.replace(PLAIN, seed=3)]
    first = gather(cells, folder=tmp_path, workers=1, result_type=ComparisonRun)
    assert {path.name for path in tmp_path.iterdir()} == {f"{digest(cell)}.npz" for cell in cells}
    again = gather(cells, folder=tmp_path, workers=1, result_type=ComparisonRun)
    for one, other in zip(first, again, strict=True):
        assert_same(one, other)
        np.testing.assert_array_equal(one.decision_s, other.decision_s)  # read, not measured again


def test_a_decision_is_timed_and_a_poll_is_not(monkeypatch):
    """By a clock that only work moves: in select, commit and update it counts, in a client's answer it does not."""
    asked, now = [], [0.0]
    losses = CohortTrainer.losses
    monkeypatch.setattr(comparison, "time", SimpleNamespace(perf_counter=lambda: now[0], time=time.time))

    def slow(self, parameters, clients, /):
        asked.append(len(clients))
        now[0] += 0.5
        return losses(self, parameters, clients)

    monkeypatch.setattr(CohortTrainer, "losses", slow)
    settings = DEVICES | {"num_clients": "2000"}
    run = dataclasses.replace(CELL, policy="power-of-choice:variant=pow-d", settings=settings).run()
    assert len(asked) == 8
    assert {11, 12} >= set(asked) >= {12}  # one of the candidates leaves before it could answer
    assert run.decision_s.tolist() == [0.0] * 8

    class Slow:
        omniscient, fills_cohort = False, True

        def __init__(self):
            self.policy = make_policy("random")

        def __getattr__(self, name):
            now[0] += {"select": 1.0, "commit": 2.0, "update": 4.0}.get(name, 0.0)
            return getattr(self.policy, name)

    watched = _Timed(Slow())
    list(simulate(watched, make_scenario("traces/devices", DEVICES), num_rounds=2, seed=0))
    assert watched.spent_s == 2 * 7.0


def test_a_label_is_the_policys_own():
    policy = make_policy("oort")
    assert repr(_Timed(policy)) == repr(policy)
    assert _Timed(policy).wants_losses


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"num_rounds": 0}, ConfigurationError),
        ({"rate": 1.5}, ConfigurationError),
        ({"evaluate_every": 0}, ConfigurationError),
        ({"task": Task("nothing")}, UnknownNameError),
        ({"policy": "rbcs-f"}, InfeasibleError),
    ],
)
def test_a_cell_is_checked_without_running(change, error):
    CELL.check()
    with pytest.raises(error):
        dataclasses.replace(CELL, **change).check()


@pytest.mark.parametrize("scenario", ["cocs/mnist", "cocs/mnist-geometric"])
def test_with_prices_the_share_of_the_budgets_and_who_could_be_paid_are_measured(scenario):
    cell = ComparisonCell(scenario, "random", 1, 12, 0.1)
    run = cell.run()
    played = list(simulate(make_policy("random"), make_scenario(scenario), num_rounds=12, seed=1))
    spent = [one.context.cost[one.selection.links].sum() / one.context.budget.sum() for one in played]
    assert run.budget_used.tolist() == pytest.approx(spent)
    assert 0.0 < run.budget_used.min() <= run.budget_used.max() <= 1.0
    payable = np.zeros(50, np.int64)
    for one in played:
        for client in range(50):
            rows = np.flatnonzero((one.context.client == client) & one.context.available)
            payable[client] += (one.context.cost[rows] <= one.context.budget[one.context.server[rows]]).any()
    np.testing.assert_array_equal(run.available, payable)
    assert (payable == 0).any()  # some are too dear for every server
    assert (run.chosen <= payable).all()
    assert PLAIN.run().budget_used.shape == (0,)  # nothing has a price


def test_a_run_without_training_does_not_begin_when_the_time_is_up():
    assert PLAIN.run(Conditions(stop_at=0.0)) is None
    assert PLAIN.run(Conditions(stop_at=time.time() + 600.0)) is not None
