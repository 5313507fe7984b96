"""The flat network whose clients vanish and return."""

import numpy as np
import pytest

from fedroster.networks.flat import FlatNetwork
from fedroster.networks.volatile import VolatileNetwork
from fedroster.policies import Uniform
from fedroster.simulation import simulate
from fedroster.testing import EnvironmentContract


@pytest.mark.usefixtures("resumes_in_forks")
class TestContract(EnvironmentContract):
    def environment(self):
        return VolatileNetwork(num_clients=12, cohort_size=3)

    def exogenous(self, context, outcome):
        """Cold starts are history, and an exchange that takes longer is lost more often."""
        return {"available": context.available, "compute": context.features[:, 0], "stay": outcome.stay_s}


def presence(network, num_rounds=3000, seed=0):
    """Who is there, shape (rounds, clients), with each client's own share."""
    played = list(simulate(Uniform(), network, rounds=num_rounds, seed=seed))
    return np.stack([one.context.available for one in played]), played[-1].environment_state.presence


def test_shares_and_turns_are_those_of_the_chain():
    there, share = presence(VolatileNetwork(session_rounds=8.0))
    assert 0.2 <= share.min() < 0.35 < 0.75 < share.max() <= 0.9
    # A share over T rounds scatters by about sqrt(2 p (1 - p) L / T): four of these.
    assert np.abs(there.mean(axis=0) - share).max() < 4.0 * np.sqrt(2.0 * 0.25 * 9.0 / 3000)
    turns = there[:-1].sum(axis=0) / (there[:-1] & ~there[1:]).sum(axis=0)
    np.testing.assert_allclose(turns, np.maximum(8.0, share / (1.0 - share)), rtol=0.25)


@pytest.mark.parametrize("always", [0.0, 1.0])
def test_never_there_and_always_there(always):
    there, _ = presence(VolatileNetwork(presence_min=always, presence_max=always), num_rounds=60)
    assert (there == bool(always)).all()


def test_a_turn_is_as_long_as_a_share_demands():
    """At 95 % one leaves for one round in 20 at least, so that a turn lasts 19 rounds and not two."""
    there, _ = presence(VolatileNetwork(presence_min=0.95, presence_max=0.95, session_rounds=2.0))
    assert there.mean() == pytest.approx(0.95, abs=0.01)
    assert not (~there[1:] & ~there[:-1]).any()


def test_slow_exchanges_are_lost_more_often():
    late, lost = [], []
    for one in simulate(Uniform(), VolatileNetwork(stay_s=30.0), rounds=400, seed=1):
        late.append(one.outcome.exchange_time_s)
        lost.append(~one.outcome.responds)
    late, lost = np.concatenate(late), np.concatenate(lost)
    for low, high in ((0.0, 5.0), (5.0, 15.0), (15.0, 40.0)):
        part = (low <= late) & (late < high)
        assert lost[part].mean() == pytest.approx((1.0 - np.exp(-late[part] / 30.0)).mean(), abs=0.015)


def test_without_volatility_it_is_the_flat_network():
    calm = VolatileNetwork(presence_min=1.0, presence_max=1.0, stay_s=1e12, availability=0.8)
    runs = (simulate(Uniform(), network, rounds=20, seed=3) for network in (calm, FlatNetwork()))
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one.context.available, other.context.available)
        np.testing.assert_array_equal(one.outcome.exchange_time_s, other.outcome.exchange_time_s)
        assert one.outcome.responds.all()
