"""Trials: in parallel, kept, resumed."""

import dataclasses
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError, MissingDataError, PausedError, WorkerLostError
from fedroster.core.state import load_arrays, pack, save_arrays
from fedroster.lab.task import Task
from fedroster.lab.trials import processes
from fedroster.lab.trials import run as running
from fedroster.lab.trials.run import finish, gather, key, provenance, run_trials
from fedroster.lab.trials.trial import ALONE, Trial
from fedroster.lab.verdicts.reproduce import Order, reproduce
from lab.trials import waiting
from runs import assert_same_run

TRIALS = [Trial("rbcs-f/table-1", policy, seed, 20) for policy in ("rbcs-f:V=5", "random") for seed in (0, 1)]


@pytest.fixture
def ran(monkeypatch):
    """Which trials were really run."""
    seen = []
    run = Trial.run

    def noted(self, conditions=ALONE):
        seen.append(self)
        return run(self, conditions)

    monkeypatch.setattr(Trial, "run", noted)
    return seen


def test_digests_tell_trials_apart():
    trial = TRIALS[0]
    changes = [
        {"scenario": "rbcs-f/volatile"},
        {"policy": "rbcs-f:V=5.0"},
        {"seed": 1},
        {"rounds": 21},
        {"settings": {"noise": "0"}},
        {"settings": {"noise": "0.0"}},
        {"settings": {"noise": "0", "dropout": "0"}},
        {"task": Task()},
        {"task": Task(partition="iid")},
        {"evaluate_every": 2},
        {"rate": 0.15},
    ]
    trials = [trial, *(dataclasses.replace(trial, **change) for change in changes)]
    names = {key(each) for each in trials}
    assert len(names) == len(trials)
    assert all(name.isalnum() and len(name) == 20 for name in names)
    one, same = ({"x": "1", "y": "2"}, {"y": "2", "x": "1"})
    assert key(dataclasses.replace(trial, settings=one)) == key(dataclasses.replace(trial, settings=same))


def test_digests_change_with_the_version_and_with_the_code_of_scenario_policy_and_the_policy_inside(monkeypatch):
    trial, names = dataclasses.replace(TRIALS[0], policy="participation-weights/random"), set()
    for new in ("nothing", "FlatNetwork", "ParticipationWeights", "Uniform"):
        monkeypatch.setattr(running, "code_of", lambda made, new=new: "new" if made.__name__ == new else "old")
        names.add(key(trial))
    monkeypatch.setattr(running, "__version__", "9.9.9")
    assert len(names | {key(trial)}) == 5


def test_digests_change_with_the_files_that_a_scenario_reads(tmp_path):
    def trial(path):
        return Trial("traces/devices", "random", 0, 5, {"traces": str(path), "at_end": "wrap"})

    path = tmp_path / "phones.npz"
    absent = key(trial(path))
    path.write_bytes(b"one")
    first = key(trial(path))
    assert key(trial(path)) == first != absent
    path.write_bytes(b"another")
    assert key(trial(path)) not in (first, absent)
    path.write_bytes(b"one")
    assert key(trial(path)) == first
    assert key(trial("~nobody-of-that-name/phones.npz")) not in (first, absent)


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_give_the_same_as_no_processes_and_progress_counts_what_was_there(monkeypatch, tmp_path, workers):
    alone = gather(TRIALS)
    gather(TRIALS[:1], folder=tmp_path)
    monkeypatch.setattr(Trial, "work", property(lambda self: 100.0))  # makes processes pay
    started, seen = [], []
    pool = processes.ProcessPoolExecutor
    monkeypatch.setattr(processes, "ProcessPoolExecutor", lambda n, **how: started.append(n) or pool(n, **how))
    found = gather(TRIALS, workers=workers, folder=tmp_path, progress=seen.append)
    assert started == [2] * (workers == 2)
    assert len(list(tmp_path.iterdir())) == 4
    for one, other in zip(alone, found, strict=True):
        assert_same_run(one, other)
    assert (seen[0], seen[-1]) == (20, 80)
    assert seen == sorted(seen)


def test_data_that_are_not_there_are_missed_before_the_first_run(tmp_path, ran):
    """The last of some hundred runs may be the first that needs them."""
    trials = [*TRIALS, dataclasses.replace(TRIALS[0], task=Task("cifar-10-small"))]
    with pytest.raises(MissingDataError, match="data fetch cifar-10"):
        gather(trials, workers=1, conditions=dataclasses.replace(ALONE, data_dir=tmp_path))
    assert not ran
    assert len(gather(TRIALS, workers=1, conditions=dataclasses.replace(ALONE, data_dir=tmp_path))) == 4


def test_small_studies_start_no_process(monkeypatch):
    monkeypatch.delattr(processes, "ProcessPoolExecutor")
    assert len(gather(TRIALS, workers=8)) == 4
    monkeypatch.setattr(Trial, "work", property(lambda self: 100.0))
    assert len(gather(TRIALS[:1], workers=8)) == 1
    assert len(gather(TRIALS, workers=1)) == 4


def test_what_is_not_done_in_time_is_said():
    @dataclasses.dataclass(frozen=True)
    class Stops(Trial):
        def run(self, conditions=ALONE):
            return None if self.seed == 1 else Trial.run(self, conditions)

    trials = [Stops(trial.scenario, trial.policy, trial.seed, trial.rounds) for trial in TRIALS]
    with pytest.raises(PausedError, match="2 of 4 runs are done"):
        gather(trials, workers=1)
    assert len(gather(trials[::2], workers=1)) == 2


def test_results_are_kept_and_taken(tmp_path, ran):
    first = gather(TRIALS, folder=tmp_path / "trials")
    files = {path.name: path.read_bytes() for path in (tmp_path / "trials").iterdir()}
    assert files.keys() == {f"{key(trial)}.npz" for trial in TRIALS}
    assert len(ran) == 4
    again = gather(TRIALS, folder=tmp_path / "trials")
    assert len(ran) == 4
    for one, other in zip(first, again, strict=True):
        assert_same_run(one, other)
    assert {path.name: path.read_bytes() for path in (tmp_path / "trials").iterdir()} == files
    _, header = load_arrays(tmp_path / "trials" / f"{key(TRIALS[1])}.npz", kind="run")
    assert header["trial"] == repr(TRIALS[1])


def test_results_of_other_code_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "code", lambda: "old")
    assert provenance(finish(TRIALS[:1], folder=tmp_path)) == "old"
    monkeypatch.setattr(running, "code", lambda: "new")
    # What is taken was made by the old code, also when it is taken again; what is run is made by the new.
    for _ in range(2):
        assert provenance(finish(TRIALS, folder=tmp_path)) == "new (of 4 runs kept from before: 1 by old)"
    assert provenance(finish(TRIALS[1:], folder=tmp_path)) == "new"
    path = tmp_path / f"{key(TRIALS[2])}.npz"
    arrays, _ = load_arrays(path, kind="run")
    save_arrays(path, arrays, {}, kind="run")
    found = provenance(finish(TRIALS, folder=tmp_path))
    assert found == "new (of 4 runs kept from before: 1 by old, 1 by unknown)"


def without(arrays, name):
    return {other: value for other, value in arrays.items() if other != name}


DAMAGE = {
    "older": lambda path, arrays: save_arrays(path, without(arrays, "bound_margin"), {}, kind="run"),
    "newer": lambda path, arrays: save_arrays(path, arrays | {"surprise": np.ones(1)}, {}, kind="run"),
    "foreign": lambda path, arrays: save_arrays(path, arrays, {}, kind="selector"),
    "truncated": lambda path, _: path.write_bytes(path.read_bytes()[:-100]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_again(tmp_path, ran, damage):
    whole = gather(TRIALS, folder=tmp_path)
    broken = tmp_path / f"{key(TRIALS[2])}.npz"
    content = broken.read_bytes()
    DAMAGE[damage](broken, load_arrays(broken, kind="run")[0])
    ran.clear()
    again = gather(TRIALS, folder=tmp_path)
    assert ran == [TRIALS[2]]
    assert_same_run(again[2], whole[2])
    assert load_arrays(broken, kind="run")[0].keys() == pack(whole[2]).keys()
    assert len(broken.read_bytes()) == len(content)


@pytest.mark.parametrize("accident", [KeyboardInterrupt, OSError])
def test_an_interrupted_study_goes_on(tmp_path, monkeypatch, accident):
    alone = gather(TRIALS)
    run, ran = Trial.run, []

    def fragile(self, conditions=ALONE):
        if len(ran) == 2:
            raise accident
        ran.append(self)
        return run(self, conditions)

    with monkeypatch.context() as patch:
        patch.setattr(Trial, "run", fragile)
        with pytest.raises(accident):
            gather(TRIALS, folder=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{key(trial)}.npz" for trial in TRIALS[:2]}
    done = list(run_trials(TRIALS, folder=tmp_path))
    assert [each.index for each in done] == [0, 1, 2, 3]
    for each in done:
        assert_same_run(each.run, alone[each.index])


def test_studies_run_where_they_are_told(tmp_path):
    asked = []

    def spy(trials, jobs, *, workers, progress):
        asked.extend(trials[index] for index in jobs)
        return processes.in_processes(trials, jobs, workers=1, progress=progress)

    gather(TRIALS, engine=spy)
    assert asked == TRIALS
    reproduce(Order("rbcs-f", (2, 3), ["2"], 20), tmp_path / "paper", command="", engine=spy, pages=False)
    assert {trial.seed for trial in asked[4:]} == {2, 3}


@dataclass(frozen=True)
class Deadly(Trial):
    """A trial that kills its process."""

    work = 100.0

    def run(self, conditions=ALONE):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_script_without_a_guard_is_told_what_to_write(tmp_path):
    script = tmp_path / "study.py"
    script.write_text("import fedroster\nfedroster.simulate_many(['random'], rounds=20_000, seeds=8, workers=2)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    # Python may warn of semaphores after it: its processes ended while it was still starting them.
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("fedroster.core.errors.WorkerLostError: ")]
    assert said.partition(": ")[2].startswith("no worker process came to life")
    assert 'put it under `if __name__ == "__main__":`, or pass workers=1' in said


def test_a_process_that_is_killed(monkeypatch):
    # The processes of the pool find this file by its path.
    monkeypatch.setitem(sys.modules, Deadly.__module__, sys.modules[__name__])
    with pytest.raises(WorkerLostError, match="finished runs are kept"):
        gather([Deadly("rbcs-f/table-1", "random", seed, 1) for seed in (0, 1)], workers=2)


@pytest.fixture
def study(tmp_path):
    """A study in a process group of its own, as a terminal starts one, and its two workers, which run for ever."""
    process = subprocess.Popen(
        [sys.executable, waiting.__file__, tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
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
        gather([waiting.waits(tmp_path), waiting.waits(tmp_path, fails=True)], workers=2)
    assert waiting.ended(waiting.workers_in(tmp_path, 2))


def test_a_result_that_goes_while_it_is_looked_for_is_made(tmp_path, monkeypatch):
    gather(TRIALS[:1], folder=tmp_path)
    load = running.load_arrays
    monkeypatch.setattr(running, "load_arrays", lambda path, **how: Path(path).unlink() or load(path, **how))
    assert len(gather(TRIALS[:1], folder=tmp_path)) == 1
    monkeypatch.undo()
    assert (tmp_path / f"{key(TRIALS[0])}.npz").exists()


def test_what_killed_runs_left_is_removed(tmp_path):
    checkpoint = f"{key(TRIALS[0])}.checkpoint.npz"
    for name in (f".{checkpoint}.0123abcd.tmp", f".{key(TRIALS[1])}.npz.0123abcd.tmp"):
        (tmp_path / name).write_bytes(b"half")
    with (tmp_path / ".other.npz.0123abcd.tmp").open("wb") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)  # as a writer that lives holds it
        gather(TRIALS[:1], folder=tmp_path)
    assert [path.name for path in tmp_path.glob(".*.tmp")] == [".other.npz.0123abcd.tmp"]
