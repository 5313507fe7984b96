"""What policies say about chance."""

import numpy as np
import pytest

from fedroster.catalogue import make_policy, policies
from fedroster.core.protocols import draws
from fedroster.core.streams import Streams
from fedroster.networks.flat import FlatNetwork
from fedroster.simulation import simulate

DRAWING = {"afl", "by-speed", "clustered-sampling", "dirichlet", "e3cs", "fedcor", "oort", "pisces", "power-of-choice"}
DRAWING |= {"divfl", "hics-fl", "optimal-client-sampling", "size-weighted", "tifl"}
KINDS = {name: draws(make_policy(name)) for name in policies()}


def test_every_policy_says_how_it_draws():
    assert {name for name, kind in KINDS.items() if kind == "unknown"} == DRAWING | {"fedcs-greedy"}
    assert {name for name, kind in KINDS.items() if kind == "uniform"} == {"participation-weights", "random"}


@pytest.mark.parametrize("name", ["rbcs-f", "floor", "random", "dirichlet", "e3cs", "power-of-choice"])
def test_a_policy_that_never_draws_decides_the_same_whatever_the_stream(name):
    """After 30 rounds, when times are known and nothing ties; policies that draw decide differently."""
    policy, network = make_policy(name), FlatNetwork(num_clients=14, cohort_size=4)
    *_, last = simulate(policy, network, rounds=30, seed=3)
    context, _ = network.observe(last.environment_state, 31, rng=Streams(3).at("environment", 31))
    found = {policy.select(last.policy_state, context, rng=np.random.default_rng(n)).links.tobytes() for n in range(20)}
    assert (len(found) == 1) == (KINDS[name] == "never")
