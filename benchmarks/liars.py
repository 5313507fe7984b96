"""What one lying client of 40 can do to each policy, on the network of Huang et al. 2021.

``python -m benchmarks.liars`` prints the table of docs/explanation/under-attack.md: a fast client says that it is slow,
or a slow one that it is fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedroster import Selector, make_policy, make_scenario
from fedroster.types import Selection, Streams

POLICIES = ("rbcs-f:V=1", "floor", "cs-ucb", "tifl", "e3cs", "oort", "power-of-choice", "size-weighted")
ROUNDS, FIRST = 300, 50
FAST, SLOW = 3, 39


@dataclass(frozen=True, slots=True)
class Lie:
    """What a client says of itself.

    Attributes:
        liar: The client.
        first_s: Its first time as reported, seconds; 0 for the true one.
        all_s: All its times as reported, seconds; 0 for the true ones.
        longest_s: The selector's bound on times, seconds; None for none.
        faster: Its times are divided by this.
        context: Its contexts are multiplied by this.
        silent: Whether it never answers.
        boasts: Whether it overstates loss and samples.
    """

    liar: int = FAST
    first_s: float = 0.0
    all_s: float = 0.0
    longest_s: float | None = None
    faster: float = 1.0
    context: float = 1.0
    silent: bool = False
    boasts: bool = False


LIES = {
    "fast, honest": Lie(),
    "first time 10^6 s": Lie(first_s=1e6),
    "all times 10^6 s": Lie(all_s=1e6),
    "the same, `longest_s=20`": Lie(all_s=1e6, longest_s=20.0),
    "contexts x 10^12": Lie(context=1e12),
    "slow, honest": Lie(SLOW),
    "times x 10^-6": Lie(SLOW, faster=1e6),
    "contexts x 10^-12": Lie(SLOW, context=1e-12),
    "never answers": Lie(SLOW, silent=True),
    "loss x 100, samples x 10^4": Lie(SLOW, boasts=True),
}


def play(policy: str, lie: Lie) -> tuple[float, float]:
    """True mean length of a round after the first 50, seconds, and the liar's share of all rounds."""
    network, streams = make_scenario("rbcs-f/table-1"), Streams(0)
    size = network.spec.cohort_size
    state, everybody = network.init(rng=streams.at("environment-init")), range(network.spec.num_clients)
    selector = Selector(make_policy(policy), cohort_size=size, clients=everybody, longest_s=lie.longest_s)
    rounds_s, has_lied = [], False
    for number in range(1, ROUNDS + 1):
        world, outcome = network.observe(state, number, rng=streams.at("environment", number))
        features = world.features.copy()
        features[lie.liar] *= lie.context
        chosen = [int(client) for client in selector.select(features, available=world.available).clients]
        rounds_s.append(float(outcome.exchange_time_s[chosen].max()))
        told: dict[str | int, float] = {client: float(outcome.exchange_time_s[client]) for client in chosen}
        if lie.liar in told:
            true_s = told[lie.liar] / lie.faster
            told[lie.liar] = lie.all_s or (lie.first_s if lie.first_s and not has_lied else true_s)
            has_lied = True
        dropped = [lie.liar] if lie.silent and told.pop(lie.liar, 0.0) else []
        losses, sizes = dict.fromkeys(told, 1.0), dict.fromkeys(told, 100.0)
        if lie.boasts and lie.liar in told:
            losses[lie.liar], sizes[lie.liar] = 100.0, 1e6
        selector.observe(number, times_s=told, dropped=dropped, losses=losses, num_samples=sizes)
        state = network.advance(state, world, Selection(number, np.array(chosen)))
    return float(np.mean(rounds_s[FIRST:])), selector.participation_rates()[lie.liar]


def main() -> None:
    """Print the table as Markdown."""
    print("| policy |", " | ".join(LIES), "|")
    print("| --- " * (len(LIES) + 1) + "|")
    for policy in POLICIES:
        cells = [play(policy, lie) for lie in LIES.values()]
        print(f"| `{policy}` |", " | ".join(f"{mean_s:.1f} s, {share:.2f}" for mean_s, share in cells), "|")


if __name__ == "__main__":
    main()
