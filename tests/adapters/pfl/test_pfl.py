"""A policy in pfl-research chooses what it chooses in our own simulator, and nothing is lost on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pfl")

import pfl.model.pytorch  # noqa: F401 -- the framework that noise is made with
from pfl.context import UserContext
from pfl.data.dataset import Dataset
from pfl.exception import CheckpointNotFoundError
from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism

from federations import array
from fedroster import FailureRules, Rules, Selector, make_policy, make_scenario, simulate
from fedroster.adapters.pfl import (
    ReportLosses,
    RunCheckpoint,
    SelectedDataset,
    SelectionMetrics,
    dataset,
    without_amplification,
)
from fedroster.core.problem import Outcome, RoundContext
from fedroster.errors import ConfigurationError
from fedroster.networks.flat import FlatNetwork

SCENARIO = "rbcs-f/table-1"


def selector(policy: str = "rbcs-f:V=5,beta=0.1", **options: Any) -> Selector:
    """One that takes every word, as the papers do."""
    trusting = {"guarded": False, "longest_s": None, "longest_absence": None, "failures": FailureRules(False, 0)}
    return Selector(make_policy(policy), cohort_size=8, **trusting | options)


def users(chosen_by: Selector, network: Any = None, **options: Any) -> SelectedDataset:
    return SelectedDataset(
        lambda user: Dataset([np.zeros(1)], user_id=user), chosen_by, network or make_scenario(SCENARIO), **options
    )


def cohorts(data: SelectedDataset, rounds: int) -> list[tuple[Any, ...]]:
    return [tuple(user.user_id for user, _ in data.get_cohort(8)) for _ in range(rounds)]


@pytest.mark.parametrize("policy", ["rbcs-f:V=5,beta=0.1", "floor", "random"])
def test_cohorts_and_times_are_those_of_our_own_simulator(policy: str) -> None:
    data = users(selector(policy))
    played = list(simulate(make_policy(policy), make_scenario(SCENARIO), rounds=30, seed=0))
    assert cohorts(data, 30) == [tuple(each.selection.links.tolist()) for each in played]
    assert data.clock_s == sum(each.time_s for each in played)
    assert array(data.selector.participation()).sum() == 8 * 30


def test_each_worker_gets_its_part_of_the_same_cohort(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cohorts(users(selector()), 5)
    parts = []
    for rank in range(3):
        monkeypatch.setattr(dataset, "this_worker", lambda rank=rank: (rank, 3))
        parts.append(cohorts(users(selector()), 5))
    for cohort, *shares in zip(whole, *parts, strict=True):
        assert sorted(cohort) == sorted(user for share in shares for user in share)


def test_seeds_of_users_depend_on_seed_and_round_alone() -> None:
    first, again, other = ([seed for _, seed in users(selector(), seed=s).get_cohort(8)] for s in (0, 0, 1))
    assert first == again != other


def test_a_run_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    straight = cohorts(users(selector()), 12)
    data = users(selector())
    begun = cohorts(data, 7)
    data.save(str(tmp_path))
    data.save(str(tmp_path))
    assert len(list(tmp_path.glob("*.npz"))) == 2
    data.get_cohort(8)  # after the last save, and lost in a crash
    resumed = users(selector())
    resumed.load(str(tmp_path))
    assert begun + cohorts(resumed, 5) == straight
    with pytest.raises(CheckpointNotFoundError):
        users(selector()).load(str(tmp_path / "nothing"))
    with pytest.raises(ConfigurationError, match="another network"):
        users(selector(), make_scenario(SCENARIO, {"noise": "0.5"})).load(str(tmp_path))


class OftenEmpty:
    """A network in which no update comes in two rounds of three."""

    def __init__(self, network: FlatNetwork) -> None:
        self._network = network
        self.spec, self.init, self.advance = network.spec, network.init, network.advance

    def observe(self, state: Any, round: int, /, *, rng: Any) -> tuple[RoundContext, Outcome]:
        context, outcome = self._network.observe(state, round, rng=rng)
        return context, outcome if round % 3 == 0 else replace(outcome, responds=np.zeros_like(outcome.responds))


def test_rounds_without_an_update_are_played_and_passed_over() -> None:
    data = users(selector("random"), OftenEmpty(make_scenario(SCENARIO)))
    assert all(len(cohort) == 8 for cohort in cohorts(data, 4))
    assert (data.selector.round, data.iterations) == (12, 4)


def test_losses_reach_the_policy() -> None:
    data = users(selector("oort"))
    losses = ReportLosses(data, lambda user: user.num_datapoints)
    for _ in range(6):
        for user, seed in data.get_cohort(8):
            loss = float("nan") if user.user_id == 0 else 1.0 + user.user_id
            losses.postprocess_one_user_metrics(user_context=UserContext(loss, seed, user.user_id))  # type: ignore[arg-type]
        losses.postprocess_server_metrics(central_context=None, aggregate_metrics=None)  # type: ignore[arg-type]
    deaf = users(selector("oort"))
    heard, unheard = cohorts(data, 12), cohorts(deaf, 18)[6:]
    assert heard != unheard


def test_metrics_say_what_the_rounds_took() -> None:
    data = users(selector())
    data.get_cohort(8)
    stop, shown = SelectionMetrics(data).after_central_iteration(None, None, central_iteration=0)  # type: ignore[arg-type]
    assert not stop
    assert {str(name): value for name, value in shown}["selection | simulated time, s"] == data.clock_s > 0.0


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="pfl has one server"):
        users(selector(), make_scenario("cocs/mnist"))
    with pytest.raises(ConfigurationError, match="40, one for each"):
        users(selector(), users=["a", "b"])
    with pytest.raises(ConfigurationError, match="not among the users"):
        users(selector(clients=["stranger"]))
    data = users(selector())
    with pytest.raises(ConfigurationError, match="pfl asks for 10"):
        data.get_cohort(10)
    with pytest.raises(ConfigurationError, match="get_cohort"):
        next(data)


def accountant(num_compositions: int, probability: float = 1.0) -> Any:
    return SimpleNamespace(sampling_probability=probability, cohort_noise_parameter=1.0, n=num_compositions)


def mechanism(
    data: SelectedDataset, separation: int | None = None, *, num_iterations: int = 8, made: Any = accountant
) -> Any:
    return BandedMatrixFactorizationMechanism(
        1.0, num_iterations, data.keep_separation(separation), without_amplification(made)
    )


@pytest.mark.parametrize("separation", [None, 3, 5])
def test_noise_for_a_separation_that_is_not_guaranteed_is_refused(separation: int | None) -> None:
    with pytest.raises(ConfigurationError, match="separation"):
        mechanism(users(selector()), separation)
    with pytest.raises(ConfigurationError, match="guarantee 4"):
        mechanism(users(selector(rules=Rules(least_separation=4))), 5)


def test_noise_that_counts_on_random_sampling_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="sampling_probability"):
        mechanism(users(selector(rules=Rules(least_separation=4))), made=lambda n: accountant(n, 0.2))


def test_the_separation_that_noise_counts_on_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rounds without an update lie between, and the rules are relaxed; a restart is refused."""
    monkeypatch.chdir(tmp_path)
    network = OftenEmpty(make_scenario(SCENARIO))

    def begin() -> SelectedDataset:
        data = users(selector("random", rules=Rules(least_separation=4)), network)
        noise = mechanism(data, num_iterations=12)
        assert noise.query_matrix.shape == (12, 12)
        return data

    data = begin()
    played = cohorts(data, 6)
    data.selector.rules = None
    played += cohorts(data, 6)
    for number, cohort in enumerate(played):
        for later in played[number + 1 : number + 4]:
            assert not set(cohort) & set(later)
    assert sum(map(len, played)) > 60
    data.save(str(tmp_path))
    with pytest.raises(ConfigurationError, match="adds noise that depends on earlier iterations"):
        begin().load(str(tmp_path))
    again = users(selector("random", rules=Rules(least_separation=4)), network)
    again.load(str(tmp_path))
    with pytest.raises(ConfigurationError, match="adds noise that depends on earlier iterations"):
        again.keep_separation()


class Part:
    """Keeps a number, and fails to save where it is told to."""

    def __init__(self) -> None:
        self.value, self.fails = 0, False

    def save(self, folder: str) -> None:
        if self.fails:
            raise OSError("the disk is full")
        (Path(folder) / "value").write_text(str(self.value))

    def load(self, folder: str) -> None:
        self.value = int((Path(folder) / "value").read_text())


def test_a_checkpoint_has_all_parts_of_one_iteration(tmp_path: Path) -> None:
    first, second = Part(), Part()
    checkpoint = RunCheckpoint(first, second)
    with pytest.raises(CheckpointNotFoundError):
        checkpoint.load(str(tmp_path))
    for value in (1, 2):
        first.value = second.value = value
        checkpoint.save(str(tmp_path))
    first.value, second.fails = 3, True
    with pytest.raises(OSError, match="full"):
        checkpoint.save(str(tmp_path))
    checkpoint.load(str(tmp_path))
    assert (first.value, second.value) == (2, 2)
    first.value = second.value = 4
    second.fails = False
    checkpoint.save(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "checkpoint"]
    checkpoint.load(str(tmp_path))
    assert (first.value, second.value) == (4, 4)
    with pytest.raises(ConfigurationError, match="2 parts"):
        RunCheckpoint(first).load(str(tmp_path))


HOME = Path(__file__).parents[3]


def _training(folder: Path, rounds: int = 40) -> subprocess.Popen[str]:
    command = [sys.executable, "examples/pfl/digits.py", "floor", "--rounds", str(rounds), "--out", str(folder)]
    return subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _result(folder: Path, rounds: int = 40) -> str:
    with _training(folder, rounds) as process:
        said, _ = process.communicate(timeout=200)
    assert process.returncode == 0, said
    return said.strip().splitlines()[-1]


def test_the_example_goes_on_after_an_evaluation_and_a_kill_with_as_many_iterations(tmp_path: Path) -> None:
    """The tenth iteration is evaluated; after eleven rounds it is played again, and pfl refuses two in one."""
    whole = _result(tmp_path / "whole")
    assert float(whole.split("accuracy ")[1].split(",")[0]) > 0.5
    killed, seen = tmp_path / "killed", {""}
    assert "accuracy" in _result(killed, 11)
    with _training(killed) as process:
        while len(seen) < 6 and process.poll() is None:
            with suppress(FileNotFoundError):
                seen.add(str((killed / "floor" / "checkpoint").stat().st_mtime_ns))
            time.sleep(0.001)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert _result(killed) == whole
