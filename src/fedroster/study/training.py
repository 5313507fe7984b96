"""Runs with training: one scenario, policy, task and seed; they keep checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_integer
from fedroster.core.errors import ConfigurationError, StateFileError
from fedroster.core.protocols import AnyEnvironment, AnyPolicy, wants_losses
from fedroster.study.experiment import ALONE, Conditions, measured_rate
from fedroster.study.measures import Recorder, Trajectory
from fedroster.task import Task

_CHECKPOINT_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class TrainingRun(Trajectory):
    """The course of one run with training: that of any run, and that of the model.

    Attributes:
        accuracy: Test accuracy after each round, shape (rounds,), in [0, 1]; NaN where it was not tested.
        test_loss: Test loss after each round, shape (rounds,); NaN where it was not tested.
        refused: Updates that were refused in each round, shape (rounds,).
    """

    accuracy: FloatArray
    test_loss: FloatArray
    refused: IntArray

    @property
    def tested(self) -> IntArray:
        """Rounds after which the model was tested, ascending, shape (tests,)."""
        rounds: IntArray = np.flatnonzero(np.isfinite(self.accuracy)) + 1
        return rounds

    def final_accuracy(self, last: int = 5) -> float:
        """Mean accuracy over the last tests: single rounds are noisy.

        Args:
            last: Number of tests.
        """
        return float(self.accuracy[self.tested - 1][-last:].mean())

    def smooth_accuracy(self, window: int = 5) -> FloatArray:
        """Mean of the tests so far, of the last few only, after each tested round, shape (tests,).

        Args:
            window: Number of tests.
        """
        values = self.accuracy[self.tested - 1]
        total = np.concatenate(([0.0], values.cumsum()))
        stop = np.arange(1, total.shape[0])
        start = np.maximum(stop - window, 0)
        mean: FloatArray = (total[stop] - total[start]) / (stop - start)
        return mean

    def rounds_to(self, target: float) -> float:
        """First tested round with at least this accuracy; infinite where there is none.

        Args:
            target: In (0, 1).
        """
        reached: BoolArray = self.accuracy[self.tested - 1] >= target
        return float(self.tested[reached.argmax()]) if reached.any() else float("inf")

    def time_to(self, target: float) -> float:
        """Simulated seconds until then; infinite where it never comes.

        Args:
            target: In (0, 1).
        """
        rounds = self.rounds_to(target)
        return float(self.round_time_s[: int(rounds)].sum()) if np.isfinite(rounds) else float("inf")


@dataclass(frozen=True, slots=True)
class TrainingCell:
    """One run with training.

    Attributes:
        scenario: Name, optionally with version.
        policy: Policy as text.
        seed: Seed of the network, the partition, the model and the batches.
        num_rounds: T.
        task: What is trained.
        settings: Parameters of the scenario that are overridden, as text.
        evaluate_every: The model is tested after every so many rounds, and after the last.
    """

    scenario: str
    policy: str
    seed: int
    num_rounds: int
    task: Task = field(default_factory=Task)
    settings: Mapping[str, str] = field(default_factory=dict)
    evaluate_every: int = 1

    def check(self) -> None:
        """Raise what :meth:`run` would, without training."""
        check_integer("rounds", self.num_rounds, least=1)
        check_integer("evaluate_every", self.evaluate_every, least=1)
        self.task.check()
        make_policy(self.policy).check(make_scenario(self.scenario, self.settings).spec)

    def run(self, conditions: Conditions = ALONE) -> TrainingRun | None:
        """Train, from the checkpoint if there is one; None if the time is up first.

        Args:
            conditions: Device, data, checkpoint and time.
        """
        policy = make_policy(self.policy)
        environment = make_scenario(self.scenario, self.settings)
        recorder = Recorder(environment.spec.num_clients, rate=measured_rate(policy))
        tests = train(self, policy, environment, recorder, conditions, task=self.task)
        if tests is None:
            return None
        course: Trajectory = recorder.trajectory()
        measured = {name: getattr(course, name) for name in Trajectory.__dataclass_fields__}
        return TrainingRun(**measured, accuracy=tests.accuracy, test_loss=tests.loss, refused=tests.refused)

    @property
    def work(self) -> float:
        """Rough cost in seconds: a hundredth of a second a round for the smallest task, far more for the others."""
        return self.num_rounds * (0.01 if self.task.name == "digits" else 0.1)


@dataclass(frozen=True, slots=True)
class Tests:
    """What the model was worth along a run.

    Attributes:
        accuracy: Test accuracy after each round, shape (rounds,), in [0, 1]; NaN where it was not tested.
        loss: Test loss after each round, shape (rounds,); NaN where it was not tested.
        refused: Updates that were refused in each round, shape (rounds,).
    """

    accuracy: FloatArray
    loss: FloatArray
    refused: IntArray


class Trained(Protocol):
    """What a run with training is about: a frozen dataclass."""

    @property
    def seed(self) -> int:
        """Seed of the network, the partition, the model and the batches."""
        ...

    @property
    def num_rounds(self) -> int:
        """T."""
        ...

    @property
    def evaluate_every(self) -> int:
        """The model is tested after every so many rounds, and after the last."""
        ...


def train(
    cell: Trained,
    policy: AnyPolicy,
    environment: AnyEnvironment,
    recorder: Recorder,
    conditions: Conditions,
    *,
    task: Task,
) -> Tests | None:
    """Play a run with training, from the checkpoint if there is one; None if the time is up first.

    Args:
        cell: What is run; all of it must be the same for a checkpoint to be used.
        policy: Its policy.
        environment: Its network.
        recorder: Measures the rounds.
        conditions: Device, data, checkpoint and time.
        task: What is trained.
    """
    from fedroster.federated import TrainingCheckpoint, federate, load_training, save_training

    trainer = task.trainer(
        num_clients=environment.spec.num_clients,
        seed=cell.seed,
        folder=conditions.data_dir,
        device=conditions.device,
        measure_losses="before" if wants_losses(policy) else False,
    )
    identity: dict[str, Any] = {
        "policy": policy,
        "environment": environment,
        "seed": cell.seed,
        "task": repr(asdict(cell)),  # type: ignore[call-overload]
    }
    tests = np.full((2, cell.num_rounds), np.nan)  # accuracy and loss
    refused = np.zeros(cell.num_rounds, np.int64)
    start: TrainingCheckpoint | None = None
    if conditions.checkpoint is not None:
        # None yet, gone because another process has finished this run, damaged, or of an older version: begin.
        with suppress(FileNotFoundError, StateFileError, ConfigurationError):
            start = load_training(conditions.checkpoint, **identity)
    if start is not None:
        recorder.restore(start.records)
        tests[:], refused[:] = start.records["tests"], start.records["refused"]
        conditions.played(start.rounds.round)

    def records() -> dict[str, NDArray[Any]]:
        return recorder.records() | {"tests": tests, "refused": refused}

    saved_at = time.monotonic()
    rounds = federate(
        policy,
        environment,
        trainer,
        num_rounds=cell.num_rounds,
        seed=cell.seed,
        evaluate_every=cell.evaluate_every,
        start=start,
    )
    for trained in rounds:
        recorder.add(trained.round)
        row = trained.round.number - 1
        tests[:, row] = trained.accuracy, trained.test_loss
        refused[row] = len(trained.refused)
        conditions.played(1)
        if conditions.checkpoint is None or row + 1 == cell.num_rounds:
            continue
        stop = time.time() >= conditions.stop_at
        if stop or time.monotonic() - saved_at > _CHECKPOINT_EVERY_S:
            save_training(conditions.checkpoint, trained, **identity, records=records())
            saved_at = time.monotonic()
        if stop:
            return None
    return Tests(tests[0], tests[1], refused)


def rounds_table(runs: Iterable[tuple[TrainingCell, TrainingRun]]) -> pl.DataFrame:
    """Every round of every run, a row each.

    Args:
        runs: What was run, and what came out.
    """
    return pl.concat(
        pl.DataFrame(
            {
                "scenario": cell.scenario,
                "settings": ",".join(f"{name}={value}" for name, value in cell.settings.items()),
                "task": cell.task.name,
                "partition": cell.task.partition,
                "policy": cell.policy,
                "seed": cell.seed,
                "round": np.arange(1, run.num_rounds + 1),
                "elapsed_s": run.round_time_s.cumsum(),
                "round_time_s": run.round_time_s,
                "cohort_size": run.cohort_size,
                "participants": run.participants,
                "mean_backlog": run.mean_backlog,
                "accuracy": run.accuracy,
                "test_loss": run.test_loss,
                "refused": run.refused,
            }
        )
        for cell, run in runs
    )
