"""FLOOR's page, and the yardstick beside it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError
from fedroster.environment import FlatNetwork
from fedroster.policies import Floor
from fedroster.simulate import simulate
from fedroster.study.experiment import gather
from fedroster.study.flat_beyond import PAPER, _least, _rival
from fedroster.study.stationary import stationary_optimum

QUIET = FlatNetwork(num_clients=12, cohort_size=3, noise=0.0)


def test_without_shares_the_optimum_is_the_fastest_cohort_of_each_context():
    played = simulate(Floor(beta=0.0), QUIET, num_rounds=40, seed=3)
    fastest = [np.sort(each.outcome.expected_time_s[each.context.available])[2] for each in played]
    # Without scatter the round is the slowest mean; ratios of 1 lie within one step of the grid, exp(1/8).
    found = stationary_optimum(QUIET, 0.0, seed=3, num_contexts=40)
    assert np.mean(fastest) * 0.94 <= found <= np.mean(fastest) * 1.14


def test_shares_cost_time_and_no_policy_is_below_the_optimum():
    values = [stationary_optimum(QUIET, rate, seed=0, num_contexts=40) for rate in (0.0, 0.1, 0.2)]
    assert values[0] * 1.1 < values[1]
    assert values[1] * 1.1 < values[2]
    network = FlatNetwork()
    learned = [each.time_s for each in simulate(Floor(), network, num_rounds=300, seed=0)]
    assert stationary_optimum(network, 0.15, seed=0, num_contexts=60) < np.mean(learned)


def test_a_network_that_changes_has_no_stationary_optimum():
    with pytest.raises(ConfigurationError, match="drift or churn"):
        stationary_optimum(dataclasses.replace(QUIET, drift=0.5), 0.1, seed=0)


def test_the_rival_is_the_first_that_is_no_fairer():
    runs = {
        label: [SimpleNamespace(chosen=np.array([least, 20]))]
        for label, least in {"FLOOR": 5, "A": 9, "B": 6, "C": 5, "D": 1}.items()
    }
    assert _rival(runs, "FLOOR", ["A", "B", "C", "D"], _least) == ("C", True)
    assert _rival(runs, "A", ["B", "C", "D"], _least) == ("B", False)


def test_a_page_is_made_from_its_runs_and_the_rival_is_no_fairer():
    recipe = PAPER.figures["table-1"]
    labels = ["FLOOR", "FLOOR, c = 1", "FLOOR, c = 0", *(label for label in recipe.needs if label[0] in "Rr")]
    assert set(labels) == set(recipe.needs)
    runs = {label: gather(recipe.needs[label].cells(seeds=(0, 1), num_rounds=60), workers=1) for label in labels}
    rivals = [label for label in labels if label.startswith("RBCS-F")]
    rival, reached = _rival(runs, "FLOOR", rivals, _least)
    least = {label: np.mean([run.chosen.min() for run in runs[label]]) for label in labels}
    assert least[rival] <= least["FLOOR"]
    assert reached == (rival != rivals[0])
    assert all(least[label] > least["FLOOR"] for label in rivals[: rivals.index(rival)])
    assert {row["policy"] for row in recipe.draw(runs).data.to_dicts()} == set(labels)
    assert [claim.name for claim in recipe.claims(runs)] == ["table-1-faster", "table-1-guarantee"]
    assert all(claim.ours for claim in recipe.claims(runs))
