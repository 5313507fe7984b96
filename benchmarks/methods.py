"""One decision of each published method that needs no solver, among 10,000 clients, beside a sort.

DivFL and HiCS-FL compare clients pair by pair: among 1,000 and 3,000 whose updates are known, and HiCS-FL, which has
the target of the others, among 10,000.  It misses the target: there are 50 million pairs, each with an angle.

Run as ``python -m benchmarks.methods``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.rows import Row, Session
from benchmarks.timing import interleaved
from fedroster.catalogue import make_policy
from fedroster.core.arrays import FloatArray
from fedroster.core.problem import Selection
from fedroster.core.streams import Streams
from fedroster.networks.flat import FlatNetwork
from fedroster.policies.by_signature import BySignature, SignaturesState

NAMES = ("afl", "refl", "pisces", "f3ast", "clustered-sampling", "optimal-client-sampling")
PAIRS = ("divfl", "hics-fl")
NETWORK = FlatNetwork(num_clients=10_000, cohort_size=100)
ROUNDS_BEFORE = 30  # of 1,000 clients each, so that most clients are known


def _decision(name: str) -> Callable[[], Selection]:
    """A decision in the middle of a run, with losses and sizes that differ from client to client."""
    policy, streams, rng = make_policy(name), Streams(5), np.random.default_rng(5)
    world, state = NETWORK.init(rng=streams.at("world")), policy.init(NETWORK.spec, rng=streams.at("policy-init"))
    for number in range(1, ROUNDS_BEFORE + 2):
        context, outcome = NETWORK.observe(world, number, rng=streams.at("world", number))
        if number > ROUNDS_BEFORE:
            break
        selection = policy.select(state, replace(context, cohort_size=1000), rng=streams.at("policy", number))
        told = outcome.reveal(context, selection)
        loss: FloatArray = rng.gamma(2.0, 1.0, told.client.shape)
        squared_loss: FloatArray = 1.5 * loss * loss
        num_samples: FloatArray = 100.0 + (told.client % 900).astype(np.float64)
        told = replace(told, loss=loss, squared_loss=squared_loss, num_samples=num_samples)
        state = policy.update(policy.commit(state, context, selection), told)
    return lambda: policy.select(state, context, rng=np.random.default_rng(3))


def _of_pairs(name: str, num_clients: int) -> Callable[[], Selection]:
    """A decision of a policy that compares updates, all of which are known and at random."""
    network, policy = FlatNetwork(num_clients=num_clients, cohort_size=100), make_policy(name)
    assert isinstance(policy, BySignature)
    streams, rng = Streams(5), np.random.default_rng(5)
    context, _ = network.observe(network.init(rng=streams.at("world")), 1, rng=streams.at("world", 1))
    signature = 0.001 * rng.standard_normal((num_clients, policy.signature.length))
    state = SignaturesState(signature, np.ones(num_clients, np.int64))
    return lambda: policy.select(state, context, rng=np.random.default_rng(3))


def main() -> None:
    """Measure everything and publish it."""
    session = Session("methods", __doc__, seed="5 for the network, losses and earlier rounds, 3 for the decision")
    repeats = 5 if session.parser.parse_args().quick else 40
    numbers = np.random.default_rng(0).random(1_000_000)
    medians = interleaved(
        {"sort": lambda: np.sort(numbers)} | {name: _decision(name) for name in NAMES}, repeats=repeats
    )
    works = {(name, count): _of_pairs(name, count) for name in PAIRS for count in (1000, 3000)}
    medians |= interleaved({"hics-fl": _of_pairs("hics-fl", 10_000)}, repeats=3)
    pairs = interleaved(
        {f"{name} {count}": work for (name, count), work in works.items()}, repeats=max(repeats // 8, 3)
    )
    session.publish(
        [
            Row(
                what=f"{name}: decision, N = 10,000, k = 100",
                ours=medians[name] * 1e3,
                unit="ms",
                target="method-cost",
                peer=medians["sort"] * 1e3,
                peer_name="np.sort of 1,000,000 float64",
            )
            for name in (*NAMES, "hics-fl")
        ]
        + [
            Row(what=f"{name}: decision, N = {count:,}, k = 100", ours=pairs[f"{name} {count}"] * 1e3, unit="ms")
            for name, count in works
        ]
    )


if __name__ == "__main__":
    main()
