"""Training by Qu et al. 2021 under two readings of when a price is drawn: once for each client, or in each round.

Run as ``python -m benchmarks.prices [--seeds 1200-1209] [--out FOLDER]``.  Table I gives the
prices' distribution and no time (Choice B3).  The table is ``prices.md`` of the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from benchmarks.rows import table_of_seeds
from fedroster.catalogue import make_policy
from fedroster.core.problem import Outcome, RoundContext
from fedroster.core.streams import Streams
from fedroster.lab.federated import federate
from fedroster.lab.papers.sizes import MNIST_STEPS
from fedroster.lab.statistics import mean_interval
from fedroster.networks.hierarchical import HierarchicalNetwork, HierarchicalState
from fedroster.types import Status

POLICIES = ("oracle", "cocs", "random", "linucb")


@dataclass(frozen=True, slots=True)
class PricesOfARound(HierarchicalNetwork):
    """The network with prices that are drawn in each round, as its bandwidths and distances are."""

    def observe(self, state: HierarchicalState, round: int, /, *, rng: Generator) -> tuple[RoundContext, Outcome]:
        """One round at its own prices."""
        drawn = Streams(state.key).at("prices", round).uniform(self.price_min, self.price_max, self.num_clients)
        return HierarchicalNetwork.observe(self, replace(state, price=drawn), round, rng=rng)


def trained(policy: str, network: HierarchicalNetwork, seed: int, rounds: int) -> tuple[float, float, int]:
    """Final accuracy in percent, updates in time in a round, and how many clients were never chosen."""
    trainer = MNIST_STEPS.task.trainer(num_clients=network.num_clients, seed=seed)
    updates, chosen, accuracy = 0, np.zeros(network.num_clients, np.int64), 0.0
    for played in federate(make_policy(policy), network, trainer, rounds=rounds, seed=seed, evaluate_every=rounds):
        feedback = played.round.feedback
        updates += int(np.count_nonzero(feedback.status == Status.COMPLETED))
        np.add.at(chosen, feedback.client, 1)
        accuracy = played.accuracy
    return 100.0 * accuracy, updates / rounds, int((chosen == 0).sum())


def table(seeds: Sequence[int], rounds: int, _: int) -> str:
    """Accuracy with its 95 % interval, updates and clients that were never chosen, under both readings, as Markdown."""
    lines = [
        "| prices | policy | final accuracy, % | updates a round | clients never chosen, of 50 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for drawn, kind in (("once a client", HierarchicalNetwork), ("in each round", PricesOfARound)):
        for policy in POLICIES:
            found = np.array([trained(policy, kind(), seed, rounds) for seed in seeds])
            final = mean_interval(found[:, 0])
            cells = f"{final.mean:.1f} ({final.low:.1f} to {final.high:.1f}) | {found[:, 1].mean():.2f} | "
            lines.append(f"| {drawn} | `{policy}` | {cells}{found[:, 2].mean():.1f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    ABOUT = "MNIST, logistic regression, E = 2 gradient steps a round; intervals are 95 %."
    table_of_seeds("prices", __doc__, table, ABOUT, f"1200-1209 {MNIST_STEPS.rounds}")
