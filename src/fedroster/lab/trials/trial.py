"""A trial: one scenario, policy and seed, with training or without, and how it is run."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fedroster.catalogue import make_policy, make_scenario
from fedroster.errors import ConfigurationError, StateFileError
from fedroster.lab.trials.measures import Recorder, Run
from fedroster.parts import check_integer, check_number, wants_losses
from fedroster.record.simulated import SimulationRecord
from fedroster.simulation import promised_rate, promises, simulate
from fedroster.types import AnyEnvironment, AnyPolicy

if TYPE_CHECKING:
    from fedroster.lab.task import Task  # what trains is loaded where a trial trains

DEFAULT_RATE = 0.15
"""Rate at which participation is measured for policies that promise none (Huang et al. 2021, Table 2)."""

_CHECKPOINT_EVERY_S = 30.0


def _ignore(rounds: int) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which circumstances a trial runs; its result does not depend on them.

    Attributes:
        checkpoint: File for a half-finished run with training, which goes on from it; None to keep none.
        stop_at: Time (:func:`time.time`) after which a trial without training does not begin, and one that keeps a
            checkpoint stops after its next round.
        played: Called with the number of rounds that were played since the last call.
        device: "cpu", "cuda" or "auto", for training; floats may differ in the last digits.
        data_dir: Folder of the data sets; None for where they are looked for anyway.
        records: Folders for the logs of runs without training, by policy and seed.
        registry: Digest of what was registered of the runs before they began; empty for nothing.
    """

    checkpoint: Path | None = None
    stop_at: float = math.inf
    played: Callable[[int], None] = _ignore
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    data_dir: Path | None = None
    records: Mapping[tuple[str, int], Path] = field(default_factory=dict)
    registry: str = ""


ALONE = Conditions()
"""Without checkpoint, end or progress."""

Jobs: TypeAlias = Mapping[int, Conditions]
"""Which of some trials are to be run, by place, and under which conditions."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run, described.

    Attributes:
        scenario: Name.
        policy: Policy as text.
        seed: Seed of the network and of all that is trained: partition, model and batches.
        rounds: T; in free places the number of fillings.
        settings: Parameters of the scenario that are overridden, as text.
        task: What is trained; None for no training.
        evaluate_every: Rounds from one test of the model to the next; the last round has one, too.  In free places a
            model is tested every so many cohorts of choices, and counts until the next test.
        rate: beta at which participation is measured, in [0, 1]; None for the policy's own, or :data:`DEFAULT_RATE`.
    """

    scenario: str
    policy: str
    seed: int
    rounds: int
    settings: Mapping[str, str] = field(default_factory=dict)
    task: Task | None = None
    evaluate_every: int = 1
    rate: float | None = None

    def check(self) -> None:
        """Raise what :meth:`run` would, without running: unknown names, bad values, promises that cannot be kept."""
        check_integer("rounds", self.rounds, least=1)
        check_integer("evaluate_every", self.evaluate_every, least=1)
        if self.rate is not None:
            check_number("rate", self.rate, least=0.0, most=1.0)
        if self.task is not None:
            self.task.check()
        make_policy(self.policy).check(make_scenario(self.scenario, self.settings).spec)

    def run(self, conditions: Conditions = ALONE) -> Run | None:
        """Play the rounds; with training from the checkpoint if there is one, and None if the time is up first."""
        try:
            return self._run(conditions)
        except Exception as error:  # of many runs, which
            error.add_note(f"in the run of {self.policy} in {self.scenario}, seed {self.seed}")
            raise

    def _run(self, conditions: Conditions) -> Run | None:
        policy = make_policy(self.policy)
        environment = make_scenario(self.scenario, self.settings)
        promised = promised_rate(policy)[0] if promises(policy) else DEFAULT_RATE
        rate = promised if self.rate is None else self.rate
        recorder = Recorder(environment.spec.num_clients, self.rounds, rate=rate)
        if self.task is not None:
            return self._train(self.task, policy, environment, recorder, conditions)
        if time.time() > conditions.stop_at:
            return None
        log: SimulationRecord | None = None
        if (folder := conditions.records.get((self.policy, self.seed))) is not None:
            log = SimulationRecord(
                folder,
                policy,
                environment.spec,
                policy_text=self.policy,
                scenario=self.scenario,
                settings=self.settings,
                seed=self.seed,
            )
        witness = None if log is None else log.decided
        with nullcontext() if log is None else closing(log):
            for played in simulate(policy, environment, rounds=self.rounds, seed=self.seed, witness=witness):
                if log is not None:
                    log.played(played)
                recorder.add(played)
                conditions.played(1)
        return recorder.run

    def _train(
        self, task: Task, policy: AnyPolicy, environment: AnyEnvironment, recorder: Recorder, conditions: Conditions
    ) -> Run | None:
        from fedroster.aggregation.memory import UpdateMemory
        from fedroster.aggregation.places import FreePlaces
        from fedroster.lab.federated import TrainingCheckpoint, federate, load_training, save_training
        from fedroster.lab.task import usual_times

        trainer = task.trainer(
            num_clients=environment.spec.num_clients,
            seed=self.seed,
            folder=conditions.data_dir,
            device=conditions.device,
            measure_losses=wants_losses(policy),
            times_s=usual_times(environment, seed=self.seed) if task.coupling else None,
        )
        identity: dict[str, Any] = {
            "policy": policy,
            "environment": environment,
            "seed": self.seed,
            "task": repr(dataclasses.asdict(self)),
        }
        start: TrainingCheckpoint | None = None
        if conditions.checkpoint is not None:
            # None yet, gone because another process has finished this run, damaged, or of an older version: begin.
            with suppress(FileNotFoundError, StateFileError, ConfigurationError):
                start = load_training(conditions.checkpoint, **identity)
        saved_at = time.monotonic()
        accuracy = math.nan
        test_loss = math.nan
        if start is not None:
            recorder.restore(start.records)
            conditions.played(start.rounds.round)
            row = start.rounds.round - 1
            accuracy = float(recorder.run.accuracy[row])
            test_loss = float(recorder.run.test_loss[row])
        for trained in federate(
            policy,
            environment,
            trainer,
            rounds=self.rounds,
            seed=self.seed,
            evaluate_every=self.evaluate_every * (environment.spec.cohort_size if task.free_places else 1),
            start=start,
            memory=UpdateMemory() if task.memory else None,
            places=FreePlaces() if task.free_places else None,
        ):
            if not task.free_places or math.isfinite(trained.accuracy):
                accuracy, test_loss = trained.accuracy, trained.test_loss
            recorder.add(
                trained.round,
                accuracy=accuracy,
                test_loss=test_loss,
                refused=trained.refused.shape[0],
            )
            conditions.played(1)
            if conditions.checkpoint is None or trained.round.number == self.rounds:
                continue
            stop = time.time() >= conditions.stop_at
            if stop or time.monotonic() - saved_at > _CHECKPOINT_EVERY_S:
                save_training(conditions.checkpoint, trained, **identity, records=recorder.records())
                saved_at = time.monotonic()
            if stop:
                return None
        return recorder.run

    @property
    def work(self) -> float:
        """Rough cost in seconds, to decide whether processes pay."""
        clients = _num_clients(self.scenario, tuple(self.settings.items()))
        training = 0.0 if self.task is None else 0.01 if self.task.name == "digits" else 0.1
        return self.rounds * (1e-4 + 1e-7 * clients + training)


@cache
def _num_clients(scenario: str, settings: tuple[tuple[str, str], ...]) -> int:
    return make_scenario(scenario, dict(settings)).spec.num_clients
