"""Rules hold whatever the policy wants, in every round of a rough history; those that do not bind change nothing."""

import numpy as np
import pytest

from fedroster import Group, RoundRobin, Rules, Selector, make_policy
from frozen.digests import EDGES, FLAT
from frozen.world import PROFILES, Fleet

SITES = ["hospital-a", "hospital-b", "hospital-c", "clinic-a", "clinic-b", "laptop"]


@pytest.mark.parametrize("name", [*FLAT, *(f"edges {name}" for name in EDGES), "floor:beta=0.1"])
def test_rules_hold_in_every_round(name):
    edges = name.startswith("edges")
    fleet = Fleet(make_policy(name.removeprefix("edges ")), PROFILES["rough"], seed=4, edges=edges)
    taken = []
    for cohort in fleet.play(30 if "floor" in name else 59):
        names = {str(client) for client in cohort.clients}
        taken.append(names)
        if cohort.round < 20:  # the world's first rules
            assert "c03" not in names
            assert sum(client.startswith("c0") for client in names) <= 2
            assert all(sum(client in each for each in taken[-10:]) <= 7 for client in names)
        else:  # its second, of which 2.5 rounds are by the clock
            assert "c29" not in names
            assert not {"c11", "c12"} <= names
            assert not names & set().union(*taken[-3:-1])
    assert sum(map(len, taken)) > 100


def play(rules, rounds=12, *, policy=None, cohort_size=6, clients=SITES):
    selector = Selector(policy or make_policy("random"), cohort_size=cohort_size, clients=clients, rules=rules)
    cohorts = []
    for number in range(1, rounds + 1):
        cohorts.append(set(selector.select().clients))
        selector.observe(number, times_s=dict.fromkeys(cohorts[-1], 1.0), again="ignore")  # one may be empty
    return selector, cohorts


def test_lists_patterns_and_tags():
    rules = Rules(allow=["tag:approved", "clinic-?"], deny=["*-b"], tags={"approved": ["hospital-[ab]", "laptop"]})
    selector, (first, *_) = play(rules)
    assert first == {"hospital-a", "clinic-a", "laptop"}
    assert selector.excluded().keys() == {"hospital-b", "hospital-c", "clinic-b"}
    assert selector.allowed() == ("hospital-a", "clinic-a", "laptop")
    assert selector.participation_rates()["hospital-b"] == 0.0
    selector.join(["hospital-d", "clinic-d"])
    assert selector.select().clients == ("hospital-a", "clinic-a", "laptop", "clinic-d")
    selector.rules = None
    assert len(selector.select().clients) == 6
    selector.rules = Rules(allow=[])
    assert selector.select().is_empty


def test_numbers_of_a_cohort():
    groups = {"hospitals": Group(["hospital-*"], least=1, most=2), "clinics": Group(["clinic-*"], least=1)}
    _, cohorts = play(Rules(groups=groups), 40, cohort_size=4)
    for cohort in cohorts:
        assert len(cohort) == 4
        assert 1 <= sum(client.startswith("hospital") for client in cohort) <= 2
        assert any(client.startswith("clinic") for client in cohort)
    _, cohorts = play(
        Rules(groups={"east": Group(["e*"], most=1)}), 8, policy=RoundRobin(), cohort_size=2, clients=["e1", "e2", "w"]
    )
    assert cohorts == [{"e1", "w"}, {"e2", "w"}] * 4 or cohorts == [{"e2", "w"}, {"e1", "w"}] * 4
    _, cohorts = play(Rules(priorities={"clinic-*": 2, "laptop": -1}), 10, cohort_size=5)
    assert all({"clinic-a", "clinic-b"} <= cohort and "laptop" not in cohort for cohort in cohorts)


def test_numbers_over_time():
    _, cohorts = play(Rules(most_participations=3), 8)
    assert [len(cohort) for cohort in cohorts] == [6, 6, 6, 0, 0, 0, 0, 0]
    _, cohorts = play(Rules(most_per_window=2, window=5), 10)
    assert [len(cohort) for cohort in cohorts] == [6, 6, 0, 0, 0] * 2
    _, cohorts = play(Rules(least_separation=3), 9)
    assert [len(cohort) for cohort in cohorts] == [6, 0, 0] * 3
    now_s = iter(np.arange(0.0, 1000.0, 10.0).tolist())
    selector = Selector(
        make_policy("random"),
        cohort_size=6,
        clients=SITES,
        rules=Rules(least_separation_s=25.0),
        clock=lambda: next(now_s),
    )
    assert [len(selector.select().clients) for _ in range(7)] == [6, 0, 0, 6, 0, 0, 6]


@pytest.mark.parametrize("policy", ["rbcs-f:V=20,beta=0.1", "oort", "e3cs"])
def test_rules_that_do_not_bind_change_no_decision(policy):
    loose = Rules(allow=["*"], groups={"all": Group(["*"], most=6)}, least_cohort=1)
    assert (
        play(None, 30, policy=make_policy(policy), cohort_size=3)[1]
        == (play(loose, 30, policy=make_policy(policy), cohort_size=3)[1])
    )
