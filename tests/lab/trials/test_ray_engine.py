"""Trials on Ray: a real cluster of two nodes, workers that are killed, and what comes back."""

import dataclasses
import logging
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from commands import call
from fedroster.core.errors import ConfigurationError, InfeasibleError, MissingDependencyError, WorkerLostError
from fedroster.lab.task import Task
from fedroster.lab.trials import run as running
from fedroster.lab.trials.measures import Run
from fedroster.lab.trials.run import gather, key, run_trials
from fedroster.lab.trials.trial import ALONE, Trial
from runs import assert_same_run

pytest.importorskip("ray")
from fedroster.lab.trials.ray_engine import RETRIES, RayEngine

# Some versions of Ray leave files open.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
SMALL = [Trial("rbcs-f/table-1", policy, seed, 20) for policy in ("rbcs-f:V=5", "random") for seed in (0, 1)]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each, as `ray start` makes them; workers know this file by its content."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    made.shutdown()


@pytest.fixture(scope="module")
def connected(cluster):
    """A connection that the tests share, so that workers have imported what they need."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()


@pytest.fixture
def engine(connected):
    return RayEngine()


@dataclass(frozen=True)
class Deadly(Trial):
    """A trial that kills its worker, with the signal that the kernel uses when memory is short.

    Its run says which attempt it was, and what its checkpoint held.

    Attributes:
        parts: How often it stops before, with a checkpoint.
        deaths: How often it dies then.
    """

    parts: int = 0
    deaths: int = 0
    work = 1.0

    def run(self, conditions=ALONE):
        folder = Path(self.settings["folder"])  # it leaves a mark there each time it starts
        attempt = len(list(folder.glob(f"{self.seed}-*")))
        Path(folder, f"{self.seed}-{attempt}").touch()
        found = np.load(conditions.checkpoint) if conditions.checkpoint.exists() else np.zeros(1)
        if attempt < self.parts:
            with conditions.checkpoint.open("wb") as file:
                np.save(file, np.full(1, attempt + 1.0))
            return None
        if attempt < self.parts + self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        conditions.played(self.rounds)
        return dataclasses.replace(Run.unplayed(2, 1), chosen=np.array([self.seed, attempt]), accuracy=found)


def deadly(marks, seed, **when):
    marks.mkdir(exist_ok=True)
    return Deadly("rbcs-f/table-1", "random", seed, 4, {"folder": str(marks)}, **when)


def assert_same_trials(one, other):
    """The same files, and in each the same but for the times that decisions took."""
    names = {path.name for path in one.iterdir()}
    assert names == {path.name for path in other.iterdir()}
    for name in names:
        ours, theirs = np.load(one / name), np.load(other / name)
        assert set(ours.files) == set(theirs.files)
        for array in set(ours.files) - {"decision_s"}:
            np.testing.assert_array_equal(ours[array], theirs[array], err_msg=array)


def command(*arguments):
    shown = call(*arguments).stdout
    assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
    return shown


def test_a_comparison_on_a_cluster_by_its_address_and_again_here(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("fedroster.lab.compare.figures.figures_of", lambda *_: {})
    asked = ["compare", "--scenario", "traces/devices", "--clients", "200", "--task", "none", "--rounds", "20"]
    asked += ["--seeds", "0", "--policy", "oort,random"]
    command(*asked, "--engine", "ray", "--ray-address", cluster.address, "--out", str(tmp_path / "ray"))
    command(*asked, "--out", str(tmp_path / "here"))
    assert len(list((tmp_path / "ray" / "trials").iterdir())) == 2
    assert_same_trials(tmp_path / "ray" / "trials", tmp_path / "here" / "trials")


def test_a_ray_of_its_own_ends_with_the_study(cluster):
    """The cluster is another one, which goes on."""
    asked = ["simulate", "rbcs-f/table-1", "--policy", "random", "--rounds", "20", "--seeds", "0-2", "--json"]
    assert command(*asked, "--engine", "ray", "--workers", "1") == command(*asked)


def test_trials_on_a_cluster_are_those_of_this_process_bit_by_bit(engine, tmp_path):
    seen = []
    done = list(run_trials(SMALL, engine=engine, folder=tmp_path / "ray", progress=seen.append))
    assert sorted(each.index for each in done) == list(range(4))
    here = gather(SMALL, workers=1, folder=tmp_path / "local")
    for each in done:
        assert_same_run(each.run, here[each.index])
    assert_same_trials(tmp_path / "ray", tmp_path / "local")
    assert seen[-1] == 80
    assert seen == sorted(seen)


def test_what_came_back_before_the_end_of_the_process_that_asked_is_gone_on_from(connected, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_TELL_S", 0.0)
    trial = Trial("rbcs-f/table-1", "random", 0, 4, task=Task("digits-logistic"))
    engine = RayEngine(part_s=0.0)

    def interrupted(rounds):
        if rounds == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gather([trial], engine=engine, folder=tmp_path, progress=interrupted)
    (file,) = tmp_path.iterdir()
    assert file.name == f"{key(trial)}.checkpoint.npz"
    seen = []
    (found,) = gather([trial], engine=engine, folder=tmp_path, progress=seen.append)
    assert seen[:2] == [0, 3]
    assert_same_run(found, gather([trial], workers=1)[0])


def test_large_results_are_ours(engine):
    """Beyond 100 KB Ray gives views of its own memory, which are read-only and go with it."""
    (found,) = gather([Trial("rbcs-f/table-1", "random", 0, 5, {"num_clients": "30000"})], engine=engine)
    assert found.chosen.nbytes > 2e5
    for field in dataclasses.fields(found):
        array = getattr(found, field.name)
        assert array.flags.writeable
        assert array.flags.owndata


def test_a_gpu_that_is_not_there(engine):
    with pytest.raises(ConfigurationError, match="no node of Ray has a GPU"):
        gather(SMALL[:1], engine=engine, conditions=dataclasses.replace(ALONE, device="cuda"))


def test_what_is_there_already_needs_no_ray(tmp_path):
    first = gather(SMALL, folder=tmp_path)
    again = gather(SMALL, folder=tmp_path, engine=RayEngine("nowhere"))
    for one, other in zip(first, again, strict=True):
        assert_same_run(one, other)


def test_a_worker_killed_in_the_middle_loses_nothing(engine, tmp_path, caplog):
    trials = [deadly(tmp_path / "marks", seed, **({"parts": 2, "deaths": 1} if seed == 1 else {})) for seed in range(4)]
    with caplog.at_level(logging.WARNING, "fedroster"):
        found = gather(trials, engine=engine, workers=2, folder=tmp_path / "trials")
    (said,) = (record.getMessage() for record in caplog.records if record.name.startswith("fedroster"))
    assert re.match(r"the worker of Deadly\(.*seed=1.*\) is lost, attempt 1 of 4 \(\w", said)
    assert [each.chosen.tolist() for each in found] == [[0, 0], [1, 3], [2, 0], [3, 0]]
    assert found[1].accuracy.tolist() == [2.0], "the attempt after its death goes on from the checkpoint before"
    assert [each.accuracy.tolist() for each in found[2:]] == [[0.0], [0.0]]
    assert {path.name for path in (tmp_path / "trials").iterdir()} == {f"{key(trial)}.npz" for trial in trials}


def test_a_trial_that_always_kills_its_worker_is_given_up(engine, tmp_path):
    marks = tmp_path / "marks"
    trials = [deadly(marks, seed, deaths=99 if seed == 0 else 0) for seed in range(3)]
    with pytest.raises(WorkerLostError, match=r"Deadly.*seed=0.* lost its worker 4 times"):
        gather(trials, engine=engine, workers=2)
    assert len(list(marks.glob("0-*"))) == RETRIES + 1


def test_a_node_that_goes_away_takes_no_trial_with_it(connected, engine):
    node = connected.add_node(num_cpus=2)
    trials = [Slow("rbcs-f/table-1", "random", seed, 1) for seed in range(8)]
    found, gone = [], False
    for done in run_trials(trials, engine=engine):
        found.append(done.index)
        if not gone:  # others are at work there
            connected.remove_node(node)
            gone = True
    assert sorted(found) == list(range(8))


@dataclass(frozen=True)
class Slow(Trial):
    """A trial that takes a while."""

    work = 1.0

    def run(self, conditions=ALONE):
        time.sleep(1.0)
        return Run.unplayed(1, 1)


def test_an_error_on_a_node_is_the_error_here(engine):
    with pytest.raises(InfeasibleError) as here:
        Trial("rbcs-f/table-1", "rbcs-f:beta=0.9", 0, 5).run()
    with pytest.raises(InfeasibleError) as there:
        gather([Trial("rbcs-f/table-1", "rbcs-f:beta=0.9", 0, 5)], engine=engine)
    assert str(there.value) == str(here.value)


def test_a_node_without_this_fedroster_says_so_in_one_line(connected, engine, tmp_path):
    (tmp_path / "fedroster").mkdir()
    node = connected.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path)})
    try:
        for package, found in (
            ("raise ModuleNotFoundError('No module here')", "no fedroster that can be imported (No module here)"),
            ("__version__ = '0.0.1'", "fedroster 0.0.1; expected"),
        ):
            (tmp_path / "fedroster" / "__init__.py").write_text(package)
            trials = [Slow("rbcs-f/table-1", "random", seed, 1) for seed in range(6)]
            with pytest.raises(ConfigurationError, match=f"^node .* of Ray has {re.escape(found)}") as raised:
                gather(trials, engine=engine)
            assert "\n" not in str(raised.value)
    finally:
        connected.remove_node(node)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nowhere", "expected HOST:PORT, ray://HOST:PORT or auto"),
        ("localhost:x", "expected HOST:PORT"),
        ("127.0.0.1:1", r"there is no Ray at '127\.0\.0\.1:1'"),
        ("ray://127.0.0.1:1", r"there is no Ray at 'ray://127\.0\.0\.1:1'"),
        ("127.0.0.1:99999", "there is no Ray at"),
    ],
)
def test_addresses_that_nobody_answers(address, message):
    with pytest.raises(ConfigurationError, match=message):
        gather(SMALL[:1], engine=RayEngine(address))


def test_one_connection_at_a_time(connected):
    with pytest.raises(ConfigurationError, match="connected to Ray already; expected no address"):
        gather(SMALL[:1], engine=RayEngine(connected.address))


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[ray\]"):
        gather(SMALL[:1], engine=RayEngine())
