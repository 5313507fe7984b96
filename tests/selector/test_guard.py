"""What the guard makes of lies about contexts, times, presence and prices."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.guard import FIRST, LIES, play

from federations import make
from fedroster import RBCSF, EdgeSelector, PartialPooling
from fedroster.selector import trust_of

OFF = {"guarded": False, "longest_s": None, "longest_absence": None}
POLICIES = ("rbcs-f:V=1", "floor")
LIES = (LIES[0], LIES[1], LIES[2], LIES[5], LIES[6], LIES[9], LIES[10])


def mean_s(policy, lie=None, **options):
    """Mean round of the fleet of Huang et al. 2021, of which four of forty lie; the server's clock measures rounds."""
    return play(policy, 200, 0, lie, **options)[0][FIRST:].mean()


@pytest.fixture(scope="module")
def honest():
    """Mean round of each policy where every word is taken and none is a lie."""
    return {policy: mean_s(policy, **OFF) for policy in POLICIES}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("lie", [None, *LIES], ids=str)
def test_no_lie_costs_more_than_a_quarter(honest, policy, lie):
    """How far debts may grow under lies is a row of `make chaos`."""
    assert mean_s(policy, lie) < (1.25 if lie else 1.02) * honest[policy]


@pytest.mark.parametrize("lie", [LIES[0], LIES[3]], ids=str)
def test_without_the_guard_these_lies_cost_more(honest, lie):
    """The control: the lies of the test above are worth telling."""
    assert mean_s("floor", lie, **OFF) > 1.4 * honest["floor"]


@pytest.mark.parametrize(("round_", "alone"), [(1, False), (9, False), (9, True)])
@pytest.mark.parametrize("cohort_size", [2, 8])
def test_one_time_of_1e9_s_counts_as_ten_medians(round_, alone, cohort_size):
    """The first round is judged by its own median; later ones whether the others have answered or not."""
    selector = make(range(8), cohort_size=cohort_size, policy=RBCSF(beta=0.0, alpha=0.0), num_features=None)
    for number in range(1, round_ + 1):
        cohort = selector.select()
        liar = cohort.clients[0] if number == round_ else None
        answered = [liar] if alone and liar is not None else cohort.clients
        selector.observe(number, times_s={client: 1e9 if client == liar else 2.0 for client in answered})
    assert selector.participation("capped") == dict.fromkeys(range(8), 0) | {liar: 1}
    assert 2.0 < selector.expected_times_s()[liar] <= 20.0


def test_the_member_of_most_contradicted_rounds_is_held_to_be_slow():
    """x says 1 s whatever it takes; each round with it is longer than all that is told, none of the others is."""
    selector = make([*"abcx"], cohort_size=2, policy=RBCSF(beta=0.0, V=0.0), num_features=None)
    for _ in range(60):
        cohort = selector.select()
        selector.observe(
            cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0), round_s=8.0 if "x" in cohort.clients else 1.0
        )
    expected_s = selector.expected_times_s()
    assert expected_s["x"] > 3.0 * max(expected_s[client] for client in "abc")


@pytest.mark.filterwarnings("ignore::fedroster.core.errors.FairnessWarning")
def test_what_the_absent_are_owed_is_bounded():
    """The absent return, and their debt is that of 20 rounds, not of 300; with the papers' rule it is all of them."""
    owed = {}
    for longest_absence in (20, None):
        selector = make([*range(10)], cohort_size=3, policy=RBCSF(beta=0.2), longest_absence=longest_absence)
        for _ in range(300):
            cohort = selector.select({client: [1.0] for client in range(8)})
            selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
        owed[longest_absence] = selector.backlog()[9]
        # The guarantee that is left: x >= beta (T - R) - Z, here with x = 0 and R the rounds of rest.
        rest = 300 - 21 if longest_absence else 0
        assert 0.2 * (300 - rest) - owed[longest_absence] - 1e-6 <= 0.0
    assert owed[20] == pytest.approx(0.2 * 21)
    assert owed[None] == pytest.approx(0.2 * 300)
    selector.select([9])
    assert 9 in {client for clients in selector.open_rounds().values() for client in clients}


@pytest.mark.filterwarnings("ignore::fedroster.core.errors.FairnessWarning")
def test_absence_is_counted_from_joining():
    """A client that was no member for 50 rounds, or none at all, is owed from its first round on."""
    selector = make([*range(6)], cohort_size=2, policy=RBCSF(beta=0.2))
    selector.leave([5])
    for _ in range(50):
        selector.select({client: [1.0] for client in range(4)})
    selector.join([5, 6])
    before = selector.backlog()
    for _ in range(3):
        selector.select({client: [1.0] for client in range(4)})
    assert selector.backlog()[5] == pytest.approx(before[5] + 0.6)
    assert selector.backlog()[6] == pytest.approx(before[6] + 0.6)
    assert selector.backlog()[4] == pytest.approx(0.2 * 21)


def test_a_price_that_is_too_low_is_charged_what_was_measured():
    """A client that says 0.01 and costs 2 is in no more rounds than the budget pays for."""
    taken = {}
    for told in (True, False):
        selector = EdgeSelector(PartialPooling(), budgets={"north": 2.0}, cohort_size=3, clients=[*"abcl"])
        prices = dict.fromkeys("abc", 1.0) | {"l": 0.01}
        for _ in range(20):
            cohort = selector.select(prices=prices)
            costs = {client: 2.0 if client == "l" else 1.0 for client in cohort.clients} if told else None
            selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0), costs=costs)
        taken[told] = selector.participation()["l"]
    assert taken[False] == 20
    assert taken[True] <= 2


def test_a_liar_is_not_trusted_and_a_forgotten_one_again():
    selector = make([*range(6)], cohort_size=3, policy=RBCSF(V=1.0, beta=0.3), num_features=2)
    rng = np.random.default_rng(1)
    for _ in range(80):
        told = {client: rng.uniform(0.9, 1.1, 2) * [1.0 + client, 1.0] for client in range(6)}
        told[5] *= 100.0 ** rng.uniform(-1, 1)
        cohort = selector.select(told)
        selector.observe(cohort.round, times_s={client: 1.0 + client + rng.random() for client in cohort.clients})
    trust = trust_of(selector)
    assert trust.pop(5) < 0.5 < min(trust.values())
    selector.leave([5], forget=True)
    selector.join([5])
    assert trust_of(selector)[5] > 0.99
