"""Flower's own strategies take the step of an update memory; restarts; strategies that cannot have one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import fleet, model, shift
from flwr.app import Array
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    MultiKrum,
)
from test_grid import selecting

from fedroster.aggregation.memory import UpdateMemory, UpdateTable
from fedroster.core.errors import ConfigurationError

NODES = 6


def moved(round_: int, name: int) -> float:
    return float(np.random.default_rng([round_, name]).normal())


class Saving(FedAvg):
    """Keeps each round's model, as an app saves it, and of how many replies it is."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.models, self.counts = [], []

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies := list(replies))
        self.models.append({key: array.numpy() for key, array in arrays.items()})
        self.counts.append(len(replies))
        return arrays, metrics


def remembering(strategy, memory, *, moves=moved, m=2, **options):
    """Nodes whose updates are other ones each time, by ``moves`` of the training and of the node."""
    nodes = fleet(NODES)
    for number, node in enumerate(nodes.values()):
        node.fate = tuple(partial(shift, moves(at, number)) for at in range(30))
        node.metrics = {"num-examples": 10 + 7 * number}
    grid, _, reports = selecting(nodes, m=m, strategy=strategy, memory=memory, **options)
    return grid, nodes, reports


def formula(cohorts, options, *, moves=moved, lost=(), weights=None):
    """The models of the formula, by the table that ``aggregation`` has tests of against plain sums."""
    current = {key: array.numpy() for key, array in model(0.5).items()}
    table, trained, models = UpdateTable(options, current, NODES), [0] * NODES, []
    for at, cohort in enumerate(cohorts):
        clients = np.array(sorted(int(name[1:]) for name in cohort))
        by = np.array([moves(trained[client], client) for client in clients])
        for client in clients:
            trained[client] += 1
        if at in lost:
            continue
        updates = {"w": 1.0 + by[:, None, None] * np.ones((3, 2)), "b": 1.0 - by[:, None] * np.ones(2)}
        samples, factors = 10.0 + 7.0 * clients, None
        if weights is not None:
            factors = np.array([weights[at][f"n{client:02d}"] for client in clients]) * samples.sum() / samples
        step = table.step(clients, updates, samples, weights=factors)
        current = {key: current[key] + step[key] for key in current}
        models.append(current)
    return models


def assert_same(models, expected, tolerance=1e-5):
    for mine, other in zip(models, expected, strict=True):
        for key in ("w", "b"):
            np.testing.assert_allclose(mine[key], other[key], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("unknown", ["left-out", "zero"])
def test_fedavg_takes_the_step_of_the_formula(share: float, unknown: str) -> None:
    options, strategy = UpdateMemory(share=share, unknown=unknown), Saving()
    grid, _, reports = remembering(strategy, options)
    strategy.start(grid=grid, initial_arrays=model(0.5), num_rounds=12)
    assert_same(strategy.models, formula([report.clients for report in reports], options))


@pytest.mark.parametrize("make", [FedAdam, lambda: FedAvgM(server_learning_rate=0.5, server_momentum=0.9)])
def test_adaptive_strategies_get_the_step_as_their_gradient(make) -> None:
    """Without anything remembered they do what they did; with it they do something else, and stay finite."""
    ends = {}
    for name, memory in {"none": None, "zero": UpdateMemory(share=0.0), "whole": UpdateMemory()}.items():
        strategy = make()
        grid, *_ = remembering(strategy, memory)
        ends[name] = strategy.start(grid=grid, initial_arrays=model(0.5), num_rounds=6).arrays["w"].numpy()
    np.testing.assert_allclose(ends["none"], ends["zero"], rtol=1e-5)
    assert not np.allclose(ends["none"], ends["whole"], rtol=1e-3)
    assert np.isfinite(ends["whole"]).all()


def test_a_counter_that_comes_back_as_an_integer_stays_out_of_the_memory(tmp_path: Path) -> None:
    """Flower's average makes a float of it, also in the model with which an app begins again."""
    arrays = model(0.5)
    arrays["count"] = Array(np.array(3))
    for rounds in (3, 6):
        grid, nodes, _ = remembering(FedAvg(), UpdateMemory(), state_dir=tmp_path)
        for number, node in enumerate(nodes.values()):
            node.fate = (partial(counting, number),)
        arrays = grid.start(arrays, num_rounds=rounds).arrays
    assert arrays["count"].numpy() == 9
    assert sum(grid.selector.participation("used").values()) == 12


def counting(number: int, content) -> None:
    shift(moved(0, number), content)
    content["arrays"]["count"] = Array(content["arrays"]["count"].numpy().astype(np.int64))


@pytest.mark.parametrize("saved", [0, 1])
def test_after_a_restart_model_and_table_are_of_one_step(tmp_path: Path, saved: int) -> None:
    """The app goes on from its newest model, or from the one before it: its save was cut off."""
    options, first = UpdateMemory(), Saving()
    grid, nodes, reports = remembering(first, options, state_dir=tmp_path)
    first.start(grid=grid, initial_arrays=model(0.5), num_rounds=7)
    arrays = model(0.0)
    for key in arrays:
        arrays[key] = Array(first.models[-1 - saved][key])
    second = Saving()
    grid, again, more = remembering(second, options, state_dir=tmp_path)
    for node, old in zip(again.values(), nodes.values(), strict=True):
        node.fate = node.fate[old.trained :]
    second.start(grid=grid, initial_arrays=arrays, num_rounds=1 + saved)
    # A lost round's updates are in no model, and not in the table.
    expected = formula([report.clients for report in (*reports, *more)], options, lost=range(7 - saved, 7))
    assert_same(second.models[-1:], expected[-1:])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (FedMedian, "FedMedian does not average"),
        (lambda: MultiKrum(num_malicious_nodes=0, num_nodes_to_select=2), "Krum does not average"),
        (lambda: DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 1.0, 2), "guarantee would be void"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(make, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        selecting(fleet(3), strategy=make(), memory=UpdateMemory())
