"""Variants of a network against those parts of its contract that a parameter may break, and rounds to look at."""

import numpy as np

from fedroster.types import Selection, Streams


def check_variant(contract, network):
    variant = type("Variant", (contract,), {"environment": lambda self: network})()
    variant.test_shapes_types_and_ranges()
    variant.test_every_policy_meets_the_same_world()


def play(network, num_rounds, *, first=1, seed=0):
    """Context, outcome and state of rounds in which no client is ever chosen."""
    streams = Streams(seed)
    state = network.init(rng=streams.at("environment-init"))
    for number in range(first, first + num_rounds):
        context, outcome = network.observe(state, number, rng=streams.at("environment", number))
        yield context, outcome, state
        state = network.advance(state, context, Selection(number, np.zeros(0, np.int64)))
