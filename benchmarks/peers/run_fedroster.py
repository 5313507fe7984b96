"""Fedroster's cohort trainer and federated average."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.worker import Round, Workload, serve
from fedroster.aggregation.fedavg import federated_average
from fedroster.core.streams import Streams
from fedroster.lab.training.cohort import CohortTrainer


def trainer(work: Workload) -> CohortTrainer:
    return CohortTrainer(
        model=work.model,
        train_x=np.array(work.x),
        train_y=np.array(work.y),
        test_x=np.array(work.x[:100]),
        test_y=np.array(work.y[:100]),
        partition=work.partition,
        epochs=work.epochs,
        batch_size=work.batch_size,
        learning_rate=work.learning_rate,
        measure_losses=False,
        num_threads=None,
    )


def make(work: Workload) -> Round:
    cohort, streams = trainer(work), Streams(0)
    parameters = cohort.init(rng=streams.at("model"))

    def play(number: int, clients: list[int]) -> None:
        nonlocal parameters
        updates = cohort.train(parameters, np.array(clients), round=number, streams=streams)
        arrived = np.ones(len(clients), np.bool_)
        average = federated_average(parameters, updates.parameters, updates.num_samples, arrived=arrived)
        parameters = average.parameters

    return play


if __name__ == "__main__":
    serve(make)
