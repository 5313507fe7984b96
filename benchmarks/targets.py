"""Every target of speed and memory that the project has set itself, and the benchmark that measures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """What is wanted.

    Attributes:
        issue: Number of the issue that sets it.
        what: What is measured, in short.
        wanted: The target in words.
        limit: Largest figure that meets it; where ``relative``, largest ratio to the peer's.
        benchmark: Module that measures it.
        relative: Whether the limit is one of the ratio.
    """

    issue: int
    what: str
    wanted: str
    limit: float
    benchmark: str
    relative: bool = False


def _sorts(what: str, times: float) -> Target:
    return Target(2, what, f"at most {times:g} times the sort", times, "selection", relative=True)


_MILLION = "RBCS-F, N = 1,000,000"

TARGETS: Mapping[str, Target] = {
    "decision-100": _sorts(f"{_MILLION}, k = 100: decision, independent queues", 3.0),
    "decision-100-hard": _sorts(f"{_MILLION}, k = 100: decision, hard queues", 8.0),
    "decision-10000": _sorts(f"{_MILLION}, k = 10,000: decision, independent queues", 6.0),
    "decision-10000-hard": _sorts(f"{_MILLION}, k = 10,000: decision, hard queues", 14.0),
    "decision-40": Target(2, "RBCS-F, N = 40, k = 8: decision", "at most 60 µs", 60.0, "selection"),
    "update": _sorts(f"{_MILLION}: update after a round", 0.5),
    "state": Target(2, "RBCS-F: memory of the learned state", "at most 120 bytes a client", 120.0, "selection"),
    "round": _sorts(f"{_MILLION}: simulated round", 25.0),
    "figures": Target(2, "figures 2-4 of Huang et al. 2021, data only", "at most 15 s", 15.0, "selection"),
    "optimal": Target(3, "P2 proven optimal, N = 50, M = 3", "at most 3 ms", 3.0, "hierarchy"),
    "optimal-milp": Target(
        3, "P2 proven optimal, N = 50, M = 3", "at least 20 times faster than milp", 1 / 20, "hierarchy", relative=True
    ),
    "gap-25": Target(3, "P2, N = 1,000, M = 10: gap of at most 0.25 %", "at most 20 ms", 20.0, "hierarchy"),
    "gap-12": Target(3, "P2, N = 1,000, M = 10: gap of at most 0.12 %", "at most 1,500 ms", 1500.0, "hierarchy"),
    "solver-50": Target(13, "P2 proven optimal, N = 50, M = 3", "all, at most 0.05 sorts", 0.05, "assignment"),
    "solver-1000": Target(
        13, "P2, N = 1,000, M = 10: gap of at most 0.25 %", "16 of 16, at most 3 sorts", 3.0, "assignment"
    ),
    "solver-100000": Target(13, "P2, N = 100,000, M = 100", "at most 60 sorts", 60.0, "assignment"),
    "thousand-rounds": Target(3, "1,000 rounds of cocs/mnist, all policies", "at most 60 s", 60.0, "hierarchy"),
    "cocs-decision": Target(3, "COCS decision, N = 100,000, M = 100", "at most 1 s", 1.0, "hierarchy"),
    "cocs-memory": Target(3, "memory of COCS after 1,000 such rounds", "at most 1 GiB", 1024.0, "hierarchy"),
    "w1-loop": Target(
        4, "W1: client update", "1.6 times as fast as the plain loop", 1 / 1.6, "training", relative=True
    ),
    "w1-flower": Target(4, "W1: client update", "2.7 times as fast as Flower", 1 / 2.7, "training", relative=True),
    "w2-loop": Target(4, "W2: client update", "8 times as fast as the plain loop", 1 / 8, "training", relative=True),
    "w2-flower": Target(4, "W2: client update", "120 times as fast as Flower", 1 / 120, "training", relative=True),
    "loop": Target(4, "the round loop's overhead", "under 3 % of a W1 round", 0.03, "training", relative=True),
    "h200": Target(
        4,
        "CIFAR-10 CNN of Qu et al. 2021 on one H200, 10 clients x 1,000 samples x 5 epochs",
        "5 times as fast as the sequential loop",
        1 / 5,
        "accelerator",
        relative=True,
    ),
    "grid-overhead": Target(5, "overhead of the Flower grid, 100 nodes", "under 2 % of a round", 2.0, "flower"),
    "grid-choice": Target(5, "choosing among 10,000 Flower nodes", "under 50 ms", 50.0, "flower"),
    "grid-exactness": Target(5, "error of the measured exchange times", "within 100 ms", 100.0, "flower"),
    "example-time": Target(
        5, "Flower example: mean round", "at most 70 % of FedAvg's own sampling", 0.7, "example", relative=True
    ),
    "example-rate": Target(5, "Flower example: how far the least rate is below beta", "at most 0.02", 0.02, "example"),
    "group-overhead": Target(
        17, "overhead of a NVFlare round beside FLARE's own", "at most 2 % of a round", 2.0, "nvflare"
    ),
    "traces-time": Target(6, "1,000 rounds, N = 1,000,000, traces, RBCS-F", "within 5 minutes", 300.0, "scale"),
    "traces-memory": Target(6, "peak memory of those rounds", "within 4 GiB", 4.0, "scale"),
    "fedscale-rbcs-f": Target(
        6,
        "RBCS-F chooses, N = 1,000,000",
        "at least 100 times faster than FedScale's Oort",
        1 / 100,
        "scale",
        relative=True,
    ),
    "fedscale-oort": Target(
        6,
        "our Oort chooses, N = 1,000,000",
        "at least 20 times faster than FedScale's Oort",
        1 / 20,
        "scale",
        relative=True,
    ),
    "availability": Target(
        6, "availability of 1,000,000 clients", "at most 20 times the sort", 20.0, "scale", relative=True
    ),
    "ray": Target(6, "40 cells on Ray, 2 workers against 1", "1.7 times as fast", 1 / 1.7, "sweeps", relative=True),
    "pooling-decision": Target(
        7, "decision of partial-pooling, N = 100,000, M = 100", "at most 1 s, as COCS's", 1.0, "hierarchy"
    ),
    "pooling-decision-cocs": Target(
        7, "decision of partial-pooling, N = 100,000, M = 100", "at most twice COCS's", 2.0, "hierarchy", relative=True
    ),
    "floor-cost": Target(7, "decision of floor", "at most twice RBCS-F's", 2.0, "growth", relative=True),
    "pooling-cost": Target(7, "decision of partial-pooling", "at most twice COCS's", 2.0, "growth", relative=True),
    "record-10000": Target(16, "a round in the log, N = 10,000, no contexts", "at most 0.1 sorts", 0.1, "record"),
    "record-1000000": Target(16, "a round in the log, N = 1,000,000, no contexts", "at most 10 sorts", 10.0, "record"),
    "method-cost": Target(
        30, "decision of a published method, N = 10,000, k = 100", "at most 2 sorts", 2.0, "methods", relative=True
    ),
    "import": Target(13, "`import fedroster`", "at most 0.1 s", 0.1, "startup"),
    "help": Target(13, "`fedroster --help`", "at most 0.5 s", 0.5, "startup"),
    "list": Target(13, "`fedroster list`", "at most 0.5 s", 0.5, "startup"),
    "first-cocs": Target(13, "first `simulate cocs/mnist`, nothing compiled", "at most 10 s", 10.0, "startup"),
    "first-rbcs-f": Target(13, "first `simulate rbcs-f/table-1`, nothing compiled", "at most 5 s", 5.0, "startup"),
}
"""By a name of ours."""

BENCHMARKS = (
    "startup",
    "selection",
    "methods",
    "hierarchy",
    "assignment",
    "growth",
    "scale",
    "record",
    "sweeps",
    "training",
    "flower",
    "example",
    "nvflare",
    "accelerator",
)
"""Modules of this package that measure, in the order in which they run."""
