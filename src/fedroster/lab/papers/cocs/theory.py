"""What Theorems 2 and 4 (Qu et al. 2021) allow COCS, and the contexts' scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fedroster.bounds import cocs_regret
from fedroster.catalogue import make_scenario
from fedroster.lab.statistics import mean_interval
from fedroster.lab.verdicts.courses import each
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Runs
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.types import FloatArray, Streams

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


# -------------------------------------------------------------------- how contexts are scaled (Choice B13)

SCALES = (1.0, 4.0)
_SCALED_POLICIES = {"COCS, K(t) x 0.02": "cocs:scale=0.02", "LinUCB per pair": "linucb-pairs"}
_NETWORKS = {"MNIST": "cocs/mnist", "CIFAR-10": "cocs/cifar-10"}


def clipped_share(scenario: str, scale: float, *, rounds: int = 50, seed: int = 0) -> float:
    """Share of the links whose rate is above the scale's upper end, over some rounds."""
    network, streams = replace(network_of(scenario), rate_scale=scale), Streams(seed)
    state = network.init(rng=streams.at("environment-init"))
    rates: list[FloatArray] = [
        network.observe(state, number, rng=streams.at("environment", number))[0].features[:, 0]
        for number in range(1, rounds + 1)
    ]
    return float((np.concatenate(rates) >= 1.0).mean())


def _scale_label(network: str, policy: str, scale: float) -> str:
    return f"{network}, {policy}, bound x {scale:g}"


def _scale_needs() -> dict[str, Need]:
    return {
        _scale_label(network, label, scale): Need(policy, scenario, (("rate_scale", f"{scale:g}"),))
        for network, scenario in _NETWORKS.items()
        for label, policy in _SCALED_POLICIES.items()
        for scale in SCALES
    }


def _findings_on_scales(runs: Runs) -> list[str]:
    sentences = []
    for name, scenario in _NETWORKS.items():
        clipped = ", ".join(f"{clipped_share(scenario, scale):.0%} with the bound x {scale:g}" for scale in SCALES)
        changes = []
        for label in _SCALED_POLICIES:
            first, *others = (
                each(runs, _scale_label(name, label, scale), lambda run: float(run.participants.sum()))
                for scale in SCALES
            )
            changes += [
                f"{label} x {scale:g} {100 * (one.mean - 1.0):+.1f} % ({100 * (one.low - 1.0):+.1f} to "
                f"{100 * (one.high - 1.0):+.1f})"
                for scale, one in zip(SCALES[1:], (mean_interval(other / first) for other in others), strict=True)
            ]
        sentences.append(
            f"{name}: of the rates, {clipped} are above the scale's upper end and look alike. Updates in time beside "
            f"those with the bound x 1: {', '.join(changes)}."
        )
    return sentences


SCALED_CONTEXTS = FigureRecipe(
    "Choice B13: the scale of the contexts, both networks", _scale_needs(), None, findings=_findings_on_scales
)
"""COCS and LinUCB per pair with wider scales of the download rate."""
