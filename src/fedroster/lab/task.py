"""What is trained: a data set, how it is divided among the clients, and the clients' work, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedroster.errors import ConfigurationError, UnknownNameError
from fedroster.lab.data.load import Dataset, load_dataset
from fedroster.lab.data.partition import (
    class_counts,
    couple_with_speed,
    dirichlet_partition,
    iid_partition,
    label_partition,
)
from fedroster.parts import Count, NotNegative, Parameters, Positive, Share, check_integer, check_number
from fedroster.types import AnyEnvironment, FloatArray, IntArray, Streams

if TYPE_CHECKING:
    from fedroster.lab.training.cohort import CohortTrainer, Device
    from fedroster.lab.training.tasks import LocalTraining


def partition_of(text: str) -> Callable[..., IntArray]:
    """The division of labels (:mod:`fedroster.lab.data.partition`) that a text names; ConfigurationError for another.

    ``dirichlet:0.5`` is Huang et al. 2021's with gamma_1 = 0.5 (Choice A9), ``labels:2`` Qu et al. 2021's with two
    labels a client, and ``iid`` divides alike.
    """
    kind, _, value = text.partition(":")
    try:
        if text == "iid":
            return lambda labels, *, num_classes, **sizes: iid_partition(labels, **sizes)
        if kind == "dirichlet":
            check_number("gamma_1", float(value), above=0.0)
            return partial(dirichlet_partition, gamma_1=float(value))
        if kind == "labels":
            check_integer("labels of a client", int(value), least=1)
            return partial(label_partition, labels_per_client=int(value))
    except ConfigurationError:
        raise
    except ValueError:
        pass
    raise ConfigurationError(
        f"partition is {text!r}; expected dirichlet:GAMMA_1, labels:NUMBER or iid, such as dirichlet:0.5"
    )


@dataclass(frozen=True, slots=True)
class Task(Parameters):
    """A training task of :data:`~fedroster.lab.training.tasks.TASKS` with a partition, and with less work where asked.

    Attributes:
        name: Name of the task: data set, model and local training.
        partition: As :func:`partition_of` reads it.
        samples_per_client: Samples of each client; None for the task's own.
        epochs: Local epochs E; None for the task's own.
        learning_rate: eta of the local steps; None for the task's own.
        proximal: mu of FedProx (Li et al. 2020), >= 0.
        coupling: Share of a client's samples whose labels go with its speed, in [0, 1]
            (:func:`~fedroster.lab.data.partition.couple_with_speed`).
        memory: Whether the server remembers each client's last update (:mod:`fedroster.aggregation.memory`).
        free_places: Whether places are filled as they become free; the model then changes with each answer.
    """

    name: str = "digits"
    partition: str = "dirichlet:0.5"
    samples_per_client: Count | None = None
    epochs: Count | None = None
    learning_rate: Positive | None = None
    proximal: NotNegative = 0.0
    coupling: Share = 0.0
    memory: bool = False
    free_places: bool = False

    def check(self) -> None:
        """Raise what :meth:`trainer` would for its names, without loading data."""
        partition_of(self.partition)
        self.local()

    def local(self) -> LocalTraining:
        """Data set, model and local training."""
        from fedroster.lab.training.tasks import TASKS

        if self.name not in TASKS:
            raise UnknownNameError.of("task", self.name, TASKS)
        return TASKS[self.name]

    def divided(
        self, *, num_clients: int, seed: int, folder: Path | None = None, times_s: FloatArray | None = None
    ) -> tuple[Dataset, IntArray]:
        """The data set, and which of its training samples each client holds, shape (clients, samples).

        A data set is not cut into smaller pieces for more clients: several hold the same sample where there are more
        clients than data; with "dirichlet" they may in any case (Choice A9).  What a client costs is a row of indices,
        4 bytes a sample: 4 MB for 10,000 clients of 100 samples.  Both are shared by all runs of a process with the
        same arguments, and must not be written to.
        """
        self.check()
        if self.coupling and times_s is None:
            raise ConfigurationError(f"coupling is {self.coupling} without times_s; expected the clients' usual times")
        times = None if times_s is None or not self.coupling else tuple(times_s.tolist())
        return _dataset(self.local().dataset, folder=folder), _partition(self, num_clients, seed, folder, times)

    def class_counts(self, *, num_clients: int, seed: int) -> IntArray:
        """How many samples of each class each client of a run holds, shape (clients, classes)."""
        dataset, partition = self.divided(num_clients=num_clients, seed=seed)
        return class_counts(partition, dataset.train_y, dataset.num_classes)

    def trainer(
        self,
        *,
        num_clients: int,
        seed: int,
        folder: Path | None = None,
        device: Device = "cpu",
        num_threads: int | None = 1,
        measure_losses: bool = False,
        times_s: FloatArray | None = None,
    ) -> CohortTrainer:
        """Return the trainer of the clients of one run.

        Args:
            num_clients: N.
            seed: Seed of the partition; the test set is the same for every seed.
            folder: Where the data set lies; None for where :func:`~fedroster.lab.data.load.load_dataset` looks.
            device: "cpu", "cuda", or "auto" for a GPU if there is one.
            num_threads: Threads on the CPU.
            measure_losses: Whether to measure the loss of the model that each client is sent, as some policies want.
            times_s: Usual time of each client (:func:`usual_times`), for data that is coupled with speed.

        Raises:
            FedrosterError: As :meth:`check`, or if the data set is not there, damaged or too small.
        """
        from fedroster.lab.training.cohort import CohortTrainer

        local = self.local()
        dataset, partition = self.divided(num_clients=num_clients, seed=seed, folder=folder, times_s=times_s)
        return CohortTrainer(
            model=local.model,
            train_x=dataset.train_x,
            train_y=dataset.train_y,
            test_x=dataset.test_x,
            test_y=dataset.test_y,
            partition=partition,
            epochs=self.epochs or local.epochs,
            batch_size=local.batch_size,
            learning_rate=self.learning_rate or local.learning_rate,
            proximal=self.proximal,
            measure_losses=measure_losses,
            device=device,
            num_threads=num_threads,
        )


def usual_times(environment: AnyEnvironment, *, seed: int) -> FloatArray:
    """Mean exchange time of each client in a network as it begins, shape (clients,), seconds; infinite for one off it.

    Each of 100 rounds is drawn as if it were the first one.
    """
    streams = Streams(seed)
    state = environment.init(rng=streams.at("environment-init"))
    total, count = np.zeros((2, environment.spec.num_clients))
    for number in range(1, 101):
        context, outcome = environment.observe(state, number, rng=streams.at("environment", number))
        clients = context.clients_of(np.arange(context.num_links))
        np.add.at(total, clients, outcome.exchange_time_s)
        np.add.at(count, clients, 1.0)
    return np.divide(total, count, out=np.full_like(total, np.inf), where=count > 0.0)


_dataset = lru_cache(maxsize=1)(load_dataset)  # loaded once for all runs of a process


@lru_cache(maxsize=2)
def _partition(
    task: Task, num_clients: int, seed: int, folder: Path | None, times: tuple[float, ...] | None
) -> IntArray:
    """Divide once for all policies that a process runs with a seed: 10,000 clients take a second."""
    local = task.local()
    dataset = _dataset(local.dataset, folder=folder)
    partition = partition_of(task.partition)(
        dataset.train_y,
        num_clients=num_clients,
        samples_per_client=task.samples_per_client or local.samples_per_client,
        num_classes=dataset.num_classes,
        rng=Streams(seed).at("partition"),
    )
    if times is not None:
        partition = couple_with_speed(
            partition,
            dataset.train_y,
            np.array(times),
            coupling=task.coupling,
            num_classes=dataset.num_classes,
            rng=Streams(seed).at("coupling"),
        )
    partition = partition.astype(np.int32)
    partition.setflags(write=False)
    return partition
