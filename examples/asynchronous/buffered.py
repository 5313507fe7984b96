"""Buffered asynchronous training (FedBuff: Nguyen et al. 2022) in a simulated network, with real training.

C clients are at work at any time.  When one is done, its place is filled at once; after K updates the model changes.
Run ``python examples/asynchronous/buffered.py --policy floor``.
"""

import argparse
import heapq
import math
from collections.abc import Iterator

import numpy as np
from world import World, added, difference, measured

from fedroster import Selector, make_policy, make_scenario
from fedroster.task import Task
from fedroster.types import AnyPolicy, Streams


def buffered(
    policy: AnyPolicy, world: World, trainer, *, concurrency: int, buffer: int, seed: int, until_s: float
) -> Iterator[tuple[float, dict, Selector]]:
    """Yield time, model and selector after each change of the model."""
    streams = Streams(seed)
    selector = Selector(policy, cohort_size=concurrency, clients=world.clients, seed=seed, patience_rounds=10**6)
    model = trainer.init(rng=streams.at("model"))
    now_s, version, at_work, updates = 0.0, 0, [], []
    while now_s < until_s:
        if places := concurrency - len(at_work):
            context, outcome = world.look(selector.round + 1, now_s)
            here = {int(client): context.features[client] for client in np.flatnonzero(context.available)}
            cohort = selector.select(here, at_most=places)
            world.begin(cohort.clients)
            for client in cohort.clients:  # each trains the model of this moment
                trained = trainer.train(model, np.array([client]), round=cohort.round, streams=streams)
                time_s, responds = float(outcome.exchange_time_s[client]), bool(outcome.responds[client])
                update = difference(trained.parameters, model) if responds else None
                work = (cohort.round, time_s, version, update, measured([client], trained))
                heapq.heappush(at_work, (now_s + time_s, client, work))
        if not at_work:  # no client is there
            now_s += world.idle_s
            continue
        now_s, client, (number, time_s, began, update, losses) = heapq.heappop(at_work)
        if update is None:
            selector.observe(number, dropped=[client], round_s=time_s)
            continue
        selector.observe(number, times_s={client: time_s}, **losses)
        updates.append((1.0 / math.sqrt(1 + version - began), update))  # older ones count for less
        if len(updates) == buffer:
            model, version, updates = added(model, updates), version + 1, []
            yield now_s, model, selector


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="floor")
    parser.add_argument("--scenario", default="rbcs-f/table-1")
    parser.add_argument("--until-s", type=float, default=200.0)
    options = parser.parse_args()
    world = World(make_scenario(options.scenario), seed=0)
    trainer = Task("digits").trainer(num_clients=len(world.clients), seed=0)
    for time_s, model, selector in buffered(
        make_policy(options.policy), world, trainer, concurrency=8, buffer=4, seed=0, until_s=options.until_s
    ):
        print(f"{time_s:6.1f} s, {selector.round} choices: accuracy {trainer.evaluate(model).accuracy:.3f}")
