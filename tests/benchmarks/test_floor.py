"""What each part of FLOOR brings: every variant differs from FLOOR where it should."""

import numpy as np
from benchmarks.floor import VARIANTS, NoPooling, NoPrices, table

from fedroster.catalogue import make_policy, make_scenario
from fedroster.policies import Floor
from fedroster.simulation import simulate


def test_each_variant_has_a_line(monkeypatch):
    monkeypatch.setattr("benchmarks.floor.NETWORKS", ("table-1",))
    lines = table((0,), 12, 1).splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == list(VARIANTS)
    assert all(isinstance(make_policy(policy), Floor) for policy in VARIANTS.values())


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
