"""What each part of our own policies brings: a line for every variant, which differs where it should."""

import numpy as np
import pytest
from benchmarks.floor import NoPooling, NoPrices

from benchmarks import floor, partial_pooling
from fedroster.catalogue import make_policy, make_scenario
from fedroster.policies import Floor, PartialPooling
from fedroster.simulation import simulate


@pytest.mark.parametrize(
    ("module", "network", "policy"), [(floor, "table-1", Floor), (partial_pooling, "turns", PartialPooling)]
)
def test_each_variant_has_a_line_and_differs(monkeypatch, module, network, policy):
    networks = module.NETWORKS
    monkeypatch.setattr(module, "NETWORKS", (network,) if module is floor else {network: networks[network]})
    lines = module.table((0, 1), 12, 1).splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == list(module.VARIANTS)
    assert all(line.count(" % (") == 1 for line in lines[2 + (module is floor) :])
    made = [make_policy(text) for text in module.VARIANTS.values()]
    assert all(isinstance(each, policy) for each in made)
    assert len(set(made)) == len(made)


def test_without_prices_only_time_and_urgency_count():
    *_, last = simulate(Floor(), make_scenario("rbcs-f/table-1"), rounds=20, seed=0)
    priced, free = (policy().appraise(last.policy_state, last.context) for policy in (Floor, NoPrices))
    np.testing.assert_array_equal(free[0], priced[0])
    np.testing.assert_array_equal(free[1], 0.0 * priced[1])
    assert priced[1].max() > 0.0


def test_without_pooling_a_client_that_was_never_observed_stays_a_guess():
    """Its coefficients give every feature an equal part in the times; and those of others differ from FLOOR's."""
    *_, last = simulate(NoPooling(beta=0.0), make_scenario("rbcs-f/table-1"), rounds=4, seed=0)
    times = last.policy_state.belief.times
    new = times.count == 0.0
    assert new.any()
    guess = np.broadcast_to(times.mean[:, None], times.coefficients.shape)
    np.testing.assert_array_equal(times.coefficients[:, new], guess[:, new])
    assert (times.coefficients[:, ~new] != guess[:, ~new]).any()
