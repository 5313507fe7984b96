"""Explored: another policy with some places drawn at random."""

import numpy as np
import pytest

from fedroster import ConfigurationError, Explored, Floor, InfeasibleError, RoundRobin, Uniform
from fedroster.catalogue import make_policy, policy_text
from fedroster.core.problem import ProblemSpec, RoundContext
from fedroster.core.streams import Streams
from fedroster.environment.flat import FlatNetwork
from fedroster.simulation import simulate
from fedroster.testing import PolicyContract


class TestExploredFloor(PolicyContract):
    def policy(self):
        return Explored(Floor(beta=0.05))


class TestExploredNow(PolicyContract):
    def policy(self):
        return Explored(RoundRobin(), places=2, probability=0.5)


def test_floor_keeps_its_promise_with_a_place_less():
    """7 places and beta = 0.15 allow 42 clients: no client lacks more than c of its share in any round."""
    policy, served, available = Explored(Floor(share_of="available")), np.zeros(40), np.zeros(40)
    for played in simulate(policy, FlatNetwork(availability=0.6), num_rounds=200, seed=5):
        served[played.selection.links] += 1
        available += played.context.available
        assert (served >= np.floor(0.15 * available + 1e-9) - 2).all()


def test_a_cohort_keeps_its_size():
    policy = Explored(Uniform(), places=2)
    state = policy.init(ProblemSpec(6, 4, 1), rng=Streams(0).at("policy-init"))
    for there in range(7):
        context = RoundContext(1, np.ones((6, 1)), np.arange(6) < there, 4)
        links = policy.select(state, context, rng=Streams(0).at("policy")).links
        assert links.tolist() == sorted(set(links.tolist()))
        assert len(links) == min(4, there)
        assert policy.inclusion(state, context).sum() == pytest.approx(min(4, there))


def test_a_place_is_left_to_the_policy_inside():
    with pytest.raises(ConfigurationError, match="places is 4; expected fewer than the cohort's 4"):
        Explored(Uniform(), places=4).check(ProblemSpec(9, 4, 1))
    with pytest.raises(InfeasibleError):
        Explored(Floor(beta=0.4)).check(ProblemSpec(10, 4, 1))  # 4 places would do, 3 do not
    with pytest.raises(ConfigurationError, match="expected a policy"):
        Explored("floor")


def test_it_has_a_text():
    policy = make_policy("explored:policy=rbcs-f:V=5;beta=0.1,places=2")
    assert policy == Explored(make_policy("rbcs-f:V=5,beta=0.1"), places=2)
    assert make_policy(policy_text(policy)) == policy
    assert policy.beta == 0.1
    assert not hasattr(Explored(Uniform()), "beta")
