"""What policies owe and expect."""

import numpy as np
import pytest

from fedroster.catalogue import make_policy
from fedroster.core.problem import ProblemSpec, Selection
from fedroster.core.protocols import ExpectsTimes, Owes
from rounds import context_of, report

SPEC = ProblemSpec(num_clients=4, cohort_size=2, num_features=1)


def played(policy, *, rounds, links=(0, 1), times_s=(2.0, 4.0)):
    """The state after rounds in which clients 0 and 1 had these times."""
    rng = np.random.default_rng(0)
    state = policy.init(SPEC, rng=rng)
    for number in range(1, rounds + 1):
        features = np.asfortranarray([[1.0], [2.0], [1.0], [1.0]])
        context = context_of(4, 2, round=number, features=features, available=[True, True, True, False])
        state = policy.commit(state, context, Selection(number, np.array(links)))
        state = policy.update(state, report(links, round=number, time_s=times_s, features=features[list(links)]))
    return state


@pytest.mark.parametrize(
    ("policy", "owed"),
    [
        ("rbcs-f:beta=0.25", [0.0, 0.0, 1.0, 1.0]),
        ("p3:beta=0.25", [0.0, 0.0, 1.0, 1.0]),
        ("cs-ucb:fairness=0.5", [0.0, 0.0, 1.0, 1.0]),  # half of the even share, 2 of 4
        ("cs-ucb:queues=false", [0.0] * 4),
        ("partial-pooling:beta=0.25", [0.0, 0.0, 1.0, 0.0]),  # client 3 could not be chosen
        ("partial-pooling", [0.0] * 4),
        ("floor:beta=0.25", [0.0, 0.0, 1.0, 1.0]),
        ("floor:beta=0.25,share_of=available", [0.0, 0.0, 1.0, 0.0]),
    ],
)
def test_backlog_is_what_four_rounds_leave_owed(policy, owed):
    policy = make_policy(policy)
    assert isinstance(policy, Owes)
    assert policy.backlog(played(policy, rounds=4)) == pytest.approx(owed)


@pytest.mark.parametrize(
    ("policy", "unknown_s"),
    [("rbcs-f:beta=0.1", 0.0), ("cs-ucb", np.nan), ("tifl", np.nan), ("oort", np.nan)],
)
def test_expected_times_are_what_was_measured(policy, unknown_s):
    policy = make_policy(policy)
    assert isinstance(policy, ExpectsTimes)
    state = played(policy, rounds=50)
    times_s = policy.expected_times_s(state, np.array([1, 3, 0]), np.array([[2.0], [1.0], [1.0]]))
    assert times_s == pytest.approx([4.0, unknown_s, 2.0], rel=0.03, nan_ok=True)


def test_floor_expects_times_by_contexts_once_it_knows_any():
    policy = make_policy("floor:beta=0.1")
    before = policy.init(SPEC, rng=np.random.default_rng(0))
    clients, features = np.array([1, 3, 0, 0]), np.array([[2.0], [1.0], [1.0], [3.0]])
    assert np.isnan(policy.expected_times_s(before, clients, features)).all()
    times_s = policy.expected_times_s(played(policy, rounds=50), clients, features)
    assert times_s == pytest.approx([4.0, 2.0, 2.0, 6.0], rel=0.03)  # client 3 counts as one like the others
