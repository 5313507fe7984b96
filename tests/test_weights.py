"""Weights belong to a decision: from the policy to the cohort, the log and its verification."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from fedroster import EdgeSelector, Record, Rules, Selector, Uniform, simulate
from fedroster.errors import SelectionError
from fedroster.folder.chain import files_of
from fedroster.networks import FlatNetwork
from fedroster.policies import COCS
from fedroster.record import verify
from fedroster.record.simulated import SimulationRecord
from fedroster.testing import PolicyContract
from weighing import Drawn

CLIENTS = [f"c{number}" for number in range(6)]


def decide(selector, rounds):
    cohorts = []
    for _ in range(rounds):
        cohorts.append(cohort := selector.select())
        selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
    return cohorts


def test_a_cohort_has_the_weights_of_its_decision():
    cohorts = decide(Selector(Drawn(), cohort_size=4, clients=CLIENTS), 30)
    assert all(sum(cohort.weights) == pytest.approx(1.0) for cohort in cohorts)
    assert all(len(cohort.weights) == len(cohort.clients) for cohort in cohorts)
    assert {weight for cohort in cohorts for weight in cohort.weights} >= {0.25, 0.5}


def test_without_weights_updates_count_by_samples():
    assert Selector(Uniform(), cohort_size=2, clients=CLIENTS).select().weights is None
    edges = EdgeSelector(COCS(), budgets={"north": 2.0}, cohort_size=2, clients=CLIENTS)
    assert edges.select().weights is None


def test_rules_keep_what_was_drawn():
    rules = Rules.from_table({"groups": {"few": {"clients": CLIENTS[:5], "least": 1, "most": 1}}})
    for cohort in decide(Selector(Drawn(), cohort_size=4, clients=CLIENTS, rules=rules), 20):
        assert set(cohort.clients) & set(CLIENTS[:5])
        assert all(weight >= 0.25 for weight in cohort.weights)


@dataclass(frozen=True, slots=True)
class Wrong(Drawn):
    """Says something else than a weight for each link."""

    how: str = "negative"

    def weights(self, state, context, selection, /):
        good = np.ones(selection.links.shape[0])
        wrong = {"negative": -good, "nan": good * np.nan, "short": good[1:], "whole": good.astype(int), "list": [1.0]}
        return wrong[self.how]


@pytest.mark.parametrize("how", ["negative", "nan", "short", "whole", "list"])
def test_wrong_weights_are_refused_before_anything_is_booked(how):
    selector = Selector(Wrong(how=how), cohort_size=4, clients=CLIENTS)
    with pytest.raises(SelectionError, match="one a link"):
        selector.select()
    assert selector.round == 0
    with pytest.raises(SelectionError, match="one a link"):
        list(simulate(Wrong(how=how), FlatNetwork(num_clients=6, cohort_size=4), rounds=1, seed=0))


class Adds(Drawn):
    """A policy whose weights go by how often it was asked."""

    def weights(self, state, context, selection, /):
        state.rounds[0] += 1.0
        return np.full(selection.links.shape[0], state.rounds[0])


class Reads(Drawn):
    """A policy that books what no log holds."""

    def commit(self, state, context, selection, /):
        state.rounds[selection.links] += 0.0 if selection.weights is None else selection.weights
        return state


@pytest.mark.parametrize(("policy", "what"), [(Adds(), "changed the state"), (Reads(), "more of a decision")])
def test_the_contract_looks_at_weights(policy, what):
    class Contract(PolicyContract):
        def policy(self):
            return policy

    with pytest.raises(AssertionError, match=what):
        Contract().test_select_changes_nothing()


def recorded(folder):
    record = Record(folder)
    cohorts = decide(Selector(Drawn(), clients=CLIENTS, cohort_size=4, observers=[record]), 5)
    record.close()
    return cohorts


def test_a_log_holds_them_and_they_are_decided_again(tmp_path):
    cohorts = recorded(tmp_path)
    assert verify(tmp_path, Drawn()).is_whole
    lines = [json.loads(line) for file in files_of(tmp_path) for line in file.read_bytes().splitlines()]
    assert sum("weights" in line for line in lines) == len(cohorts)


def test_a_weight_that_was_written_otherwise_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(Drawn, "weights", lambda self, state, context, selection: np.ones(selection.links.shape[0]))
    recorded(tmp_path)
    monkeypatch.undo()
    found = verify(tmp_path, Drawn())
    assert not found.is_whole
    assert {name for each in found.differences for name in each.what} == {"weights"}


def test_a_simulation_has_them_and_its_log_too(tmp_path):
    network = FlatNetwork(num_clients=6, cohort_size=4)
    record = SimulationRecord(tmp_path, Drawn(), network.spec, policy_text="drawn", scenario="x", settings={}, seed=3)
    for played in simulate(Drawn(), network, rounds=5, seed=3, witness=record.decided):
        record.played(played)
        assert played.selection.weights.sum() == pytest.approx(1.0)
    record.close()
    assert verify(tmp_path, Drawn()).is_whole
