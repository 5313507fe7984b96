"""Cells: in parallel, kept, resumed."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedroster import RBCSF, Uniform
from fedroster.core.errors import ConfigurationError, InfeasibleError, PausedError, UnknownNameError, WorkerLostError
from fedroster.core.state import load_arrays, pack, save_arrays
from fedroster.study import experiment
from fedroster.study.experiment import (
    ALONE,
    PROCESSES,
    Cell,
    digest,
    finish,
    gather,
    measured_rate,
    provenance,
    run_cells,
)
from fedroster.study.measures import Trajectory
from fedroster.study.reproduce import Order, Output, reproduce
from fedroster.traces.files import Sessions, Speeds, save_traces
from study import waiting

CELLS = [Cell("rbcs-f/table-1", policy, seed, 20) for policy in ("rbcs-f:V=5", "random") for seed in (0, 1)]


def assert_same(one, other):
    for name in (field.name for field in dataclasses.fields(Trajectory)):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.fixture
def ran(monkeypatch):
    """Which cells were really run."""
    seen = []
    run = Cell.run

    def noted(self, conditions=ALONE):
        seen.append(self)
        return run(self, conditions)

    monkeypatch.setattr(Cell, "run", noted)
    return seen


# -------------------------------------------------------------------- one cell


def test_a_cell_is_deterministic_and_its_seed_matters():
    one, again, other = (Cell("rbcs-f/table-1", "rbcs-f:V=5", seed, 20).run() for seed in (3, 3, 4))
    assert_same(one, again)
    assert one.round_time_s.tolist() != other.round_time_s.tolist()
    assert one.num_rounds == 20


def test_two_policies_meet_the_same_world():
    ours, random = (Cell("rbcs-f/table-1", policy, 3, 20).run() for policy in ("rbcs-f:V=5", "random"))
    assert ours.available.tolist() == random.available.tolist()
    assert ours.chosen.tolist() != random.chosen.tolist()


def test_queues_are_measured_at_the_policys_own_rate_or_the_papers():
    assert measured_rate(RBCSF(beta=0.1)) == 0.1
    assert measured_rate(Uniform()) == 0.15


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"scenario": "rbcs-f/table-2"}, UnknownNameError),
        ({"policy": "nobody"}, UnknownNameError),
        ({"policy": "rbcs-f:beta=0.9"}, InfeasibleError),
        ({"settings": {"num_clients": "x"}}, ConfigurationError),
        ({"num_rounds": 0}, ConfigurationError),
        ({"num_rounds": 2.5}, ConfigurationError),
    ],
)
def test_a_cell_is_checked_without_running(ran, change, error):
    with pytest.raises(error):
        dataclasses.replace(CELLS[0], **change).check()
    assert ran == []


# -------------------------------------------------------------------- names of files

PUBLISHED = "d981f3f5323c2ea34442"  # of a cell of version 0.1.0: results that are kept under this name are still found


def test_digests_tell_cells_apart():
    @dataclass(frozen=True)
    class Other(Cell):
        pass

    cell = CELLS[0]
    changes = [
        {"scenario": "rbcs-f/table-1@1"},
        {"policy": "rbcs-f:V=5.0"},
        {"seed": 1},
        {"num_rounds": 21},
        {"settings": {"noise": "0"}},
        {"settings": {"noise": "0.0"}},
        {"settings": {"noise": "0", "dropout": "0"}},
    ]
    cells = [
        cell,
        *(dataclasses.replace(cell, **change) for change in changes),
        Other("rbcs-f/table-1", "random", 0, 20),
    ]
    names = {digest(each) for each in cells}
    assert len(names) == len(cells)
    assert all(name.isalnum() and len(name) == 20 for name in names)


def test_digests_of_equal_cells_are_equal():
    one = Cell("rbcs-f/table-1", "b", 1, 2, {"x": "1", "y": "2"})
    assert digest(one) == digest(Cell("rbcs-f/table-1", "b", 1, 2, {"y": "2", "x": "1"}))
    assert digest(Cell("rbcs-f/table-1", "random", 0, 5)) == digest(Cell("rbcs-f/table-1", "random", 0, 5))


def test_digests_change_with_the_version(monkeypatch):
    before = digest(Cell("rbcs-f/table-1", "random", 0, 5))
    monkeypatch.setattr(experiment, "__version__", "9.9.9")
    assert digest(Cell("rbcs-f/table-1", "random", 0, 5)) != before


def test_digests_change_with_the_files_that_a_scenario_reads(tmp_path):
    def cell(path):
        return Cell("traces/devices", "random", 0, 5, {"traces": str(path), "at_end": "wrap"})

    path = tmp_path / "phones.npz"
    absent = digest(cell(path))
    path.write_bytes(b"one")
    first = digest(cell(path))
    assert digest(cell(path)) == first != absent
    path.write_bytes(b"another")
    assert digest(cell(path)) not in (first, absent)
    path.write_bytes(b"one")
    assert digest(cell(path)) == first
    whole = digest(cell(tmp_path))
    (tmp_path / "more.npz").write_bytes(b"two")
    assert digest(cell(tmp_path)) not in (whole, first)
    # Settings that are no names of files, and scenarios without any, are named as they always were.
    assert digest(Cell("rbcs-f/table-1", "random", 0, 5)) == PUBLISHED


def test_a_result_of_other_traces_is_not_taken(tmp_path, ran):
    def traces(compute_s):
        sessions = Sessions(np.array([0, 1]), np.zeros(1), np.full(1, 100.0), np.full(1, 100.0))
        save_traces(tmp_path / "t.npz", sessions=sessions, speeds=Speeds(np.full(1, compute_s), np.full(1, 1e6)))
        cell = Cell("traces/devices", "random", 0, 5, {"traces": str(tmp_path / "t.npz"), "num_clients": "4"})
        return gather([cell], folder=tmp_path / "cells")[0].round_time_s.tolist()

    assert traces(0.1) == traces(0.1)
    assert len(ran) == 1
    assert traces(0.2) != traces(0.1)
    assert len(ran) == 2


# -------------------------------------------------------------------- many cells


def test_every_cell_is_run_once_and_knows_its_place(ran):
    done = list(run_cells(CELLS, workers=1))
    assert sorted(each.index for each in done) == [0, 1, 2, 3]
    assert all(each.cell is CELLS[each.index] for each in done)
    assert ran == CELLS
    for each in done:
        assert_same(each.result, CELLS[each.index].run())


def test_processes_give_the_same_as_no_processes(monkeypatch, tmp_path):
    alone = gather(CELLS, workers=1)
    monkeypatch.setattr(Cell, "work", property(lambda self: 100.0))  # makes processes pay
    started = []
    pool = experiment.ProcessPoolExecutor

    def counted(**options):
        started.append(options["max_workers"])
        return pool(**options)

    monkeypatch.setattr(experiment, "ProcessPoolExecutor", counted)
    together = gather(CELLS, workers=2, folder=tmp_path)
    assert started == [2]
    assert len(list(tmp_path.iterdir())) == 4
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


def test_small_studies_start_no_process(monkeypatch):
    def never(**options):
        raise AssertionError("started")

    monkeypatch.setattr(experiment, "ProcessPoolExecutor", never)
    assert len(gather(CELLS, workers=8)) == 4
    monkeypatch.setattr(Cell, "work", property(lambda self: 100.0))
    assert len(gather(CELLS[:1], workers=8)) == 1
    assert len(gather(CELLS, workers=1)) == 4


def test_what_is_not_done_in_time_is_said():
    @dataclasses.dataclass(frozen=True)
    class Stops(Cell):
        def run(self, conditions=ALONE):
            return None if self.seed == 1 else Cell.run(self, conditions)

    cells = [Stops(cell.scenario, cell.policy, cell.seed, cell.num_rounds) for cell in CELLS]
    with pytest.raises(PausedError, match="2 of 4 runs are done"):
        gather(cells, workers=1)
    assert len(gather(cells[::2], workers=1)) == 2


def test_results_are_kept_and_taken(tmp_path, ran):
    first = gather(CELLS, folder=tmp_path / "cells")
    files = {path.name: path.read_bytes() for path in (tmp_path / "cells").iterdir()}
    assert files.keys() == {f"{digest(cell)}.npz" for cell in CELLS}
    assert len(ran) == 4
    again = gather(CELLS, folder=tmp_path / "cells")
    assert len(ran) == 4
    for one, other in zip(first, again, strict=True):
        assert_same(one, other)
    assert {path.name: path.read_bytes() for path in (tmp_path / "cells").iterdir()} == files
    _, header = load_arrays(tmp_path / "cells" / f"{digest(CELLS[1])}.npz", kind="cell")
    assert header["cell"] == repr(CELLS[1])


def test_results_of_other_code_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "code", lambda: "old")
    assert provenance(finish(CELLS[:1], folder=tmp_path)) == "old"
    monkeypatch.setattr(experiment, "code", lambda: "new")
    # What is taken was made by the old code, also when it is taken again; what is run is made by the new.
    for _ in range(2):
        assert provenance(finish(CELLS, folder=tmp_path)) == "new (of 4 runs kept from before: 1 by old)"
    assert provenance(finish(CELLS[1:], folder=tmp_path)) == "new"
    path = tmp_path / f"{digest(CELLS[2])}.npz"
    arrays, _ = load_arrays(path, kind="cell")
    save_arrays(path, arrays, {}, kind="cell")
    found = provenance(finish(CELLS, folder=tmp_path))
    assert found == "new (of 4 runs kept from before: 1 by old, 1 by unknown)"


def test_a_larger_study_runs_only_what_is_new(tmp_path, ran):
    gather(CELLS[:2], folder=tmp_path)
    gather(CELLS, folder=tmp_path)
    assert ran == CELLS


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


def older(path):
    """A file from before a field was added."""
    arrays, _ = load_arrays(path, kind="cell")
    del arrays["bound_margin"]
    save_arrays(path, arrays, {}, kind="cell")


def newer(path):
    arrays, _ = load_arrays(path, kind="cell")
    save_arrays(path, arrays | {"surprise": np.ones(1)}, {}, kind="cell")


def foreign(path):
    arrays, _ = load_arrays(path, kind="cell")
    save_arrays(path, arrays, {}, kind="selector")


@pytest.mark.parametrize("damage", [truncate, flip, empty, older, newer, foreign], ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_made_again(tmp_path, ran, damage):
    whole = gather(CELLS, folder=tmp_path)
    broken = tmp_path / f"{digest(CELLS[2])}.npz"
    content = broken.read_bytes()
    damage(broken)
    ran.clear()
    again = gather(CELLS, folder=tmp_path)
    assert ran == [CELLS[2]]
    assert_same(again[2], whole[2])
    assert load_arrays(broken, kind="cell")[0].keys() == pack(whole[2]).keys()
    assert len(broken.read_bytes()) == len(content)


@pytest.mark.parametrize("accident", [KeyboardInterrupt, OSError])
def test_an_interrupted_study_goes_on(tmp_path, monkeypatch, accident):
    alone = gather(CELLS)
    run, ran = Cell.run, []

    def fragile(self, conditions=ALONE):
        if len(ran) == 2:
            raise accident
        ran.append(self)
        return run(self, conditions)

    with monkeypatch.context() as patch:
        patch.setattr(Cell, "run", fragile)
        with pytest.raises(accident):
            gather(CELLS, folder=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{digest(cell)}.npz" for cell in CELLS[:2]}
    done = list(run_cells(CELLS, folder=tmp_path))
    assert [each.index for each in done] == [0, 1, 2, 3]
    for each in done:
        assert_same(each.result, alone[each.index])


def test_a_study_that_is_dropped_in_the_middle_keeps_what_is_there(tmp_path):
    cells = run_cells(CELLS, folder=tmp_path)
    next(cells)
    next(cells)
    cells.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_no_cells():
    assert list(run_cells([])) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_counts_rounds_and_what_was_there(tmp_path, monkeypatch, workers):
    gather(CELLS[:1], folder=tmp_path)
    monkeypatch.setattr(Cell, "work", property(lambda self: 100.0))
    seen = []
    gather(CELLS, workers=workers, folder=tmp_path, progress=seen.append)
    assert seen[0] == 20
    assert seen[-1] == 80
    assert seen == sorted(seen)


# -------------------------------------------------------------------- engines


class Spy:
    """An engine that notes what it is asked for."""

    def __init__(self):
        self.asked = []

    def results(self, cells, jobs, *, workers, progress):
        self.asked += [cells[index] for index in jobs]
        return PROCESSES.results(cells, jobs, workers=1, progress=progress)


def test_studies_run_where_they_are_told(tmp_path):
    spy = Spy()
    gather(CELLS, engine=spy)
    assert spy.asked == CELLS
    spy = Spy()
    reproduce(
        Order("rbcs-f", (0, 1), ["2"], 20), tmp_path / "paper", command="", engine=spy, output=Output(pages=False)
    )
    assert {cell.seed for cell in spy.asked} == {0, 1}


def test_a_finished_study_asks_no_engine(tmp_path):
    gather(CELLS, folder=tmp_path)
    spy = Spy()
    gather(CELLS, folder=tmp_path, engine=spy)
    assert spy.asked == []


@dataclass(frozen=True)
class Deadly:
    """A cell that kills its process."""

    scenario: str = "rbcs-f/table-1"
    num_rounds: int = 1
    work: float = 100.0

    def run(self, conditions=ALONE):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed(monkeypatch):
    # The processes of the pool find this file by its path.
    monkeypatch.setitem(sys.modules, Deadly.__module__, sys.modules[__name__])
    with pytest.raises(WorkerLostError, match="finished runs are kept"):
        gather([Deadly(), Deadly()], workers=2)


@pytest.fixture
def study(tmp_path):
    """A study in a process group of its own, as a terminal starts one, and its two workers, which run for ever."""
    process = subprocess.Popen(
        [sys.executable, waiting.__file__, tmp_path],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process, waiting.workers_in(tmp_path, 2)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@needs_proc
def test_workers_end_with_the_process_that_asked(study):
    process, workers = study
    process.kill()
    process.wait()
    assert waiting.ended(workers)


@needs_proc
def test_an_interrupt_ends_all_at_once_and_prints_nothing(study):
    """Ctrl-C goes to all processes of a terminal."""
    process, workers = study
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=waiting.PATIENCE_S)
    assert process.returncode == 7
    assert said == b""
    assert waiting.ended(workers)


@needs_proc
def test_a_fault_ends_the_other_workers(tmp_path):
    with pytest.raises(ConfigurationError, match="a fault"):
        gather([waiting.Waits(str(tmp_path)), waiting.Waits(str(tmp_path), fails=True)], workers=2)
    assert waiting.ended(waiting.workers_in(tmp_path, 2))


def test_a_result_that_goes_while_it_is_looked_for_is_made(tmp_path, monkeypatch):
    gather(CELLS[:1], folder=tmp_path)
    load = experiment.load_arrays

    def gone(path, **options):
        Path(path).unlink()
        return load(path, **options)

    monkeypatch.setattr(experiment, "load_arrays", gone)
    assert len(gather(CELLS[:1], folder=tmp_path)) == 1
    monkeypatch.undo()
    assert (tmp_path / f"{digest(CELLS[0])}.npz").exists()
