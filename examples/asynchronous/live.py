"""Buffered asynchronous training (FedBuff: Nguyen et al. 2022) of clients that really work in parallel, here threads.

Behind another engine only ``start`` changes: it sends a client the model, and calls back with its update.  In a
simulated network ``federate(..., places=FreePlaces(buffer=4, discount=0.5))`` is the same.
Run ``python examples/asynchronous/live.py --policy floor``.
"""

import argparse
import math
import queue
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fedroster import Selector, make_policy
from fedroster.lab.task import Task
from fedroster.types import AnyPolicy, Streams


def difference(models: dict, base: dict) -> dict:
    """How far the model of one client has moved."""
    return {name: values[0] - base[name] for name, values in models.items()}


def added(base: dict, updates: list[tuple[float, dict]]) -> dict:
    """A model moved by the mean of weighted updates."""
    return {
        name: values + sum(weight * update[name] for weight, update in updates) / len(updates)
        for name, values in base.items()
    }


def train_live(
    policy: AnyPolicy, trainer, *, num_clients: int, concurrency: int, buffer: int, changes: int, pause_s: float
) -> tuple[dict, Selector]:
    """Train until the model has changed so often; slow clients take twenty times as long as fast ones."""
    selector = Selector(policy, cohort_size=concurrency, clients=range(num_clients), patience_rounds=10**6)
    streams, answers = Streams(0), queue.Queue()
    model, version, updates = trainer.init(rng=streams.at("model")), 0, []

    def start(client: int, number: int, model: dict, version: int) -> None:
        """The engine: work with this client, and put what comes back into the queue."""
        began = time.perf_counter()
        time.sleep(pause_s * (1 + client % 20))
        try:
            trained = trainer.train(model, np.array([client]), round=number, streams=streams)
            answers.put((client, number, time.perf_counter() - began, version, difference(trained.parameters, model)))
        except Exception:  # a client that fails must not end the run
            answers.put((client, number, time.perf_counter() - began, version, None))

    free = concurrency
    with ThreadPoolExecutor(concurrency) as engine:
        while version < changes:
            cohort = selector.select(at_most=free)
            free -= len(cohort.clients)
            for client in cohort.clients:
                engine.submit(start, client, cohort.round, model, version)
            client, number, time_s, began_at, update = answers.get()
            free += 1
            if update is None:
                selector.observe(number, failed=[client], round_s=time_s)
                continue
            selector.observe(number, times_s={client: time_s})
            updates.append((1.0 / math.sqrt(1 + version - began_at), update))
            if len(updates) == buffer:
                model, version, updates = added(model, updates), version + 1, []
    return model, selector


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="floor")
    parser.add_argument("--changes", type=int, default=60)
    options = parser.parse_args()
    trainer = Task("digits").trainer(num_clients=40, seed=0)
    model, selector = train_live(
        make_policy(options.policy),
        trainer,
        num_clients=40,
        concurrency=8,
        buffer=4,
        changes=options.changes,
        pause_s=0.01,
    )
    counts = np.array([*selector.participation().values()])
    accuracy = trainer.evaluate(model).accuracy
    print(f"accuracy {accuracy:.3f}; each client was chosen {counts.min()} to {counts.max()} times")
