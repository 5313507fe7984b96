"""Steered: a policy whose parameter follows a target for the length of rounds."""

import math

import numpy as np
import pytest

from fedroster import RBCSF, ConfigurationError, Floor, Steered, Uniform, make_scenario, simulate
from fedroster.catalogue import make_policy, policy_text
from fedroster.testing import PolicyContract


class TestSteeredFloor(PolicyContract):
    def policy(self):
        return Steered(Floor(beta=0.15), mean_round_s=5.0)


class TestSteeredRBCSF(PolicyContract):
    def policy(self):
        return Steered(RBCSF(V=5.0, beta=0.05), mean_round_s=5.0)


@pytest.mark.parametrize("start", [0.005, 0.2])
@pytest.mark.parametrize("settings", [{}, {"drift": "0.5"}])
def test_rounds_come_to_the_target_from_a_bad_start(start, settings):
    policy = Steered(Floor(beta=start), mean_round_s=7.0)
    lengths = [
        each.time_s for each in simulate(policy, make_scenario("rbcs-f/table-1", settings), num_rounds=220, seed=1)
    ]
    assert np.mean(lengths[100:]) == pytest.approx(7.0, rel=0.1)


def test_a_target_out_of_reach_leaves_the_parameter_at_its_end():
    for target, level in ((0.1, 1e-3), (1e4, 0.2)):
        rounds = simulate(
            Steered(Floor(beta=0.1), mean_round_s=target), make_scenario("rbcs-f/table-1"), num_rounds=60, seed=0
        )
        *_, last = rounds
        assert math.exp(last.policy_state.level) == pytest.approx(level)


def test_a_policy_without_such_a_parameter_is_refused():
    with pytest.raises(ConfigurationError, match="expected one with a parameter that moves the length of rounds"):
        Steered(Uniform())


def test_it_has_a_text():
    policy = make_policy("steered:policy=rbcs-f:V=5;beta=0.1,mean_round_s=9")
    assert policy == Steered(RBCSF(V=5.0, beta=0.1), mean_round_s=9.0)
    assert make_policy(policy_text(policy)) == policy
