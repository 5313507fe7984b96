"""The round loop with training: the four stages of :mod:`fedroster.simulation`, with real models in the last two."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroster.aggregation.fedavg import Aggregate, federated_average, finite_updates, weighted_sum
from fedroster.aggregation.hierarchical import aggregate_edges, aggregate_globally, broadcast, edge_answers
from fedroster.aggregation.memory import UpdateMemory, UpdateTable
from fedroster.aggregation.places import FreePlaces
from fedroster.aggregation.server import ServerStep
from fedroster.aggregation.signatures import signatures_of
from fedroster.errors import ConfigurationError, StateFileError
from fedroster.lab.training.protocol import Evaluation, Trainer, Updates
from fedroster.parts import (
    Model,
    asks,
    check_integer,
    load_arrays,
    polls,
    save_arrays,
    signs,
    suggests,
    wants_losses,
)
from fedroster.simulation import Checkpoint, Round, checkpoint_parts, restore_checkpoint, simulate
from fedroster.types import (
    AnyEnvironment,
    AnyPolicy,
    BoolArray,
    Feedback,
    FloatArray,
    IntArray,
    Outcome,
    ProblemSpec,
    RoundContext,
    Selection,
    Status,
    Streams,
)

PLAIN = ServerStep()


@dataclass(frozen=True, slots=True)
class FederatedRound:
    """One round with training.

    Attributes:
        round: The round itself.
        parameters: Global model after the round.  With edge servers it is the mean of their models: what the cloud has
            after a global aggregation, and would have after any other round.
        edges: Edge models after the round, shape (servers, ...) by name; None without edge servers.
        accuracy: Test accuracy of ``parameters``, in [0, 1]; NaN where it was not tested.
        test_loss: Their test loss; NaN where it was not tested.
        refused: Clients whose update arrived and was refused because it is not finite, shape (r,).
        elapsed_s: Simulated time since the first round, seconds.
        aggregation: What the server remembers beside the model, by name; its arrays are reused by the next round.
    """

    round: Round
    parameters: Model
    edges: Model | None
    accuracy: float
    test_loss: float
    refused: IntArray
    elapsed_s: float
    aggregation: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingCheckpoint:
    """All that is needed to go on after a round.

    Attributes:
        rounds: Policy and network.
        parameters: Global model.
        elapsed_s: Simulated time so far, seconds.
        edges: Edge models; None without edge servers.
        records: What the caller kept beside them.
        aggregation: Update memory and moments of the server's step.
    """

    rounds: Checkpoint
    parameters: Model
    elapsed_s: float
    edges: Model | None = None
    records: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    aggregation: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(eq=False)
class _Rounds:
    """Stages 3 and 4 of a round: the chosen clients train, the server aggregates what arrives.

    Updates become the next model by federated averaging, an update memory of each server, and the server's step.
    """

    trainer: Trainer
    policy: AnyPolicy
    spec: ProblemSpec
    streams: Streams
    memory: UpdateMemory | None
    step: ServerStep
    places: FreePlaces | None
    start: TrainingCheckpoint | None

    def __post_init__(self) -> None:
        start = self.start
        memory = self.memory
        spec = self.spec
        self._wants_losses = wants_losses(self.policy)
        self._wanted = signs(self.policy)
        self._measured = np.empty((3, 0))  # loss before, its square, samples
        self._signature = np.empty((0, 0))
        self.parameters = self.trainer.init(rng=self.streams.at("model")) if start is None else start.parameters
        self.edges: Model | None = None
        self.evaluation: Evaluation | None = None
        self.refused = np.empty(0, np.int64)
        self.tables: list[UpdateTable] = []
        if memory is not None:
            self.tables = [UpdateTable(memory, self.parameters, spec.num_clients) for _ in range(spec.num_servers)]
        self._moments = self.step.init(self.parameters)
        if start is None:
            return
        for number, table in enumerate(self.tables):
            table.restore(_part(start.aggregation, f"memory-{number}."))
        for name, moment in self._moments.items():
            if (found := start.aggregation.get(f"step.{name}")) is None or found.shape != moment.shape:
                raise ConfigurationError(f"the checkpoint has no moment {name!r} of such a server's step")
            moment[...] = found

    def kept(self) -> dict[str, NDArray[Any]]:
        """What the server remembers beside the model."""
        found: dict[str, NDArray[Any]] = {f"step.{name}": value for name, value in self._moments.items()}
        for number, table in enumerate(self.tables):
            found |= {f"memory-{number}.{name}": value for name, value in table.arrays().items()}
        return found

    def __call__(self, context: RoundContext, selection: Selection, outcome: Outcome) -> Feedback:
        feedback = outcome.reveal(context, selection)
        arrived = self._arrived(context, selection, outcome, feedback)
        self._measured = np.full((3, arrived.shape[0]), np.nan)
        self._signature = np.full((arrived.shape[0], self._wanted.length if self._wanted else 0), np.nan)
        # Only what arrives is trained: the rest is never seen.
        good = arrived.copy()
        if arrived.any():
            good[arrived] = self._train_and_aggregate(context, selection, feedback, arrived)
        # Of a refused update, nothing is believed.
        if self._wants_losses:
            loss, squared_loss, num_samples = np.where(good, self._measured, np.nan)
            feedback = replace(feedback, loss=loss, squared_loss=squared_loss, num_samples=num_samples)
        if self._wanted is not None:
            feedback = replace(feedback, signature=np.where(good[:, None], self._signature, np.nan))
        failed = arrived & ~good
        self.refused = feedback.client[failed]
        status, time_s = feedback.status.copy(), feedback.exchange_time_s.copy()
        status[failed] = Status.FAILED
        time_s[failed] = np.nan
        return replace(feedback, status=status, exchange_time_s=time_s)

    def _arrived(self, context: RoundContext, selection: Selection, outcome: Outcome, feedback: Feedback) -> BoolArray:
        """Which of the chosen links' updates are used, if they are finite, shape (k,)."""
        completed: BoolArray = feedback.status == Status.COMPLETED
        return completed

    def _train_and_aggregate(
        self, context: RoundContext, selection: Selection, feedback: Feedback, arrived: BoolArray
    ) -> BoolArray:
        """Replace the model; return which of the arrived updates are finite."""
        clients = feedback.client[arrived]
        updates = self._train(self.parameters, clients, np.flatnonzero(arrived), context)
        weights = None if selection.weights is None else selection.weights[arrived]
        average = self._averaged(self.parameters, updates, clients, weights)
        if average.used.any():
            self.parameters, self.evaluation = average.parameters, None
        return average.used

    def _train(self, model: Model, clients: IntArray, rows: IntArray, context: RoundContext) -> Updates:
        """Train clients, of these rows of the feedback, from a model; note what they measured, and signatures."""
        updates = self.trainer.train(model, clients, round=context.round, streams=self.streams)
        if self._wanted is not None:
            self._signature[rows] = signatures_of(updates.parameters, model, self._wanted, seed=self.streams.seed)
        self._measured[0, rows] = updates.loss_before
        self._measured[2, rows] = updates.num_samples
        if updates.squared_loss is not None:
            self._measured[1, rows] = updates.squared_loss
        return updates

    def _usable(self, updates: Model, num: int, *, base: Model) -> BoolArray:
        """Which of some clients' models are finite, and so are their updates as they are remembered, shape (k,)."""
        good = finite_updates(updates, num)
        return good & self.tables[0].usable(updates, num, base=base) if self.tables else good

    def _moved(self, model: Model, direction: Model) -> Model:
        """The model after the server's step."""
        return self.step.apply(model, direction, self._moments)

    def _averaged(
        self, model: Model, updates: Updates, clients: IntArray, weights: FloatArray | None, *, server: int = 0
    ) -> Aggregate:
        """The next model from those of a cohort, which were all sent ``model``; the decision's weights, shape (k,)."""
        num = clients.shape[0]
        if not self.tables and weights is None:
            average = federated_average(model, updates.parameters, updates.num_samples, arrived=np.ones(num, np.bool_))
            if self.step.is_plain or not average.used.any():
                return average
            change: Model = {name: average.parameters[name] - value.astype(np.float64) for name, value in model.items()}
            return replace(average, parameters=self._moved(model, change))
        good = self._usable(updates.parameters, num, base=model)
        if not good.any():
            return Aggregate(model, good)
        arrived = {name: values[good] for name, values in updates.parameters.items()}
        if self.tables:
            given = {} if weights is None else {"weights": weights[good], "shares": np.ones(int(good.sum()))}
            direction = self.tables[server].step(clients[good], arrived, updates.num_samples[good], base=model, **given)
        else:
            moves = {name: values.astype(np.float64) - model[name] for name, values in arrived.items()}
            direction = weighted_sum(moves, np.asarray(weights)[good])
        return Aggregate(self._moved(model, direction), good)

    def losses(self, context: RoundContext, links: IntArray) -> FloatArray:
        """What the clients of some rows say when they are asked for the loss of the global model, shape (k,)."""
        losses: Callable[[Model, IntArray], FloatArray] | None = getattr(self.trainer, "losses", None)
        if losses is None:
            raise ConfigurationError(
                f"the policy polls, and {type(self.trainer).__name__} has no losses(parameters, clients); "
                "expected a trainer that measures losses without training, such as CohortTrainer"
            )
        return losses(self.parameters, context.clients_of(links))

    def norms(self, context: RoundContext, links: IntArray) -> FloatArray:
        """Norms of the updates that the clients of some rows would send, shape (k,); NaN where one is not finite."""
        clients = context.clients_of(links)
        updates = self.trainer.train(self.parameters, clients, round=context.round, streams=self.streams)
        moves = [
            (values.astype(np.float64) - self.parameters[name]).reshape(clients.shape[0], -1)
            for name, values in updates.parameters.items()
        ]
        squares: FloatArray = np.sum([np.einsum("kp,kp->k", move, move) for move in moves], axis=0)
        return np.where(np.isfinite(squares), np.sqrt(squares), np.nan)

    def evaluate(self) -> Evaluation:
        """Test the model; once for each model."""
        if self.evaluation is None:
            self.evaluation = self.trainer.evaluate(self.parameters)
        return self.evaluation


class _Edges(_Rounds):
    """The same with edge servers: each client trains its server's model (Qu et al. 2021, section III-A and C).

    Every server aggregates the updates that it waits for (6), late ones too when fewer than Z came in time, and the
    cloud aggregates the edge models every T_ES rounds.  Weights of a decision count M times at each of M servers: the
    cloud's mean of the edge models then moves by their sum.
    """

    edges: Model

    def __post_init__(self) -> None:
        super().__post_init__()
        known = None if self.start is None else self.start.edges
        self.edges = broadcast(self.parameters, self.spec.num_servers) if known is None else known

    def __call__(self, context: RoundContext, selection: Selection, outcome: Outcome) -> Feedback:
        feedback = super().__call__(context, selection, outcome)
        if outcome.global_round:
            self.edges = broadcast(self.parameters, self.spec.num_servers)
        return feedback

    def _arrived(self, context: RoundContext, selection: Selection, outcome: Outcome, feedback: Feedback) -> BoolArray:
        return edge_answers(outcome, context, selection).used

    def _train_and_aggregate(
        self, context: RoundContext, selection: Selection, feedback: Feedback, arrived: BoolArray
    ) -> BoolArray:
        rows, clients = np.flatnonzero(arrived), feedback.client[arrived]
        server = np.zeros(clients.shape[0], np.int64) if feedback.server is None else feedback.server[arrived]
        models: dict[str, NDArray[Any]] = {}
        following: Model = {name: values.copy() for name, values in self.edges.items()}
        good = np.zeros(clients.shape[0], np.bool_)
        weights = None if selection.weights is None else selection.weights[arrived] * self.spec.num_servers
        by_server = weights is not None or bool(self.tables)
        for m in np.unique(server):
            mine = server == m
            edge = {name: values[m] for name, values in self.edges.items()}
            updates = self._train(edge, clients[mine], rows[mine], context)
            if by_server:
                alike = replace(updates, num_samples=np.ones_like(updates.num_samples))  # as in edge aggregation
                counts = None if weights is None else weights[mine]
                moved = self._averaged(edge, alike, clients[mine], counts, server=int(m))
                good[mine] = moved.used
                for name, value in moved.parameters.items():
                    following[name][m] = value
            for name, values in updates.parameters.items():
                if name not in models:
                    models[name] = np.empty((clients.shape[0], *values.shape[1:]), values.dtype)
                models[name][mine] = values
        if not by_server:
            good = finite_updates(models, clients.shape[0])
            following = aggregate_edges(self.edges, models, server, good)
        if good.any():
            self.edges = following
            self.parameters, self.evaluation = aggregate_globally(self.edges), None
        return good


class _Places(_Rounds):
    """The same in free places: a client trains the model of the moment, and its update arrives later."""

    places: FreePlaces

    def __post_init__(self) -> None:
        """Start with the updates of clients at work and of the buffer, those kept at a checkpoint if there are."""
        super().__post_init__()
        none: dict[str, NDArray[Any]] = dict.fromkeys(("client", "sent", "samples"), np.empty(0, np.int64)) | {
            "weight": np.empty(0)
        }
        none |= {f"w.{name}": np.empty((0, *np.shape(value)), np.float32) for name, value in self.parameters.items()}
        fresh = {f"{part}.{name}": value for part in ("under-way", "buffer") for name, value in none.items()}
        fresh |= {"places.samples": np.zeros(self.spec.num_clients), "places.version": np.zeros(1, np.int64)}
        found = fresh if self.start is None else self.start.aggregation
        if any(name not in found or found[name].shape[1:] != value.shape[1:] for name, value in fresh.items()):
            raise ConfigurationError("the checkpoint is of training in rounds, or of another model")
        self._under_way = _part(found, "under-way.")
        self._buffer = _part(found, "buffer.")
        self._samples, self._version = found["places.samples"], found["places.version"]

    def kept(self) -> dict[str, NDArray[Any]]:
        """Updates of clients at work and of the buffer, samples and the number of changes, too."""
        own = {"samples": self._samples, "version": self._version}
        parts = {"under-way": self._under_way, "buffer": self._buffer, "places": own}
        found = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        return super().kept() | found

    def _train_and_aggregate(
        self, context: RoundContext, selection: Selection, feedback: Feedback, arrived: BoolArray
    ) -> BoolArray:
        clients = feedback.client[arrived]
        updates = self._train(self.parameters, clients, np.flatnonzero(arrived), context)
        good = self._usable(updates.parameters, clients.shape[0], base=self.parameters)
        new = {
            "client": clients,
            "sent": np.full(clients.shape[0], self._version[0]),
            "samples": updates.num_samples,
            "weight": np.full(clients.shape[0], np.nan)
            if selection.weights is None
            else context.cohort_size * selection.weights[arrived],
        } | {f"w.{name}": values - self.parameters[name] for name, values in updates.parameters.items()}
        for name, values in new.items():
            self._under_way[name] = np.concatenate((self._under_way[name], values[good]))
        return good

    def arrive(self, feedback: Feedback) -> None:
        """An update that has come in time joins the buffer; a full buffer changes the model."""
        self.refused = feedback.client[feedback.status == Status.FAILED]
        mine = np.isin(self._under_way["client"], feedback.client)
        if not mine.any():
            return
        for name, values in self._under_way.items():
            self._buffer[name] = np.concatenate((self._buffer[name], values[mine]))
            self._under_way[name] = values[~mine]
        self._samples[self._buffer["client"][-1]] = self._buffer["samples"][-1]
        if self._buffer["client"].shape[0] >= self.places.buffer:
            self._change()

    def _change(self) -> None:
        buffer = self._buffer
        clients, samples = buffer["client"], buffer["samples"]
        count = clients.shape[0]
        by_samples = samples / self._samples[self._samples > 0.0].mean()
        weights = np.where(np.isnan(buffer["weight"]), by_samples, buffer["weight"])
        weights = self.places.weights(weights, self._version[0] - buffer["sent"])
        updates, shares = _part(buffer, "w."), np.full(count, 1.0 / count)
        direction: Model
        if self.tables:
            direction = self.tables[0].step(clients, updates, samples, weights=weights, shares=shares)
        else:
            direction = weighted_sum(updates, shares * weights)
        scale = count / self.spec.cohort_size
        direction = {name: scale * values for name, values in direction.items()}
        self.parameters = self._moved(self.parameters, direction)
        self.evaluation = None
        self._version += 1
        self._buffer = {name: values[:0] for name, values in buffer.items()}


@suggests
def federate(
    policy: AnyPolicy,
    environment: AnyEnvironment,
    trainer: Trainer,
    *,
    rounds: int,
    seed: int,
    evaluate_every: int = 1,
    start: TrainingCheckpoint | None = None,
    memory: UpdateMemory | None = None,
    server: ServerStep = PLAIN,
    places: FreePlaces | None = None,
) -> Iterator[FederatedRound]:
    """Play rounds with training.

    Args:
        policy: Chooses the clients, and may weigh them; else updates count by samples.  If it wants losses, it learns
            for each client whose update is used what the trainer measured before training: the mean loss, the mean of
            its square, and the number of samples.  One that says a ``signature`` learns that of each such update.  One
            that polls asks for the loss of the global model before it decides, or lets candidates train and asks for
            the norms of their updates; the round's time has both legs.
        environment: The network.
        trainer: Trains cohorts and tests models.
        rounds: Last round to play.
        seed: Seed of all random streams.
        evaluate_every: Rounds from one test of the model to the next, >= 1; the last round has one, too.
        start: Checkpoint to continue from; the loop may change it. None to begin.
        memory: How clients' last updates are remembered, by each edge server if there are several; None for not.
        server: The server's step; with several servers there is none but the plain one.
        places: How answers change the model where free places are filled at once; None for rounds.  A round is then one
            filling, and ``rounds`` are fillings: m times as many for the same number of updates.

    Yields:
        The rounds.  An update that is not finite is refused and reported, and the round continues. If no update
        arrives, the model does not change.

    Raises:
        ConfigurationError: If ``evaluate_every`` is not a positive integer, the policy polls and the trainer cannot
            measure losses without training, the table is beyond its budget, several servers have a step, or a policy
            that weighs updates meets a memory with the rule "mean".
        InfeasibleError: If the policy's guarantee is impossible.
        SelectionError: If a decision breaks a hard constraint.
    """
    check_integer("evaluate_every", evaluate_every, least=1)
    spec = environment.spec
    if memory is not None and memory.rule == "mean" and callable(getattr(policy, "weights", None)):
        raise ConfigurationError(
            f"memory is {memory}, in whose step no update of a cohort has a weight, and {type(policy).__name__} weighs "
            "them; expected rule='difference'"
        )
    if spec.num_servers > 1 and not server.is_plain:
        raise ConfigurationError(
            f"server is {server} with {spec.num_servers} servers; expected the plain step, ServerStep()"
        )
    elapsed_s = 0.0 if start is None else start.elapsed_s
    kind = _Places if places is not None else _Edges if spec.num_servers > 1 else _Rounds
    exchange = kind(trainer, policy, spec, Streams(seed), memory, server, places, start)
    course = simulate(
        policy,
        environment,
        rounds=rounds,
        seed=seed,
        start=None if start is None else start.rounds,
        exchange=exchange,
        ask=None if not polls(policy) else exchange.norms if asks(policy) == "norms" else exchange.losses,
        free_places=places is not None,
        arrive=exchange.arrive if isinstance(exchange, _Places) else None,
    )
    for played in course:
        elapsed_s += played.time_s
        due = played.number % evaluate_every == 0 or played.number == rounds
        tested = exchange.evaluate() if due else Evaluation(math.nan, math.nan)
        yield FederatedRound(
            round=played,
            parameters=exchange.parameters,
            edges=exchange.edges,
            accuracy=tested.accuracy,
            test_loss=tested.loss,
            refused=exchange.refused,
            elapsed_s=elapsed_s,
            aggregation=exchange.kept(),
        )


def save_training(
    path: str | os.PathLike[str],
    last: FederatedRound,
    *,
    policy: AnyPolicy,
    environment: AnyEnvironment,
    seed: int,
    task: str = "",
    records: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Save everything that :func:`load_training` needs, atomically.

    ``task`` says what is trained, in words of the caller's: a file of another task is not loaded.  ``records`` are
    further arrays to keep beside it, such as what was measured so far.
    """
    arrays, header = checkpoint_parts(last.round, policy=policy, environment=environment, seed=seed)
    parts = {"model": last.parameters, "edges": last.edges, "aggregation": last.aggregation, "records": records}
    for part, values in parts.items():
        arrays |= {f"{part}.{name}": np.asarray(value) for name, value in (values or {}).items()}
    save_arrays(path, arrays, header | {"task": task, "elapsed_s": last.elapsed_s}, kind="training")


def load_training(
    path: str | os.PathLike[str], *, policy: AnyPolicy, environment: AnyEnvironment, seed: int, task: str = ""
) -> TrainingCheckpoint:
    """Load what :func:`save_training` saved, for the same policy, environment, seed and task.

    Raises:
        StateFileError: If the file is damaged or foreign.
        ConfigurationError: If it belongs to another policy, environment, seed or task.
    """
    arrays, header = load_arrays(path, kind="training")
    rounds = restore_checkpoint(arrays, header, path, policy=policy, environment=environment, seed=seed)
    if header.get("task") != task:
        raise ConfigurationError(f"{os.fspath(path)!r} belongs to task {header.get('task')!r}; expected {task!r}")
    elapsed_s = header.get("elapsed_s")
    if not isinstance(elapsed_s, float) or not elapsed_s >= 0.0:
        raise StateFileError(f"elapsed_s in {os.fspath(path)!r} is {elapsed_s!r}; expected a number >= 0")
    return TrainingCheckpoint(
        rounds=rounds,
        parameters=_part(arrays, "model."),
        elapsed_s=elapsed_s,
        edges=_part(arrays, "edges.") or None,
        records=_part(arrays, "records."),
        aggregation=_part(arrays, "aggregation."),
    )


def _part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
