"""Round robin."""

import numpy as np
import pytest

from fedroster import Selector
from fedroster.policies import RoundRobin
from fedroster.types import ProblemSpec, RoundContext, Streams


def play(available, size):
    """Cohorts for a table of availability, shape (rounds, clients)."""
    policy = RoundRobin()
    state = policy.init(ProblemSpec(available.shape[1], size, 1), rng=Streams(0).at("policy-init"))
    cohorts = []
    for number, row in enumerate(available, start=1):
        context = RoundContext(number, np.ones((row.size, 1)), row, size)
        selection = policy.select(state, context, rng=Streams(0).at("policy", number))
        state = policy.commit(state, context, selection)
        cohorts.append(selection.links)
    return cohorts


def longest_waiting(available, cohorts):
    """What each round chose against a slow reading of the rule."""
    last = dict.fromkeys(range(available.shape[1]), 0)
    for number, (row, chosen) in enumerate(zip(available, cohorts, strict=True), start=1):
        here = np.flatnonzero(row).tolist()
        waits = sorted(last[client] for client in here)[: len(chosen)]
        assert sorted(last[client] for client in chosen.tolist()) == waits
        last.update(dict.fromkeys(chosen.tolist(), number))


def test_whoever_waited_longest_goes_first():
    available = np.random.default_rng(1).random((300, 20)) < np.linspace(0.05, 0.95, 20)
    longest_waiting(available, play(available, 4))
    with pytest.raises(AssertionError):  # negative control: another rule
        longest_waiting(available, [np.flatnonzero(row)[:4] for row in available])


def test_who_joins_is_served_first():
    selector = Selector(RoundRobin(), cohort_size=2, num_features=1, clients=list("abcd"))
    selector.select({client: [1.0] for client in "abcd"})
    selector.select({client: [1.0] for client in "abcd"})
    selector.join(["e", "f"])
    assert set(selector.select({client: [1.0] for client in "abcdef"}).clients) == {"e", "f"}
