"""Buffered asynchronous training (FedBuff: Nguyen et al. 2022) in a simulated network, with real training.

C clients work at any time, free places are filled at once, K updates change the model.  ``python buffered.py floor``.
"""

import heapq
import math
import sys

import numpy as np
from world import World, added, difference, measured

from fedroster import Selector, make_policy, make_scenario
from fedroster.lab.task import Task
from fedroster.types import Streams


def buffered(policy, world, trainer, *, concurrency, buffer, seed, until_s):
    """Yield time in seconds, model and selector after each change of the model."""
    selector = Selector(policy, cohort_size=concurrency, clients=world.clients, seed=seed, patience_rounds=10**6)
    streams, now_s, version, at_work, updates = Streams(seed), 0.0, 0, [], []
    model = trainer.init(rng=streams.at("model"))
    while now_s < until_s:
        if places := concurrency - len(at_work):
            contexts, outcome = world.look(selector.round + 1, now_s)
            cohort = selector.select(contexts, at_most=places)
            world.begin(cohort.clients)
            for client in cohort.clients:  # each trains the model of this moment
                trained = trainer.train(model, np.array([client]), round=cohort.round, streams=streams)
                update = difference(trained.parameters, model) if outcome.responds[client] else None
                time_s, losses = float(outcome.exchange_time_s[client]), measured([client], trained)
                heapq.heappush(at_work, (now_s + time_s, client, cohort.round, time_s, version, update, losses))
        if not at_work:  # no client is available
            now_s += world.idle_s
            continue
        now_s, client, number, time_s, began, update, losses = heapq.heappop(at_work)
        if update is None:
            selector.observe(number, dropped=[client], round_s=time_s)
            continue
        selector.observe(number, times_s={client: time_s}, **losses)
        updates.append((1.0 / math.sqrt(1 + version - began), update))  # older ones count for less
        if len(updates) == buffer:
            model, version, updates = added(model, updates), version + 1, []
            yield now_s, model, selector


if __name__ == "__main__":
    world, trainer = World(make_scenario("rbcs-f/table-1"), seed=0), Task("digits").trainer(num_clients=40, seed=0)
    run = buffered(make_policy(sys.argv[1]), world, trainer, concurrency=8, buffer=4, seed=0, until_s=100.0)
    for time_s, model, selector in run:
        print(f"{time_s:6.1f} s, {selector.round} choices: accuracy {trainer.evaluate(model).accuracy:.3f}")
