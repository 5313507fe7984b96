"""What Theorems 2 and 4 (Qu et al. 2021) allow COCS."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from fedroster.bounds import cocs_regret
from fedroster.catalogue import make_scenario
from fedroster.networks.hierarchical import HierarchicalNetwork

EPSILON = 0.3
"""Error parameter of Fast Lazy Greedy in section VI-D."""

_LONGEST = 60  # powers of two up to which bounds are followed


def network_of(scenario: str) -> HierarchicalNetwork:
    """The network of a scenario, with its defaults."""
    network = make_scenario(scenario)
    assert isinstance(network, HierarchicalNetwork)
    return network


def sure_share(network: HierarchicalNetwork) -> float:
    """The share of the optimum that Fast Lazy Greedy is sure to reach (Lemma 3)."""
    return 1.0 / ((1.0 + EPSILON) * (2.0 + 2.0 * network.num_servers))


def bounds_of(network: HierarchicalNetwork) -> dict[str, Callable[[int], float]]:
    """Bounds on the regret after T rounds, with a Hoelder constant of zero: the least that they can be."""
    bound = partial(
        cocs_regret,
        num_clients=network.num_clients,
        num_servers=network.num_servers,
        budget=network.budget,
        least_cost=network.least_cost,
        holder_constant=0.0,
    )
    return {"Theorem 2": bound, "Theorem 4": partial(bound, approximation=sure_share(network))}


def most_updates(network: HierarchicalNetwork) -> float:
    """No round has more updates in time: every client's, or what the budgets pay for at the least price."""
    return min(float(network.num_clients), network.num_servers * math.floor(network.budget / network.least_cost))


def finding_on_bounds(scenario: str, rounds: int) -> str:
    """From how many rounds on the theorems say something."""
    network = network_of(scenario)
    most = most_updates(network)
    said = []
    for name, bound in bounds_of(network).items():
        first = next((2**power for power in range(_LONGEST) if bound(2**power) < most * 2**power), None)
        when = f"in no run of up to {2.0**_LONGEST:.0e} rounds"
        when = when if first is None else f"from about {first:.0e} rounds on"
        said.append(f"{name} allows {bound(rounds):.1e} after {rounds:,} rounds, and less than {most:g} a round {when}")
    vain = all(bound(rounds) >= most * rounds for bound in bounds_of(network).values())
    return (
        f"No round has more than {most:g} updates in time. With the smallest Hoelder constant, zero, "
        f"{'; '.join(said)}.{' So no run of this length can break either bound.' if vain else ''}"
    )
