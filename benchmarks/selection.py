"""RBCS-F's decision, update, memory and simulated round, and the figures of its paper, against their targets.

Run as ``python -m benchmarks.selection``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.rows import Row, Session
from benchmarks.timing import interleaved
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.state import pack
from fedroster.estimation.ridge import lower_bounds
from fedroster.lab.verdicts.reproduce import Order, reproduce
from fedroster.networks.flat import FlatNetwork
from fedroster.policies.rbcs_f import RBCSF, RBCSFState
from fedroster.simulation import simulate

MILLION = 1_000_000
ROUNDS_BEFORE = 30  # rounds of learning before a decision is timed


def _trained(num_clients: int, cohort_size: int, *, hard: bool) -> tuple[RBCSF, RBCSFState, RoundContext]:
    """A policy in the middle of a run: estimates for all clients, and queues.

    In the hard case the queues grow with the exchange time: slow clients wait longest.
    """
    rng = np.random.default_rng(7)
    network = FlatNetwork(num_clients=num_clients, cohort_size=cohort_size)
    state = network.init(rng=rng)
    policy = RBCSF(V=20.0, beta=0.5 * cohort_size / num_clients)
    learned = policy.init(network.spec, rng=rng)
    everybody = np.arange(num_clients)
    for number in range(1, 4):  # every client is seen three times
        context, outcome = network.observe(state, number, rng=rng)
        learned = policy.update(learned, outcome.reveal(context, Selection(number, everybody)))
    context, outcome = network.observe(state, 5, rng=rng)
    growing = outcome.expected_time_s * rng.uniform(0.5, 1.0, num_clients)
    queues = growing if hard else rng.exponential(5.0, num_clients)
    # Multiples of the queue grid, as real queues are.
    learned.backlog[:] = np.round(queues * 2.0**20) / 2.0**20
    return policy, learned, context


def _decision(num_clients: int, cohort_size: int, *, hard: bool) -> Callable[[], Selection]:
    policy, state, context = _trained(num_clients, cohort_size, hard=hard)
    rng = np.random.default_rng(3)
    return lambda: policy.select(state, context, rng=rng)


def _flat(num_clients: int, cohort_size: int) -> Callable[[], Selection]:
    """The worst case known: queues of V / k times the estimate itself, so that every threshold is nearly as good."""
    policy, state, context = _trained(num_clients, cohort_size, hard=False)
    time_s = lower_bounds(state.ridge, context.features, alpha=policy.alpha)
    state.backlog[:] = policy.V / cohort_size * time_s
    rng = np.random.default_rng(3)
    return lambda: policy.select(state, context, rng=rng)


def _equilibrium(num_clients: int, cohort_size: int) -> Callable[[], Selection]:
    """A decision after many simulated rounds: the queues that the policy itself has brought about."""
    network = FlatNetwork(num_clients=num_clients, cohort_size=cohort_size)
    policy = RBCSF(V=20.0, beta=0.5 * cohort_size / num_clients)
    *_, last = simulate(policy, network, rounds=ROUNDS_BEFORE, seed=1)
    rng = np.random.default_rng(3)
    context, _ = network.observe(last.environment_state, ROUNDS_BEFORE + 1, rng=rng)
    return lambda: policy.select(last.policy_state, context, rng=rng)


def _update(num_clients: int, cohort_size: int) -> Callable[[], RBCSFState]:
    policy, state, context = _trained(num_clients, cohort_size, hard=False)
    selection = policy.select(state, context, rng=np.random.default_rng(3))
    feedback = Feedback(
        round=context.round,
        client=selection.links,
        features=context.features[selection.links],
        status=np.zeros(cohort_size, np.uint8),
        exchange_time_s=np.full(cohort_size, 5.0),
    )
    return lambda: policy.update(policy.commit(state, context, selection), feedback)


def _round(num_clients: int, cohort_size: int) -> Callable[[], object]:
    network = FlatNetwork(num_clients=num_clients, cohort_size=cohort_size)
    policy = RBCSF(V=20.0, beta=0.5 * cohort_size / num_clients)
    rounds: Iterator[object] = simulate(policy, network, rounds=10**9, seed=0)
    return lambda: next(rounds)


def decisions(repeats: int) -> Iterator[Row]:
    """Decisions at a million clients against NumPy's sort, and at 40."""
    values = np.random.default_rng(0).random(MILLION)
    works: dict[str, Callable[[], object]] = {"sort": lambda: np.sort(values)}
    named: list[tuple[str, str, str]] = []
    for cohort_size in (100, 10_000):
        works[f"independent {cohort_size}"] = _decision(MILLION, cohort_size, hard=False)
        works[f"hard {cohort_size}"] = _decision(MILLION, cohort_size, hard=True)
        works[f"equilibrium {cohort_size}"] = _equilibrium(MILLION, cohort_size)
        what = f"RBCS-F decision, N = 1,000,000, k = {cohort_size:,}"
        named += [
            (f"independent {cohort_size}", f"{what}, independent queues", f"decision-{cohort_size}"),
            (f"hard {cohort_size}", f"{what}, queues that grow with the time", f"decision-{cohort_size}-hard"),
            (
                f"equilibrium {cohort_size}",
                f"{what}, queues after {ROUNDS_BEFORE} simulated rounds",
                f"decision-{cohort_size}-hard",
            ),
        ]
    works["flat"] = _flat(MILLION, 100)
    works["update"] = _update(MILLION, 100)
    works["round"] = _round(MILLION, 100)
    named += [
        ("flat", "RBCS-F decision, k = 100, worst case known: queues of V / k times the estimated time", ""),
        ("update", "RBCS-F update after a round, N = 1,000,000, k = 100", "update"),
        ("round", "simulated round (network, decision, update), N = 1,000,000, k = 100", "round"),
    ]
    medians = interleaved(works, repeats=repeats)
    for name, what, target in named:
        yield Row(
            what=what,
            ours=medians[name] * 1e3,
            unit="ms",
            target=target,
            peer=medians["sort"] * 1e3,
            peer_name="np.sort of 1,000,000 float64",
        )
    small = interleaved({"decision": _decision(40, 8, hard=False)}, repeats=200 * repeats, warmup=100)["decision"]
    yield Row("RBCS-F decision, N = 40, k = 8", small * 1e6, "µs", "decision-40")


def memory() -> Row:
    """Bytes of the learned state for each client."""
    spec = ProblemSpec(num_clients=MILLION, cohort_size=100, num_features=3)
    state = RBCSF(beta=0.0).init(spec, rng=np.random.default_rng(0))
    size = sum(array.nbytes for array in pack(state).values()) / MILLION
    return Row("memory of RBCS-F's learned state, a client", size, "bytes", "state")


def figures() -> Row:
    """Figs. 2 to 4 as data: 7 policies, 10 seeds, 500 rounds, 40 clients; wall time, compilation cached."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        order = Order("rbcs-f", range(10), figures=["2", "3", "4"], rounds=500)
        reproduce(order, Path(folder), command="", pages=False, tables=True)
        elapsed = time.perf_counter() - start
    what = "Figures 2-4, 7 policies, 10 seeds, 500 rounds, 40 clients, data only"
    return Row(what, elapsed, "s", "figures")


def main() -> None:
    """Measure everything and publish it."""
    session = Session("selection", __doc__, seed="0-9 for the figures, 0-7 for networks and ties")
    repeats = 2 if session.parser.parse_args().quick else 15
    session.publish([*decisions(repeats), memory(), figures()])


if __name__ == "__main__":
    main()
