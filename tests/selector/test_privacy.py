"""What may be claimed about privacy, and no more."""

from __future__ import annotations

import pytest

from federations import answered
from fedroster import EdgeSelector, FailureRules, Rules, Selector, Uniform
from fedroster.catalogue import make_policy, policies
from fedroster.core.problem import Selection
from fedroster.core.protocols import Stateless
from fedroster.selector.privacy import reads

CLIENTS = [f"c{number}" for number in range(12)]
READS = {
    "nothing": {"random", "dirichlet", "round-robin"},
    "losses": {
        "afl",
        "clustered-sampling",
        "f3ast",
        "fedcor",
        "oort",
        "optimal-client-sampling",
        "pisces",
        "power-of-choice",
        "tifl",
        "size-weighted",
    },
}
READS["signatures"], READS["labels"] = {"divfl"}, {"hics-fl"}
STEADY = FailureRules(pause_after=0)


@pytest.mark.parametrize("name", sorted(policies()))
def test_every_policy_says_what_it_reads(name):
    expected = next((word for word, names in READS.items() if name in names), "system")
    assert reads(make_policy(name)) == expected


def test_a_policy_that_says_nothing_is_unknown():
    class Outside(Stateless):
        def select(self, state, context, /, *, rng):
            return Selection(context.round, context.available.nonzero()[0][: context.cohort_size])

    claimed = Selector(Outside(), cohort_size=2, clients=CLIENTS, failures=STEADY).privacy()
    assert (claimed.reads, claimed.draws, claimed.amplification) == ("unknown", "unknown", False)


def test_sampling_counts_for_uniform_draws_over_all_members_only():
    selector = Selector(Uniform(), cohort_size=3, clients=CLIENTS, failures=STEADY)
    answered(selector, 5)
    claimed = selector.privacy()
    assert (claimed.amplification, claimed.sampled) == (True, (3, 12))
    assert any("seed" in reason for reason in claimed.reasons)
    selector.select(CLIENTS[:6])
    assert not selector.privacy().amplification
    assert selector.privacy().reasons == ("some members were not available in some rounds",)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"failures": None}, "clients that fail pause"),
        ({"rules": Rules(deny=["c1"])}, "rules exclude clients"),
        ({"clients": []}, "there are no members"),
        ({"policy": make_policy("floor")}, "Floor does not draw uniformly: it draws nothing at random"),
        ({"policy": make_policy("oort")}, "clients may have different probabilities"),
    ],
)
def test_anything_else_is_no_sampling(options, reason):
    given = {"policy": Uniform(), "clients": CLIENTS, "failures": STEADY} | options
    selector = Selector(given.pop("policy"), cohort_size=3, **given)
    claimed = selector.privacy()
    assert (claimed.amplification, claimed.sampled) == (False, None)
    assert any(reason in each for each in claimed.reasons)


def test_a_rule_that_comes_late_does_not_undo_what_was(tmp_path):
    selector = Selector(Uniform(), cohort_size=6, clients=CLIENTS)
    answered(selector, 10)
    selector.rules = Rules(least_separation=5, most_participations=2)
    most = max(selector.participation().values())
    assert (selector.privacy().separation, selector.privacy().participations) == (1, most)
    selector.save(tmp_path / "state.npz")
    assert Selector.load(tmp_path / "state.npz", Uniform()).privacy() == selector.privacy()


def test_without_rules_nothing_limits_participation_and_forgetting_ends_a_claim():
    selector = Selector(Uniform(), cohort_size=3, clients=CLIENTS)
    assert (selector.privacy().separation, selector.privacy().participations) == (1, None)
    assert selector.privacy().participations_in(9) == 9
    selector.rules = Rules(least_separation=3, most_participations=4)
    cohort = selector.select()
    claimed = selector.privacy()
    assert (claimed.separation, claimed.participations) == (3, 4)  # b and k, which other tests see the rules keep
    assert [claimed.participations_in(rounds) for rounds in (0, 1, 7, 30)] == [0, 1, 3, 4]
    selector.leave(cohort.clients[:1], forget=True)
    assert (selector.privacy().separation, selector.privacy().participations) == (1, None)


def test_a_round_that_left_members_out_ends_the_claim_of_sampling(tmp_path):
    ruled = Selector(Uniform(), cohort_size=3, clients=CLIENTS, failures=STEADY, rules=Rules(deny=["c0"]))
    answered(ruled, 1)
    ruled.rules = None

    busy = Selector(Uniform(), cohort_size=3, clients=CLIENTS, failures=STEADY)
    for _ in range(2):  # the second place is drawn from those that are not at work
        busy.select(at_most=1)

    pausing = Selector(Uniform(), cohort_size=12, clients=CLIENTS, failures=FailureRules(pause_after=1))
    pausing.observe(pausing.select().round, failed=CLIENTS[:1], round_s=1.0)
    pausing.select()
    pausing.save(tmp_path / "pausing.npz")
    steady = Selector.load(tmp_path / "pausing.npz", Uniform(), failures=STEADY)

    for selector in (ruled, busy, steady):
        claimed = selector.privacy()
        assert (claimed.amplification, claimed.sampled) == (False, None)
        assert claimed.reasons == ("in some rounds, a rule, a pause or work under way kept members out of the draw",)
        selector.save(tmp_path / "state.npz", replace=True)
        assert Selector.load(tmp_path / "state.npz", Uniform()).privacy() == claimed


def test_a_uniform_order_of_links_to_edge_servers_is_no_uniform_sample():
    selector = EdgeSelector(Uniform(), budgets={"n": 2.0, "s": 2.0}, cohort_size=2, clients=CLIENTS, failures=STEADY)
    selector.select(servers={client: ["n", "s"] if client == "c0" else ["n"] for client in CLIENTS})
    assert not selector.privacy().amplification
    assert selector.privacy().reasons == ("reach, prices and budgets of edge servers shape cohorts",)
