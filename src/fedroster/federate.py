"""The round loop with training: the four stages of :mod:`fedroster.simulate`, with real models in the last two."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedroster.aggregation.fedavg import federated_average
from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import check_integer, check_number
from fedroster.core.problem import Feedback, Outcome, RoundContext, Selection, Status
from fedroster.core.protocols import AnyEnvironment, AnyPolicy
from fedroster.core.state import load_arrays, pack, save_arrays
from fedroster.core.streams import Streams
from fedroster.data.digits import load_digits
from fedroster.data.partition import dirichlet_partition
from fedroster.simulate import Checkpoint, Round, restore_checkpoint, simulate
from fedroster.training.protocol import Evaluation, Parameters, Trainer

if TYPE_CHECKING:
    from fedroster.training.cohort import CohortTrainer


@dataclass(frozen=True, slots=True)
class FederatedRound:
    """One round with training.

    Attributes:
        round: The round itself.
        parameters: Global model after the round.
        accuracy: Test accuracy after the round, in [0, 1]; NaN where it was not tested.
        test_loss: Test loss after the round; NaN where it was not tested.
        train_loss: Last training loss of each chosen client, shape (k,); NaN where its update did not arrive.
        refused: Clients whose update arrived and was refused because it is not finite, shape (r,).
        elapsed_s: Simulated time since the first round, seconds.
    """

    round: Round
    parameters: Parameters
    accuracy: float
    test_loss: float
    train_loss: FloatArray
    refused: IntArray
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class TrainingCheckpoint:
    """All that is needed to go on after a round.

    Attributes:
        rounds: Policy and network.
        parameters: Global model.
        elapsed_s: Simulated time so far, seconds.
    """

    rounds: Checkpoint
    parameters: Parameters
    elapsed_s: float


class _Exchange:
    """Stages 3 and 4 of a round: the chosen clients train, the server aggregates what arrives."""

    def __init__(self, trainer: Trainer, parameters: Parameters, streams: Streams) -> None:
        self._trainer = trainer
        self._streams = streams
        self.parameters = parameters
        self.evaluation: Evaluation | None = None
        self.train_loss: FloatArray = np.empty(0)
        self.refused: IntArray = np.empty(0, np.int64)

    def __call__(self, context: RoundContext, selection: Selection, outcome: Outcome) -> Feedback:
        feedback = outcome.reveal(context, selection)
        arrived = feedback.status == Status.COMPLETED
        self.train_loss = np.full(arrived.shape[0], np.nan)
        self.refused = np.empty(0, np.int64)
        if not arrived.any():
            return feedback
        # Only what arrives is trained: nobody sees the rest.
        clients = feedback.client[arrived]
        updates = self._trainer.train(self.parameters, clients, round=context.round, streams=self._streams)
        everybody = np.ones(clients.shape[0], np.bool_)
        average = federated_average(self.parameters, updates.parameters, updates.num_samples, arrived=everybody)
        self.train_loss[arrived] = updates.train_loss
        if average.used.any():
            self.parameters = average.parameters
            self.evaluation = None
        if average.used.all():
            return feedback
        self.refused = clients[~average.used]
        status = feedback.status.copy()
        time_s = feedback.exchange_time_s.copy()
        failed = np.flatnonzero(arrived)[~average.used]
        status[failed] = Status.FAILED
        time_s[failed] = np.nan
        return replace(feedback, status=status, exchange_time_s=time_s)

    def evaluate(self) -> Evaluation:
        """Test the model; once for each model."""
        if self.evaluation is None:
            self.evaluation = self._trainer.evaluate(self.parameters)
        return self.evaluation


def federate(
    policy: AnyPolicy,
    environment: AnyEnvironment,
    trainer: Trainer,
    *,
    num_rounds: int,
    seed: int,
    evaluate_every: int = 1,
    start: TrainingCheckpoint | None = None,
) -> Iterator[FederatedRound]:
    """Play rounds with training.

    Args:
        policy: Who takes part.
        environment: The network.
        trainer: Trains cohorts and tests models.
        num_rounds: Last round to play.
        seed: Seed of all random streams.
        evaluate_every: Test the model after every so many rounds, and after the last, >= 1.
        start: Go on after this checkpoint, given up to the loop; None to begin.

    Yields:
        The rounds.  An update that is not finite is refused and reported, and the round goes on; when no update
        arrives, the model stays as it is.

    Raises:
        ConfigurationError: If ``evaluate_every`` is not a positive integer.
        InfeasibleError: If the policy promises what cannot be had.
        SelectionError: If a decision breaks a hard constraint.
    """
    check_integer("evaluate_every", evaluate_every, least=1)
    streams = Streams(seed)
    first = trainer.init(rng=streams.at("model")) if start is None else start.parameters
    exchange = _Exchange(trainer, first, streams)
    elapsed_s = 0.0 if start is None else start.elapsed_s
    rounds = simulate(
        policy,
        environment,
        num_rounds=num_rounds,
        seed=seed,
        start=None if start is None else start.rounds,
        exchange=exchange,
    )
    for played in rounds:
        elapsed_s += played.time_s
        due = played.number % evaluate_every == 0 or played.number == num_rounds
        tested = exchange.evaluate() if due else None
        yield FederatedRound(
            round=played,
            parameters=exchange.parameters,
            accuracy=math.nan if tested is None else tested.accuracy,
            test_loss=math.nan if tested is None else tested.loss,
            train_loss=exchange.train_loss,
            refused=exchange.refused,
            elapsed_s=elapsed_s,
        )


def save_training(
    path: str | os.PathLike[str], last: FederatedRound, *, policy: AnyPolicy, environment: AnyEnvironment, seed: int
) -> None:
    """Save everything that :func:`load_training` needs, atomically.

    Args:
        path: File to create or replace.
        last: The last finished round.
        policy: The policy that plays.
        environment: The network that it plays on.
        seed: Seed of the run.
    """
    arrays = (
        pack(last.round.policy_state, "policy.")
        | pack(last.round.environment_state, "environment.")
        | {f"model.{name}": np.asarray(value) for name, value in last.parameters.items()}
    )
    header = {
        "round": last.round.number,
        "policy": repr(policy),
        "environment": repr(environment),
        "seed": seed,
        "elapsed_s": last.elapsed_s,
    }
    save_arrays(path, arrays, header, kind="training")


def load_training(
    path: str | os.PathLike[str], *, policy: AnyPolicy, environment: AnyEnvironment, seed: int
) -> TrainingCheckpoint:
    """Load what :func:`save_training` saved.

    Args:
        path: The file.
        policy: The same policy.
        environment: The same environment.
        seed: The same seed.

    Raises:
        StateFileError: If the file is damaged or foreign.
        ConfigurationError: If it belongs to another policy, environment or seed.
    """
    arrays, header = load_arrays(path, kind="training")
    rounds = restore_checkpoint(arrays, header, path, policy=policy, environment=environment, seed=seed)
    model = {name.removeprefix("model."): value for name, value in arrays.items() if name.startswith("model.")}
    return TrainingCheckpoint(rounds=rounds, parameters=model, elapsed_s=header["elapsed_s"])


@dataclass(frozen=True, slots=True)
class DigitsTask:
    """Handwritten digits, trained as :data:`~fedroster.training.tasks.DIGITS` says for every policy (Choice A10).

    Attributes:
        gamma_1: Concentration of the clients' class proportions, > 0.
    """

    gamma_1: float = 0.5

    def __post_init__(self) -> None:
        """Check the range."""
        check_number("gamma_1", self.gamma_1, above=0.0)

    def trainer(self, *, num_clients: int, seed: int) -> CohortTrainer:
        """Return the trainer of the clients of one run.

        Args:
            num_clients: N.
            seed: Seed of the partition; the test set is the same for every seed.

        Raises:
            MissingDependencyError: If PyTorch or scikit-learn is not installed.
        """
        from fedroster.training.cohort import CohortTrainer
        from fedroster.training.tasks import DIGITS

        digits = load_digits()
        partition = dirichlet_partition(
            digits.train_y,
            num_clients=num_clients,
            samples_per_client=DIGITS.samples_per_client,
            gamma_1=self.gamma_1,
            num_classes=digits.num_classes,
            rng=Streams(seed).at("partition"),
        )
        return CohortTrainer(
            model=DIGITS.model,
            train_x=digits.train_x,
            train_y=digits.train_y,
            test_x=digits.test_x,
            test_y=digits.test_y,
            partition=partition,
            epochs=DIGITS.epochs,
            batch_size=DIGITS.batch_size,
            learning_rate=DIGITS.learning_rate,
        )
