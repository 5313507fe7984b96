"""CS-UCB and CS-UCB-Q against loops over clients."""

import math

import numpy as np
import pytest

from fedroster.core.problem import ProblemSpec, RoundContext, Status
from fedroster.policies import CSUCB
from rounds import report


class Client:
    """One client as the paper writes it."""

    def __init__(self):
        self.plays, self.rewards, self.backlog = 0, [], 0.0

    def index(self, policy, round, size, longest_s):
        rewards = [1.0 - (longest_s if time_s is None else time_s) / longest_s for time_s in self.rewards]
        mean = sum(rewards) / len(rewards) if rewards else 0.0
        if not policy.queues:
            return mean + math.sqrt((size + 1) * math.log(round) / self.plays) if self.plays else math.inf
        bound = min(mean + math.sqrt(2 * math.log(round) / self.plays), 1.0) if self.plays else 1.0
        return (1 - policy.balance) * bound + policy.balance * self.backlog


@pytest.mark.parametrize(
    "policy",
    [
        CSUCB(),
        CSUCB(queues=False),
        CSUCB(balance=0.1, fairness=1.0),
        CSUCB(longest_s=2.0),
        CSUCB(queues=False, longest_s=2.0),
    ],
    ids=repr,
)
def test_every_index_and_decision_agrees_with_a_loop(policy):
    rng = np.random.default_rng(1)
    count, size = 10, 3
    state = policy.init(ProblemSpec(count, size, 1), rng=rng)
    clients = [Client() for _ in range(count)]
    longest_s = policy.longest_s
    for number in range(1, 120):
        here = np.flatnonzero(rng.random(count) < 0.8)
        available = np.isin(np.arange(count), here)
        context = RoundContext(number, np.ones((count, 1)), available, size)
        expected = [clients[n].index(policy, number, size, longest_s or 1.0) for n in here]
        found = policy.index(state, here, round=number, cohort_size=size)
        np.testing.assert_allclose(found, expected, rtol=1e-7)
        links = policy.select(state, context, rng=rng).links
        np.testing.assert_allclose(
            np.sort(found[np.isin(here, links)]), np.sort(expected)[max(len(here) - size, 0) :], rtol=1e-7
        )
        state = policy.commit(state, context, type("Chosen", (), {"links": links}))
        time_s = rng.lognormal(np.linspace(-1.0, 1.0, count), 0.3)[links]
        lost = rng.random(links.size) < 0.2
        time_s[lost] = np.nan
        state = policy.update(state, report(links, round=number, time_s=time_s))
        for n, client in enumerate(clients):
            arrival = policy.fairness * size / count if policy.queues else 0.0
            client.backlog = max(client.backlog + arrival - (n in links), 0.0)
        for n, value in zip(links.tolist(), time_s.tolist(), strict=True):
            clients[n].plays += 1
            clients[n].rewards.append(None if math.isnan(value) else min(value, policy.longest_s or math.inf))
        longest_s = max([longest_s, *time_s[~lost].tolist()]) if policy.longest_s == 0.0 else policy.longest_s
    assert state.longest_s == longest_s
    assert state.measured.sum() < state.answers.sum() == state.plays.sum()


def test_the_share_is_of_the_members():
    policy = CSUCB(fairness=1.0)
    state = policy.init(ProblemSpec(8, 2, 1), rng=np.random.default_rng(0))
    members = np.arange(8) < 4
    context = RoundContext(1, np.ones((8, 1)), members, 2, members=members)
    state = policy.commit(state, context, type("Chosen", (), {"links": np.array([0, 1])}))
    np.testing.assert_array_equal(state.backlog, [0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0])


def test_forgetting_a_time_forgets_no_drop_out():
    policy = CSUCB()
    state = policy.init(ProblemSpec(2, 2, 1), rng=np.random.default_rng(0))
    state.plays[:] = 2
    ends = [Status.DROPPED, Status.COMPLETED]
    state = policy.update(state, report([0, 1], round=1, time_s=[np.nan, 2.0], status=ends))
    state = policy.update(state, report([0], round=2, time_s=[4.0]))
    state = policy.rescale(state, np.array([0, 1]), np.array([0.0, 0.5]))
    assert (state.answers.tolist(), state.measured.tolist(), state.total_s.tolist()) == ([1, 1], [0, 1], [0.0, 1.0])
