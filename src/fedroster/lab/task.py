"""What is trained: a data set, how it is divided among the clients, and the clients' work, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedroster.errors import ConfigurationError, UnknownNameError
from fedroster.lab.data.dataset import Dataset
from fedroster.lab.data.load import load_dataset
from fedroster.lab.data.partition import class_counts, dirichlet_partition, iid_partition, label_partition
from fedroster.parts import check_integer, check_number
from fedroster.types import IntArray, Streams

if TYPE_CHECKING:
    from fedroster.lab.training.cohort import CohortTrainer, Device
    from fedroster.lab.training.tasks import LocalTraining


@dataclass(frozen=True, slots=True)
class Partition:
    """How samples are divided among clients.

    Attributes:
        kind: "dirichlet" (Huang et al. 2021; Choice A9), "labels" (Qu et al. 2021: this many labels a client) or "iid".
        value: gamma_1 > 0, or the number of labels; without meaning for "iid".
    """

    kind: Literal["dirichlet", "labels", "iid"]
    value: float = 0.0

    @staticmethod
    def parse(text: str) -> Partition:
        """Read ``dirichlet:0.5``, ``labels:2`` or ``iid``."""
        kind, colon, value = text.partition(":")
        try:
            if kind == "iid" and not colon:
                return Partition("iid")
            if kind == "dirichlet":
                check_number("gamma_1", float(value), above=0.0)
                return Partition("dirichlet", float(value))
            if kind == "labels":
                check_integer("labels of a client", int(value), least=1)
                return Partition("labels", int(value))
        except ValueError as error:
            if isinstance(error, ConfigurationError):
                raise
        raise ConfigurationError(
            f"partition is {text!r}; expected dirichlet:GAMMA_1, labels:NUMBER or iid, such as dirichlet:0.5"
        )

    def divide(self, dataset: Dataset, *, num_clients: int, samples_per_client: int, seed: int) -> IntArray:
        """Divide a data set's training samples, shape (clients, samples_per_client).

        Clients share no sample where the data set is large enough; with "dirichlet" they may (Choice A9).
        """
        labels, rng = dataset.train_y, Streams(seed).at("partition")
        sizes = {"num_clients": num_clients, "samples_per_client": samples_per_client}
        if self.kind == "iid":
            return iid_partition(labels, **sizes, rng=rng)
        sizes["num_classes"] = dataset.num_classes
        if self.kind == "labels":
            return label_partition(labels, **sizes, labels_per_client=int(self.value), rng=rng)
        return dirichlet_partition(labels, **sizes, gamma_1=self.value, rng=rng)


@dataclass(frozen=True, slots=True)
class Task:
    """A training task of :data:`~fedroster.lab.training.tasks.TASKS` with a partition, and with less work where asked.

    Attributes:
        name: Name of the task: data set, model and local training.
        partition: As :meth:`Partition.parse` reads it.
        samples_per_client: Samples of each client; None for the task's own.
        epochs: Local epochs E; None for the task's own.
    """

    name: str = "digits"
    partition: str = "dirichlet:0.5"
    samples_per_client: int | None = None
    epochs: int | None = None

    def check(self) -> None:
        """Raise what :meth:`trainer` would for its parameters, without loading data."""
        Partition.parse(self.partition)
        for name in ("samples_per_client", "epochs"):
            if (value := getattr(self, name)) is not None:
                check_integer(name, value, least=1)
        self.local()

    def local(self) -> LocalTraining:
        """Data set, model and local training."""
        from fedroster.lab.training.tasks import TASKS

        if self.name not in TASKS:
            raise UnknownNameError.of("task", self.name, TASKS)
        return TASKS[self.name]

    def divided(self, *, num_clients: int, seed: int, folder: Path | None = None) -> tuple[Dataset, IntArray]:
        """The data set, and which of its training samples each client holds, shape (clients, samples).

        A data set is not cut into smaller pieces for more clients: each client draws its own samples, as
        :meth:`Partition.divide` says, and several hold the same one where there are more clients than data.  What a
        client costs is a row of indices, 4 bytes a sample: 4 MB for 10,000 clients of 100 samples.  Both are shared by
        all runs of a process with the same arguments, and must not be written to.
        """
        self.check()
        return _dataset(self.local().dataset, folder), _partition(self, num_clients, seed, folder)

    def class_counts(self, *, num_clients: int, seed: int, folder: Path | None = None) -> IntArray:
        """How many samples of each class each client of a run holds, shape (clients, classes)."""
        dataset, partition = self.divided(num_clients=num_clients, seed=seed, folder=folder)
        return class_counts(partition, dataset.train_y, dataset.num_classes)

    def trainer(
        self,
        *,
        num_clients: int,
        seed: int,
        folder: Path | None = None,
        device: Device = "cpu",
        num_threads: int | None = 1,
        measure_losses: bool | Literal["before"] = False,
    ) -> CohortTrainer:
        """Return the trainer of the clients of one run.

        Args:
            num_clients: N.
            seed: Seed of the partition; the test set is the same for every seed.
            folder: Where the data set lies; None for where :func:`~fedroster.lab.data.load.load_dataset` looks.
            device: "cpu", "cuda", or "auto" for a GPU if there is one.
            num_threads: Threads on the CPU.
            measure_losses: Whether to measure each client's loss before and after training; "before" is what policies
                that want losses need.

        Raises:
            FedrosterError: As :meth:`check`, or if the data set is not there, damaged or too small.
        """
        from fedroster.lab.training.cohort import CohortTrainer

        local = self.local()
        dataset, partition = self.divided(num_clients=num_clients, seed=seed, folder=folder)
        return CohortTrainer(
            model=local.model,
            train_x=dataset.train_x,
            train_y=dataset.train_y,
            test_x=dataset.test_x,
            test_y=dataset.test_y,
            partition=partition,
            epochs=self.epochs or local.epochs,
            batch_size=local.batch_size,
            learning_rate=local.learning_rate,
            measure_losses=measure_losses,
            device=device,
            num_threads=num_threads,
        )


@lru_cache(maxsize=1)
def _dataset(name: str, folder: Path | None) -> Dataset:
    """Load once for all runs of a process."""
    return load_dataset(name, folder=folder)


@lru_cache(maxsize=2)
def _partition(task: Task, num_clients: int, seed: int, folder: Path | None) -> IntArray:
    """Divide once for all policies that a process runs with a seed: 10,000 clients take a second."""
    local = task.local()
    dataset = _dataset(local.dataset, folder)
    partition = Partition.parse(task.partition).divide(
        dataset,
        num_clients=num_clients,
        samples_per_client=task.samples_per_client or local.samples_per_client,
        seed=seed,
    )
    partition = partition.astype(np.int32)
    partition.setflags(write=False)
    return partition
