"""Training with an update memory and with steps of the server, in rounds and in free places."""

from __future__ import annotations

import numpy as np
import pytest

from fedroster import Floor, Uniform
from fedroster.aggregation.memory import UpdateMemory
from fedroster.aggregation.server import ServerStep
from fedroster.errors import ConfigurationError, StateFileError
from fedroster.lab.federated import federate, load_training, save_training
from fedroster.lab.training.protocol import Evaluation, Updates
from fedroster.networks import FlatNetwork
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.networks.volatile import VolatileNetwork
from fedroster.policies import Oracle

ROUNDS = 14


class Pulling:
    """A trainer whose clients pull the model towards a point of their own; some send what is not finite."""

    def __init__(self, bad=()):
        self.bad = list(bad)

    def init(self, *, rng):
        return {"w": np.zeros(3, np.float32)}

    def update(self, x, client):
        return 0.25 * (np.array([client, 1.0, -client / 2]) - x)

    def train(self, parameters, clients, /, *, round, streams):
        x = parameters["w"].astype(np.float64)
        rows = np.array([x + self.update(x, client) for client in clients]).reshape(-1, 3).astype(np.float32)
        rows[np.isin(clients, self.bad), 1] = np.inf
        some = np.full(len(clients), 0.5)
        return Updates({"w": rows}, 10 + np.asarray(clients), some, some)

    def evaluate(self, parameters, /):
        return Evaluation(accuracy=0.5, loss=float(np.abs(parameters["w"]).sum()))


def play(policy=None, network=None, trainer=None, *, rounds=ROUNDS, seed=3, **options):
    return federate(
        policy or Uniform(), network or FlatNetwork(), trainer or Pulling(), rounds=rounds, seed=seed, **options
    )


MEMORY = UpdateMemory()


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_rounds_with_memory_by_hand(share):
    """FedVARP and FedStale, with failures and refused updates, in a plain loop."""
    network, bad, trainer = VolatileNetwork(stay_s=10.0), (2, 3, 5), Pulling()
    x, rows, samples, refused, dropped = np.zeros(3), {}, {}, 0, 0
    memory = UpdateMemory(share=share)
    for last in play(network=network, trainer=Pulling(bad), rounds=60, memory=memory):
        arrived = last.round.feedback.client[last.round.outcome.responds[last.round.selection.links]]
        good = [int(client) for client in arrived if client not in bad]
        refused, dropped = refused + len(arrived) - len(good), dropped + len(last.round.selection.links) - len(arrived)
        if good:
            counts = np.array([10 + client for client in good], float)
            updates = [trainer.update(x, client) for client in good]
            total = sum(samples.values()) * (40 / len(samples)) if samples else 1.0
            mean = sum(samples[n] * rows[n] for n in rows) / total if rows else np.zeros(3)
            step = share * mean + sum(
                count / counts.sum() * (update - share * rows.get(client, np.zeros(3)))
                for client, count, update in zip(good, counts, updates, strict=True)
            )
            for client, update in zip(good, updates, strict=True):
                rows[client], samples[client] = update, 10 + client
            x = x + step
        np.testing.assert_allclose(last.parameters["w"], x, atol=2e-4)
    assert refused
    assert dropped
    assert not set(rows) & set(bad)


def test_a_diverged_update_never_enters_the_table():
    for last in play(trainer=Pulling(range(0, 40, 2)), memory=MEMORY):
        rows = last.aggregation["memory-0.rows"]
        assert np.isfinite(rows).all()
        assert not rows[::2].any()
    assert rows[1::2].any()


def test_without_a_share_it_is_federated_averaging():
    plain = [last.parameters["w"] for last in play()]
    found = [last.parameters["w"] for last in play(memory=UpdateMemory(share=0.0))]
    np.testing.assert_allclose(found, plain, atol=1e-5)


def test_memory_does_not_change_decisions():
    plain = [last.round.selection.links.tolist() for last in play(Floor(beta=0.1))]
    assert [last.round.selection.links.tolist() for last in play(Floor(beta=0.1), memory=MEMORY)] == plain


def test_edge_servers_have_a_table_each():
    network = HierarchicalNetwork(num_clients=12, deadline_s=1.1, global_period=3, budget=8.0)
    for last in play(Oracle(), network, memory=MEMORY, rounds=9):
        links = last.round.selection.links
        server, client = last.round.context.server[links], last.round.context.client[links]
        for m in range(3):
            assert set(client[server == m][last.round.feedback.status[server == m] == 0]) <= set(
                np.flatnonzero(last.aggregation[f"memory-{m}.samples"])
            )
    assert {name.partition(".")[0] for name in last.aggregation} == {"memory-0", "memory-1", "memory-2"}
    with pytest.raises(ConfigurationError, match="with 3 servers"):
        next(play(Oracle(), network, server=ServerStep(momentum=0.9)))
    whole, again = ([each.edges["w"] for each in play(Oracle(), network, memory=MEMORY)] for _ in range(2))
    np.testing.assert_array_equal(whole, again)


WAYS = {
    "memory": {"memory": UpdateMemory(longest_age=3, dtype="float16")},
    "memory, Adam": {"memory": MEMORY, "server": ServerStep(0.1, momentum=0.9, adaptive=0.99)},
    "momentum": {"server": ServerStep(momentum=0.9)},
}


def everything(last):
    arrays = {**last.aggregation, **{f"model.{name}": value for name, value in last.parameters.items()}}
    return {name: np.array(value) for name, value in arrays.items()} | {"elapsed_s": np.array(last.elapsed_s)}


@pytest.mark.parametrize("way", WAYS)
def test_a_kill_leaves_model_and_memory_of_one_step(tmp_path, way):
    options, path, network = WAYS[way], tmp_path / "run.npz", VolatileNetwork(stay_s=20.0)
    whole = [everything(last) for last in play(Floor(beta=0.1), network, **options)]
    for last in play(Floor(beta=0.1), network, **options):
        if last.round.number == 5:
            save_training(path, last, policy=Floor(beta=0.1), environment=network, seed=3)
            break
    start = load_training(path, policy=Floor(beta=0.1), environment=network, seed=3)
    rest = [everything(last) for last in play(Floor(beta=0.1), network, start=start, **options)]
    assert len(rest) == ROUNDS - 5
    for one, two in zip(rest, whole[5:], strict=True):
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_a_checkpoint_without_the_memory_is_refused(tmp_path):
    path, network = tmp_path / "run.npz", FlatNetwork()
    save_training(path, next(play()), policy=Uniform(), environment=network, seed=3)
    start = load_training(path, policy=Uniform(), environment=network, seed=3)
    with pytest.raises(StateFileError, match="update memory"):
        next(play(start=start, memory=MEMORY))
    with pytest.raises(ConfigurationError, match="no moment"):
        next(play(start=start, server=ServerStep(momentum=0.5)))
