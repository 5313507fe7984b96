"""Runs with training: stopped, killed and resumed; what is read off them."""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np
import pytest

from fedroster import federated
from fedroster.core.errors import ConfigurationError, InfeasibleError, PausedError, UnknownNameError
from fedroster.study import training
from fedroster.study.accuracy import area_under, curve_per_second, rounds_to, step_function, times_to
from fedroster.study.compare.run import compare
from fedroster.study.experiment import Conditions, gather, run_cells
from fedroster.study.training import TrainingCell, TrainingRun, rounds_table
from fedroster.task import Task

TASK = Task("digits", "labels:2", samples_per_client=20)
FLAT = TrainingCell("rbcs-f/table-1", "rbcs-f:V=5", 2, 8, TASK)
EDGES = TrainingCell("cocs/mnist", "cocs:h_T=2,scale=0.001", 2, 8, TASK, {"global_period": "3"}, evaluate_every=3)


def assert_same(one, other):
    for field in dataclasses.fields(TrainingRun):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


# -------------------------------------------------------------------- stopped and resumed


@pytest.mark.parametrize("cell", [FLAT, EDGES], ids=["flat", "edges"])
def test_a_run_in_pieces_equals_one_in_one_piece(tmp_path, cell):
    whole = cell.run()
    path = tmp_path / "cell.npz"
    played = []
    pieces = 0
    while True:
        result = cell.run(Conditions(checkpoint=path, stop_at=0.0, played=played.append))
        pieces += 1
        if result is not None:
            break
        assert path.exists()
    assert pieces == 8  # one round each, as the time is always up
    assert_same(result, whole)
    assert result.exploring.sum() == whole.exploring.sum()


@pytest.mark.parametrize(
    ("policy", "measured"),
    [("oort", True), ("power-of-choice", True), ("tifl", True), ("e3cs", False), ("random", False)],
)
def test_losses_are_measured_for_policies_that_want_them(monkeypatch, policy, measured):
    asked = []
    trainer = Task.trainer

    def spied(self, **options):
        asked.append(options["measure_losses"])
        return trainer(self, **options)

    monkeypatch.setattr(Task, "trainer", spied)
    run = dataclasses.replace(FLAT, policy=policy, num_rounds=3).run()
    assert asked == ["before" if measured else False]
    assert run.num_rounds == 3


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "_CHECKPOINT_EVERY_S", -1.0)
    whole, path = FLAT.run(), tmp_path / "cell.npz"

    class Killed(Exception):
        pass

    rounds = 0

    def killed(count):
        nonlocal rounds
        rounds += count
        if rounds == 5:
            raise Killed

    with pytest.raises(Killed):
        FLAT.run(Conditions(checkpoint=path, played=killed))
    counted = []
    assert_same(FLAT.run(Conditions(checkpoint=path, played=counted.append)), whole)
    assert counted[0] == 4  # the fifth round was not saved yet
    assert sum(counted) == 8


@pytest.mark.parametrize("content", [b"", b"no checkpoint"])
def test_a_damaged_checkpoint_is_not_used(tmp_path, content):
    path = tmp_path / "cell.npz"
    path.write_bytes(content)
    assert_same(FLAT.run(Conditions(checkpoint=path)), FLAT.run())


def test_a_checkpoint_of_another_run_is_not_used(tmp_path):
    path = tmp_path / "cell.npz"
    assert FLAT.run(Conditions(checkpoint=path, stop_at=0.0)) is None
    other = dataclasses.replace(FLAT, task=Task("digits", "labels:3", samples_per_client=20))
    assert_same(other.run(Conditions(checkpoint=path)), other.run())


def test_a_checkpoint_that_goes_while_it_is_looked_for(tmp_path, monkeypatch):
    """Another process that runs the same cell has finished it, and taken its checkpoint away."""
    path = tmp_path / "cell.npz"
    assert FLAT.run(Conditions(checkpoint=path, stop_at=0.0)) is None
    load = federated.load_arrays

    def gone(file, **options):
        path.unlink(missing_ok=True)
        return load(file, **options)

    monkeypatch.setattr(federated, "load_arrays", gone)
    assert_same(FLAT.run(Conditions(checkpoint=path)), FLAT.run())


def test_cells_that_stop_leave_checkpoints_and_go_on(tmp_path):
    cells = [FLAT, dataclasses.replace(FLAT, seed=3)]
    options = {"workers": 1, "folder": tmp_path, "result_type": TrainingRun}
    assert list(run_cells(cells, **options, conditions=Conditions(stop_at=time.time()))) == []
    assert all(path.name.endswith(".checkpoint.npz") for path in tmp_path.iterdir())
    for cell, result in zip(cells, gather(cells, **options), strict=True):
        assert_same(result, cell.run())
    assert not any(path.name.endswith(".checkpoint.npz") for path in tmp_path.iterdir())


def test_a_comparison_says_that_the_time_is_up(tmp_path):
    arguments = {
        "scenario": "rbcs-f/table-1",
        "policies": ["random"],
        "seeds": [0],
        "num_rounds": 3,
        "task": TASK,
        "target_accuracy": 0.5,
        "settings": {},
        "folder": tmp_path,
        "command": "fedroster",
    }
    with pytest.raises(PausedError, match="0 of 1 runs are done"):
        compare(**arguments, conditions=Conditions(stop_at=0.0))
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"num_rounds": 0}, ConfigurationError),
        ({"evaluate_every": 0}, ConfigurationError),
        ({"task": Task("nothing")}, UnknownNameError),
        ({"task": Task(partition="much")}, ConfigurationError),
        ({"policy": "rbcs-f:beta=0.5"}, InfeasibleError),
    ],
)
def test_a_cell_is_checked_without_training(change, error):
    with pytest.raises(error):
        dataclasses.replace(FLAT, **change).check()


# -------------------------------------------------------------------- what is read off a run


def run_of(accuracy, times=None):
    """A run with planted accuracies; NaN where it was not tested."""
    accuracy = np.asarray(accuracy, float)
    rounds = accuracy.shape[0]
    counts = np.ones(rounds, np.int64)
    zeros = np.zeros(rounds)
    return TrainingRun(
        round_time_s=np.ones(rounds) if times is None else np.asarray(times, float),
        cohort_size=counts,
        mean_backlog=zeros,
        bound_margin=zeros,
        chosen=counts,
        available=counts,
        participants=counts,
        missed=counts,
        spent=zeros,
        exploring=counts,
        accuracy=accuracy,
        test_loss=accuracy,
        refused=counts,
    )


def test_targets_are_met_at_tested_rounds():
    run = run_of([math.nan, 0.2, math.nan, 0.6, math.nan, 0.5], [1, 2, 3, 4, 5, 6])
    assert run.tested.tolist() == [2, 4, 6]
    assert (run.rounds_to(0.1), run.rounds_to(0.6), run.rounds_to(0.7)) == (2, 4, math.inf)
    assert (run.time_to(0.1), run.time_to(0.6), run.time_to(0.7)) == (3, 10, math.inf)
    assert run.final_accuracy() == pytest.approx((0.2 + 0.6 + 0.5) / 3)
    assert run.final_accuracy(last=2) == pytest.approx(0.55)
    assert run.smooth_accuracy(2).tolist() == pytest.approx([0.2, 0.4, 0.55])
    assert rounds_to([run], 0.7).tolist() == [7]
    assert times_to([run], 0.7).tolist() == [21]


def test_a_step_function_knows_nothing_before_its_first_step():
    found = step_function(np.array([1.0, 3.0]), np.array([0.5, 0.7]), np.array([0.9, 1.0, 2.9, 3.0, 9.0]))
    np.testing.assert_array_equal(found, [np.nan, 0.5, 0.5, 0.7, 0.7])


def test_curves_over_time_end_with_the_first_seed():
    fast, slow = run_of([0.2, 0.4, 0.6], [1, 1, 1]), run_of([0.2, 0.4, 0.6], [2, 2, 2])
    curve = curve_per_second([fast, slow], points=11)
    assert (curve.x[0], curve.x[-1]) == (2.0, 3.0)


def test_the_faster_of_two_equal_runs_has_the_larger_area():
    fast, slow = run_of([0.2, 0.4, 0.6], [1, 1, 1]), run_of([0.2, 0.4, 0.6], [2, 2, 2])
    areas = area_under([[fast], [slow]])
    assert areas[0, 0] == pytest.approx((0 + 0.2 + 0.4) / 3, abs=0.01)
    assert areas[1, 0] == pytest.approx((0.2 * 1) / 3, abs=0.01)


def test_a_table_has_a_row_for_every_round():
    table = rounds_table([(EDGES, EDGES.run())])
    assert table.height == 8
    assert table["elapsed_s"].to_list() == pytest.approx(table["round_time_s"].cum_sum().to_list())
    assert table["accuracy"].is_nan().to_list() == [number % 3 != 0 and number != 8 for number in range(1, 9)]
    assert set(table["settings"]) == {"global_period=3"}
