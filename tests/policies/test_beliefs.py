"""What policies owe and expect, and where they refuse to be put."""

from __future__ import annotations

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import ExpectsTimes, Owes, check_limits
from fedroster.policies import (
    COCS,
    CSUCB,
    CUCB,
    E3CS,
    RBCSF,
    CUCBPairs,
    Floor,
    LinUCB,
    LinUCBPairs,
    OmniscientP3,
    Oort,
    Oracle,
    OracleP,
    PartialPooling,
    RoundRobin,
    TiFL,
)

SPEC = ProblemSpec(num_clients=4, cohort_size=2, num_features=1)


def played(policy, *, rounds, links=(0, 1), times_s=(2.0, 4.0)):
    """The state after rounds in which clients 0 and 1 had these times."""
    rng = np.random.default_rng(0)
    state = policy.init(SPEC, rng=rng)
    for number in range(1, rounds + 1):
        context = RoundContext(
            round=number,
            features=np.asfortranarray([[1.0], [2.0], [1.0], [1.0]]),
            available=np.array([True, True, True, False]),
            cohort_size=2,
        )
        chosen = np.array(links)
        state = policy.commit(state, context, Selection(number, chosen))
        feedback = Feedback(
            round=number,
            client=chosen,
            features=context.features[chosen],
            status=np.zeros(chosen.shape[0], np.uint8),
            exchange_time_s=np.array(times_s),
        )
        state = policy.update(state, feedback)
    return state


@pytest.mark.parametrize(
    ("policy", "owed"),
    [
        (RBCSF(beta=0.25), [0.0, 0.0, 1.0, 1.0]),
        (OmniscientP3(beta=0.25), [0.0, 0.0, 1.0, 1.0]),
        (CSUCB(fairness=0.5), [0.0, 0.0, 1.0, 1.0]),  # half of the even share, 2 of 4
        (CSUCB(queues=False), [0.0] * 4),
        (PartialPooling(beta=0.25), [0.0, 0.0, 1.0, 0.0]),  # client 3 could not be chosen
        (PartialPooling(), [0.0] * 4),
        (Floor(beta=0.25), [0.0, 0.0, 1.0, 1.0]),
        (Floor(beta=0.25, share_of="available"), [0.0, 0.0, 1.0, 0.0]),
    ],
)
def test_backlog_is_what_four_rounds_leave_owed(policy, owed):
    assert isinstance(policy, Owes)
    assert policy.backlog(played(policy, rounds=4)) == pytest.approx(owed)


@pytest.mark.parametrize(
    ("policy", "unknown_s"),
    [(RBCSF(beta=0.1), 0.0), (CSUCB(), np.nan), (TiFL(), np.nan), (Oort(), np.nan)],
)
def test_expected_times_are_what_was_measured(policy, unknown_s):
    assert isinstance(policy, ExpectsTimes)
    state = played(policy, rounds=50)
    times_s = policy.expected_times_s(state, np.array([1, 3, 0]), np.array([[2.0], [1.0], [1.0]]))
    assert times_s == pytest.approx([4.0, unknown_s, 2.0], rel=0.03, nan_ok=True)


def test_floor_expects_times_by_contexts_once_it_knows_any():
    policy = Floor(beta=0.1)
    before = policy.init(SPEC, rng=np.random.default_rng(0))
    clients, features = np.array([1, 3, 0, 0]), np.array([[2.0], [1.0], [1.0], [3.0]])
    assert np.isnan(policy.expected_times_s(before, clients, features)).all()
    times_s = policy.expected_times_s(played(policy, rounds=50), clients, features)
    assert times_s == pytest.approx([4.0, 2.0, 2.0, 6.0], rel=0.03)  # client 3 counts as one like the others


@pytest.mark.parametrize("policy", [RoundRobin(), E3CS(), COCS()])
def test_a_policy_without_debts_has_no_backlog(policy):
    assert not isinstance(policy, Owes)
    assert not isinstance(policy, ExpectsTimes)


@pytest.mark.parametrize(
    "policy", [COCS(), CUCB(), CUCBPairs(), LinUCB(), LinUCBPairs(), Oracle(), OracleP(), PartialPooling()]
)
def test_who_asks_for_updates_in_time_needs_a_limit(policy):
    name = type(policy).__name__
    with pytest.raises(ConfigurationError, match=rf"^{name} chooses the updates that come in time; it needs several"):
        check_limits(policy, limited=False)
    check_limits(policy, limited=True)


@pytest.mark.parametrize("policy", [RBCSF(), Floor(), RoundRobin()])
def test_others_need_none(policy):
    check_limits(policy, limited=False)
