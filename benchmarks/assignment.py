"""Every step of the assignment solver proves its worth: each one off, in turn, on the same problems.

Run as ``python -m benchmarks.assignment``.  Certificates are counted by search nodes, not by the clock; times are
medians over the problems, in units of ``np.sort`` of a million numbers that is measured between them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.hierarchy import KINDS, Instance, instance
from benchmarks.rows import Row, Session
from fedroster.networks.hierarchical import HierarchicalCifar10, HierarchicalNetwork
from fedroster.optimization.assignment import solve_assignment
from fedroster.optimization.assignment.solve import Search

NODE_LIMIT = 2_000_000
NETWORKS: Mapping[str, type[HierarchicalNetwork]] = {"MNIST": HierarchicalNetwork, "CIFAR-10": HierarchicalCifar10}
STEPS: Mapping[str, tuple[str, Any]] = {
    "exact core": ("prove", lambda *_: False),
    "cut on the number of clients": ("count_clients", lambda *_: None),
    "refilling": ("refill", lambda *_: None),
    "client prices": ("tighten", lambda *_: None),
    "search by client prices": ("few_clients_fit", lambda *_: False),
    "lifted shares": ("lift", lambda *_: None),
}
"""Name of each step, the method that takes it, and what stands in for it."""

_LARGEST = "N = 100,000, M = 100"
AIMS: Mapping[str, str] = {"N = 50, M = 3": "solver-50", "N = 1,000, M = 10": "solver-1000", _LARGEST: "solver-100000"}
"""Targets by size, for all steps together."""


@dataclass(frozen=True, slots=True)
class Family:
    """Problems that differ in their seed only.

    Attributes:
        name: What is shown.
        problems: The problems.
        gap: Gap that is asked for.
    """

    name: str
    problems: tuple[Instance, ...]
    gap: float


def _drawn(network: HierarchicalNetwork, kind: str, seeds: range) -> tuple[Instance, ...]:
    return tuple(instance(network, kind, seed) for seed in seeds)


def families(*, quick: bool) -> Iterator[tuple[str, list[Family]]]:
    """Problems by size; their seeds were not used for tuning.

    Args:
        quick: Two of each.
    """
    free = ("uniform values", "probabilities")

    def seeds(number: int) -> range:
        return range(300, 300 + (2 if quick else number))

    small = [Family(f"{name}, {kind}", _drawn(network(), kind, seeds(20)), 0.0)
             for name, network in NETWORKS.items() for kind in KINDS]  # fmt: skip
    yield "N = 50, M = 3", small
    middle = []
    for name, network in NETWORKS.items():
        for budget in (9.0, 25.0) if name == "MNIST" else (50.0, 120.0):
            place = network(num_clients=100, num_servers=10, budget=budget, geometry="geometric", mean_reach=3.0)
            middle += [
                Family(f"{name}, budget {budget:g}, {kind}", _drawn(place, kind, seeds(10)), 0.0) for kind in free
            ]
    yield "N = 100, M = 10", middle
    counting = []
    for name, network in NETWORKS.items():
        for reach in (3.0, 10.0):
            shape: dict[str, Any] = {"geometry": "geometric", "mean_reach": 3.0} if reach == 3.0 else {}
            place = network(num_clients=300 if shape else 100, num_servers=10, **shape)
            drawn = _drawn(place, "probabilities", seeds(10))
            ones = tuple(replace(each, value=np.ones(each.value.shape[0])) for each in drawn)
            counting.append(Family(f"{name}, {reach:g} servers in reach, counting (14)", ones, 0.0))
    yield "N = 100 and 300, M = 10", counting
    large = []
    for name, network in NETWORKS.items():
        place = network(num_clients=1000, num_servers=10, budget=50.0)
        large += [Family(f"{name}, {kind}", _drawn(place, kind, seeds(16)), 0.0025) for kind in free]
    yield "N = 1,000, M = 10", large
    dense = HierarchicalNetwork(num_clients=10_000, num_servers=50)
    near = HierarchicalNetwork(num_clients=10_000, num_servers=50, budget=50.0, geometry="geometric", mean_reach=3.0)
    yield (
        "N = 10,000, M = 50",
        [
            *(Family(f"MNIST, all pairs in reach, {kind}", _drawn(dense, kind, seeds(2)), 0.01) for kind in free),
            *(Family(f"MNIST, 3 servers in reach, {kind}", _drawn(near, kind, seeds(2)), 0.0025) for kind in free),
        ],
    )

    huge = HierarchicalNetwork(num_clients=100_000, num_servers=100, geometry="geometric", mean_reach=3.0, budget=350.0)
    yield _LARGEST, [Family("MNIST, 3 servers in reach, probabilities", _drawn(huge, "probabilities", seeds(3)), 0.01)]


@contextmanager
def without(step: str | None) -> Iterator[None]:
    """One step off.

    Args:
        step: Its name in :data:`STEPS`; None for none.
    """
    if step is None:
        yield
        return
    method, nothing = STEPS[step]
    before = getattr(Search, method)
    setattr(Search, method, nothing)
    try:
        yield
    finally:
        setattr(Search, method, before)


def _sort_s() -> float:
    numbers = np.random.default_rng(0).random(1_000_000)
    start = time.perf_counter()
    np.sort(numbers)
    return time.perf_counter() - start


def measured(size: str, family: Family, step: str | None) -> Row:
    """Certificates, value and time of a family.

    Args:
        size: What the family's size is called.
        family: The problems.
        step: The step that is off; None for none.
    """
    seconds, sorts, gaps, value, bound = [], [], [], 0.0, 0.0
    with without(step):
        for each in family.problems:
            start = time.perf_counter()
            found = solve_assignment(
                each.value, each.cost, each.client, each.server, each.budget,
                num_clients=each.num_clients, gap=family.gap, rng=np.random.default_rng(7), node_limit=NODE_LIMIT,
            )  # fmt: skip
            seconds.append(time.perf_counter() - start)
            sorts.append(_sort_s())
            gaps.append(found.gap)
            value += found.value
            bound += found.upper_bound
    certified = sum(gap <= family.gap for gap in gaps)
    off = f"without {step}" if step else "all steps"
    what = (
        f"{size}, {family.name}, {off}: {certified} of {len(gaps)} within {family.gap:.2%}, worst {max(gaps):.3%}, "
        f"value {value:.4f}, bound {bound:.4f}"
    )
    target = "" if step else AIMS.get(size, "")
    return Row(what, float(np.median(seconds) / np.median(sorts)), "sorts", target, complete=certified == len(gaps))


def main() -> None:
    """Measure everything and publish it."""
    session = Session("assignment", __doc__, seed="from 300 on")
    quick = session.parser.parse_args().quick
    rows = []
    for size, found in families(quick=quick):
        for family in found:
            for step in (None,) if size == _LARGEST else (None, *STEPS):
                measured(size, Family(family.name, family.problems[:1], family.gap), step)  # compiles
                rows.append(measured(size, family, step))
    session.publish(rows)


if __name__ == "__main__":
    main()
