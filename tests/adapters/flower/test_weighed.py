"""A strategy's own average gives the weighted sum, whatever its replies weigh; else the policy is refused."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import fleet, model, shift
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from test_grid import selecting

from fedroster.aggregation.memory import UpdateMemory, UpdateTable
from fedroster.core.errors import ConfigurationError

sys.path.append(str(Path(__file__).parents[2]))
from weighing import Drawn


class Kept(FedAvg):
    """Federated averaging that keeps what its average was, and of what."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies := list(replies))
        self.seen = [*getattr(self, "seen", []), (arrays["w"].numpy(), len(replies))]
        return arrays, metrics


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_the_strategys_own_average_gives_the_weighted_sum(factor):
    nodes = fleet(8)
    for number, node in enumerate(nodes.values()):
        node.metrics = {"num-examples": 10 * (number + 1)}
    grid, *_ = selecting(nodes, m=4, policy=Drawn(factor), strategy=(strategy := Kept(fraction_train=1.0)))
    strategy.start(grid=grid, initial_arrays=model(), num_rounds=5)
    for number, (arrays, count) in enumerate(strategy.seen, 1):  # a node adds 1 to the model, and weights sum to factor
        assert arrays == pytest.approx(np.full((3, 2), factor * number), abs=1e-5)
        assert count <= 4


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_weights_and_an_update_memory_are_one_step(share):
    """What a node remembers changes, as it moves by its number and by how often it trained."""
    nodes, memory, seen = fleet(6), UpdateMemory(share=share), []
    for number, node in enumerate(nodes.values()):
        node.metrics = {"num-examples": 10 * (number + 1)}
        node.fate = tuple(partial(shift, number + 0.5 * at) for at in range(9))
    policy, strategy = Drawn(0.5), Kept(fraction_train=1.0)
    policy_weights = Drawn.weights

    def weights(self, state, context, selection, /):
        found = policy_weights(self, state, context, selection)
        seen.append(dict(zip(context.clients_of(selection.links).tolist(), found.tolist(), strict=True)))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drawn, "weights", weights)
        grid, *_ = selecting(nodes, m=3, policy=policy, strategy=strategy, memory=memory)
        strategy.start(grid=grid, initial_arrays=model(), num_rounds=8)
    current, trained = {key: array.numpy() for key, array in model().items()}, [0] * 6
    table = UpdateTable(memory, current, 6)
    assert len(seen) == len(strategy.seen) == 8
    for chosen, (mine, count) in zip(seen, strategy.seen, strict=True):
        clients = np.array(sorted(chosen))
        assert count == len(clients)
        by = np.array([client + 0.5 * trained[client] for client in clients])
        for client in clients:
            trained[client] += 1
        samples = 10.0 * (clients + 1)
        factors = np.array([chosen[client] for client in clients]) * samples.sum() / samples
        updates = {"w": 1.0 + by[:, None, None] * np.ones((3, 2)), "b": 1.0 - by[:, None] * np.ones(2)}
        step = table.step(clients, updates, samples, weights=factors)
        current = {key: current[key] + step[key] for key in current}
        np.testing.assert_allclose(mine, current["w"], rtol=1e-4, atol=1e-4)


def test_what_does_not_come_moves_nothing():
    nodes = fleet(4)
    nodes[100].fate = ("error",) * 9
    grid, *_ = selecting(nodes, m=4, policy=Drawn(), strategy=(strategy := Kept(fraction_train=1.0)))
    strategy.start(grid=grid, initial_arrays=model(), num_rounds=3)
    assert strategy.seen[-1][0].max() < 3.0


def test_noise_for_updates_that_count_alike_and_unknown_averages_are_refused():
    noisy = DifferentialPrivacyServerSideFixedClipping(FedAvg(min_train_nodes=3), 1e-6, 100.0, 3)
    with pytest.raises(ConfigurationError, match="adds noise for updates that count alike"):
        selecting(fleet(8), m=3, policy=Drawn(), strategy=noisy)
    with pytest.raises(ConfigurationError, match="weighted_by_key"):
        selecting(fleet(8), m=3, policy=Drawn(), strategy=object())
