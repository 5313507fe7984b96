"""A strategy's own average gives the weighted sum, whatever its replies weigh; else the policy is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import fleet, model
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from test_grid import selecting
from test_memory import Saving, assert_same, formula, remembering

from fedroster.aggregation.memory import UpdateMemory
from fedroster.core.errors import ConfigurationError

sys.path.append(str(Path(__file__).parents[2]))
from weighing import Drawn, noting


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_the_strategys_own_average_gives_the_weighted_sum(factor):
    nodes = fleet(8, each=lambda number: {"metrics": {"num-examples": 10 * (number + 1)}})
    grid, *_ = selecting(nodes, m=4, policy=Drawn(factor), strategy=(strategy := Saving()))
    strategy.start(grid=grid, initial_arrays=model(), num_rounds=5)
    for number, arrays in enumerate(strategy.models, 1):  # a node adds 1 to the model, and weights sum to factor
        assert arrays["w"] == pytest.approx(np.full((3, 2), factor * number), abs=1e-5)
    assert max(strategy.counts) <= 4


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_weights_and_an_update_memory_are_one_step(share):
    """What a node remembers changes, as it moves by its number and by how often it trained."""
    memory, seen, strategy = UpdateMemory(share=share), [], Saving()

    def moves(at, number):
        return number + 0.5 * at

    told = {"observers": [noting(seen)]}
    grid, _, reports = remembering(strategy, memory, moves=moves, m=3, policy=Drawn(0.5), told=told)
    strategy.start(grid=grid, initial_arrays=model(0.5), num_rounds=8)
    assert strategy.counts == [len(each) for each in seen]
    cohorts = [report.clients for report in reports]
    assert_same(strategy.models, formula(cohorts, memory, moves=moves, weights=seen), 1e-4)


def test_what_does_not_come_moves_nothing():
    nodes = fleet(4)
    nodes[100].fate = ("error",) * 9
    grid, *_ = selecting(nodes, m=4, policy=Drawn(), strategy=(strategy := Saving()))
    strategy.start(grid=grid, initial_arrays=model(), num_rounds=3)
    assert strategy.models[-1]["w"].max() < 3.0


def test_noise_for_updates_that_count_alike_and_unknown_averages_are_refused():
    noisy = DifferentialPrivacyServerSideFixedClipping(FedAvg(min_train_nodes=3), 1e-6, 100.0, 3)
    with pytest.raises(ConfigurationError, match="adds noise for updates that count alike"):
        selecting(fleet(8), m=3, policy=Drawn(), strategy=noisy)
    with pytest.raises(ConfigurationError, match="weighted_by_key"):
        selecting(fleet(8), m=3, policy=Drawn(), strategy=object())
