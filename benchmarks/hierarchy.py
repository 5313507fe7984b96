"""The assignment solver and COCS against their targets.

Run as ``python -m benchmarks.hierarchy``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix, vstack

from benchmarks.rows import Row, Session
from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.state import pack
from fedroster.core.streams import Streams
from fedroster.estimation.hypercubes import count_selections, hypercubes_init
from fedroster.lab.papers.cocs.figures import LABELS, MNIST
from fedroster.lab.trials.run import gather
from fedroster.lab.trials.trial import Trial
from fedroster.networks.hierarchical import HierarchicalCifar10, HierarchicalNetwork
from fedroster.optimization.assignment import AssignmentResult, solve_assignment
from fedroster.policies.cocs import COCS
from fedroster.policies.oracle import OracleP
from fedroster.policies.partial_pooling import PartialPooling
from fedroster.simulation import simulate

KINDS = ("probabilities", "realised", "ratios of counts", "probabilities, a price for each link")


@dataclass(frozen=True, slots=True)
class Instance:
    """One problem P2.

    Attributes:
        value: Shape (links,).
        cost: Shape (links,).
        client: Shape (links,).
        server: Shape (links,).
        budget: Shape (servers,).
        num_clients: N.
    """

    value: FloatArray
    cost: FloatArray
    client: IntArray
    server: IntArray
    budget: FloatArray
    num_clients: int

    def solve(self, *, gap: float = 0.0) -> AssignmentResult:
        """Solve it by ours."""
        return solve_assignment(
            self.value,
            self.cost,
            self.client,
            self.server,
            self.budget,
            num_clients=self.num_clients,
            gap=gap,
        )

    def solve_by_highs(self, **options: float) -> float:
        """Solve it by HiGHS; returns the value."""
        rows = np.arange(self.value.shape[0])
        ones = np.ones(rows.shape[0])
        matrix = vstack(
            [
                csr_matrix((self.cost, (self.server, rows)), shape=(self.budget.shape[0], rows.shape[0])),
                csr_matrix((ones, (self.client, rows)), shape=(self.num_clients, rows.shape[0])),
            ]
        ).tocsr()
        found = milp(
            -self.value,
            constraints=LinearConstraint(matrix, -np.inf, np.concatenate([self.budget, np.ones(self.num_clients)])),
            integrality=ones,
            bounds=Bounds(0, (self.cost <= self.budget[self.server]).astype(float)),
            options=options,
        )
        return -float(found.fun)


def instance(network: HierarchicalNetwork, kind: str, seed: int) -> Instance:
    """A round of a network as a problem.

    Args:
        network: The network.
        kind: What the values are; see :data:`KINDS`.
        seed: Seed.
    """
    rng = np.random.default_rng(seed)
    context, outcome = network.observe(network.init(rng=rng), 1, rng=rng)
    assert context.client is not None
    assert context.cost is not None
    assert context.budget is not None
    assert outcome.participation_probability is not None
    value, cost = outcome.participation_probability(), context.cost
    server = np.zeros(context.num_links, np.int64) if context.server is None else context.server
    if kind == "realised":
        value = outcome.in_time.astype(np.float64)
    elif kind == "ratios of counts":
        seen = rng.integers(1, 12, value.shape[0])
        value = rng.binomial(seen, value) / seen
    elif kind == "uniform values":
        value = rng.uniform(size=value.shape)
    elif kind.endswith("each link"):
        cost = cost * rng.uniform(0.6, 1.4, cost.shape[0])
    return Instance(value, cost, context.client, server, context.budget, network.num_clients)


def _median_s(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def small(instances_of_each: int) -> Iterator[Row]:
    """P2 proven optimal at Table I's size, beside HiGHS on the same instances."""
    for name, network in (("MNIST", HierarchicalNetwork()), ("CIFAR-10", HierarchicalCifar10())):
        for kind in KINDS:
            instances = [instance(network, kind, seed) for seed in range(instances_of_each)]
            for each in instances:
                each.solve()  # compiles
            ours, theirs = [], []
            for each in instances:
                result = each.solve()
                assert result.is_optimal
                assert abs(result.value - each.solve_by_highs(mip_rel_gap=0.0)) < 1e-6
                ours.append(_median_s(each.solve, 5))
                theirs.append(_median_s(lambda each=each: each.solve_by_highs(mip_rel_gap=0.0), 1))  # type: ignore[misc]
            mine, peer = 1e3 * float(np.median(ours)), 1e3 * float(np.median(theirs))
            what = f"P2 proven optimal, N = 50, M = 3, {name}, {kind}"
            yield Row(what, mine, "ms", "optimal")
            yield Row(what, mine, "ms", "optimal-milp", peer, "scipy.optimize.milp")


def large(num_instances: int) -> Iterator[Row]:
    """Certified gaps at N = 1,000 and a decision at N = 100,000."""
    for name, network in (
        ("MNIST", HierarchicalNetwork(num_clients=1000, num_servers=10, budget=50.0)),
        ("CIFAR-10", HierarchicalCifar10(num_clients=1000, num_servers=10, budget=50.0)),
    ):
        for kind, (gap, target) in itertools.product(
            ("uniform values", "probabilities"), ((0.0025, "gap-25"), (0.0012, "gap-12"))
        ):
            instances = [instance(network, kind, seed) for seed in range(num_instances)]
            instances[0].solve()  # compiles, as gap 0 needs every step
            seconds, gaps = [], []
            for each in instances:
                start = time.perf_counter()
                gaps.append(each.solve(gap=gap).gap)
                seconds.append(time.perf_counter() - start)
            reached = sum(found <= gap for found in gaps)
            what = (
                f"N = 1,000, M = 10, budget 50, {name}, {kind}: gap of at most {gap:.2%} "
                f"(certified on {reached} of {num_instances}, median {np.median(gaps):.3%})"
            )
            spent_ms = 1e3 * float(np.median(seconds))
            yield Row(what, spent_ms, "ms", target, complete=reached == num_instances)


_DECISION = "N = 100,000, M = 100"


def _large_network(budget: float) -> HierarchicalNetwork:
    """N = 100,000 clients, M = 100 servers, each client in reach of about 3."""
    return HierarchicalNetwork(
        num_clients=100_000, num_servers=100, geometry="geometric", mean_reach=3.0, budget=budget
    )


def decision() -> Iterator[Row]:
    """A COCS decision at N = 100,000 clients, M = 100 servers, each client in reach of about 3."""
    network = _large_network(350.0)
    rng = np.random.default_rng(0)
    context, _ = network.observe(network.init(rng=rng), 1, rng=rng)
    for name, policy in (("exploring", COCS(gap=0.01)), ("exploring, scale 0", COCS(gap=0.01, scale=0.0))):
        state = policy.init(network.spec, rng=rng)
        decided = policy.select(state, context, rng=rng)  # compiles
        seconds = _median_s(lambda policy=policy, state=state: policy.select(state, context, rng=rng), 5)  # type: ignore[misc]
        what = f"COCS decision, {_DECISION}, {context.num_links:,} links, {name} (gap {decided.gap:.2%})"
        yield Row(what, seconds, "s", "cocs-decision")


def learned_decision(rounds: int) -> Iterator[Row]:
    """Decisions of partial pooling and of COCS in the same rounds, with what they have learned and booked in them.

    Select and commit, both with their default parameters; two rounds before do not count.

    Args:
        rounds: Rounds that count, for each budget.
    """
    for budget in (350.0, HierarchicalNetwork().budget):
        network, streams = _large_network(budget), Streams(0)
        place = network.init(rng=streams.at("environment-init"))
        policies: tuple[PartialPooling | COCS, ...] = PartialPooling(), COCS()
        states: list[Any] = [policy.init(network.spec, rng=streams.at("policy-init")) for policy in policies]
        seconds: list[list[float]] = [[], []]
        gaps: list[float] = []
        for number in range(1, rounds + 3):
            context, outcome = network.observe(place, number, rng=streams.at("environment", number))
            for who, policy in enumerate(policies):
                start = time.perf_counter()
                selection = policy.select(states[who], context, rng=streams.at("policy", number))
                if isinstance(policy, PartialPooling) and selection.gap is not None:
                    gaps.append(selection.gap)
                states[who] = policy.commit(states[who], context, selection)
                seconds[who].append(time.perf_counter() - start)
                states[who] = policy.update(states[who], outcome.reveal(context, selection))
            place = network.advance(place, context, selection)
        ours, theirs = (float(np.median(spent[2:])) for spent in seconds)
        what = (
            f"decision of partial-pooling, {_DECISION}, {context.num_links:,} links, budget {budget:g} "
            f"(gap {np.median(gaps[2:]):.2%})"
        )
        yield Row(what, ours, "s", "pooling-decision")
        yield Row(what, ours, "s", "pooling-decision-cocs", theirs, "cocs")


def memory() -> Row:
    """Memory of COCS's cells after 1,000 rounds at that size: 20,000 selections a round, each client on 3 servers."""
    rng = np.random.default_rng(0)
    cells = hypercubes_init(100_000, 100, 2, cells_per_axis=5)
    reach = rng.integers(0, 100, (100_000, 3))
    for _ in range(1000):
        client = rng.choice(100_000, 20_000, replace=False)
        server = reach[client, rng.integers(0, 3, 20_000)]
        cells = count_selections(cells, client, server, rng.integers(0, 25, 20_000))
    size = sum(array.nbytes for array in pack(cells).values()) / 2**20
    what = "memory of COCS's cells after 1,000 rounds, N = 100,000, M = 100"
    return Row(what, size, "MiB", "cocs-memory")


def thousand_rounds() -> Row:
    """1,000 rounds of cocs/mnist under all policies of the figure; wall time, compilation cached."""
    for policy in (COCS(), OracleP()):
        list(simulate(policy, HierarchicalNetwork(), rounds=2, seed=0))
    trials = [Trial(MNIST, policy, 0, 1000) for policy in LABELS]
    start = time.perf_counter()
    gather(trials)
    elapsed = time.perf_counter() - start
    return Row(f"1,000 rounds of {MNIST}, all {len(trials)} policies of the figure", elapsed, "s", "thousand-rounds")


def main() -> None:
    """Measure everything and publish it."""
    session = Session("hierarchy", __doc__, seed="0-8 for small instances, 0-4 for large ones, otherwise 0")
    quick = session.parser.parse_args().quick
    session.publish(
        [
            *small(1 if quick else 9),
            *large(1 if quick else 5),
            *decision(),
            *learned_decision(2 if quick else 7),
            memory(),
            thousand_rounds(),
        ]
    )


if __name__ == "__main__":
    main()
