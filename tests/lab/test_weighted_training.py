"""The model moves by the weighted sum of updates that arrive: in rounds, at edge servers, with a memory, in places."""

import numpy as np
import pytest

from fedroster import Uniform
from fedroster.aggregation.memory import UpdateMemory
from fedroster.aggregation.places import FreePlaces
from fedroster.aggregation.server import ServerStep
from fedroster.core.errors import ConfigurationError
from fedroster.lab.federated import federate
from fedroster.lab.training.protocol import Evaluation, Updates
from fedroster.networks import FlatNetwork
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.types import Status
from runs import killed
from weighing import Drawn

N, M = 12, 4
FLAT = FlatNetwork(num_clients=N, cohort_size=M, availability=0.7, dropout=0.2)


class Unit:
    """Client k moves the k-th number of the model by 1, so the model shows what every update counted."""

    def __init__(self, num_clients=N, bad=()):
        self.num_clients, self.bad = num_clients, list(bad)

    def init(self, *, rng):
        return {"w": np.zeros(self.num_clients)}

    def train(self, parameters, clients, /, *, round, streams):
        rows = parameters["w"] + np.eye(self.num_clients)[clients]
        rows[np.isin(clients, self.bad)] = np.nan
        some = np.full(len(clients), 0.5)
        return Updates({"w": rows}, 10 * (1 + clients), some)

    def evaluate(self, parameters, /):
        return Evaluation(0.5, 0.5)


def counted(played):
    """What each client's update should have counted in a round."""
    found = np.zeros(N)
    used = (played.round.feedback.status == Status.COMPLETED) & ~np.isin(played.round.feedback.client, played.refused)
    found[played.round.feedback.client[used]] = played.round.selection.weights[used]
    return found


@pytest.mark.parametrize("step", [1.0, 0.5])
@pytest.mark.parametrize("memory", [None, UpdateMemory(share=0.0)])
def test_a_round_moves_the_model_by_the_weighted_sum_of_what_arrived(memory, step):
    total = np.zeros(N)
    for played in federate(
        Drawn(2.0), FLAT, Unit(bad=[3]), rounds=30, seed=1, memory=memory, server=ServerStep(size=step)
    ):
        total += step * counted(played)
        np.testing.assert_allclose(played.parameters["w"], total, atol=1e-12)
    assert total[3] == 0.0
    assert np.count_nonzero(total) == N - 1


def test_remembered_updates_take_the_place_of_those_that_did_not_come():
    """With s = 1 and updates that stay the same, weights have nothing left to say once all rows are known."""
    *_, before, last = federate(Drawn(), FLAT, Unit(), rounds=60, seed=1, memory=UpdateMemory())
    share = (1 + np.arange(N)) / (1 + np.arange(N)).sum()
    np.testing.assert_allclose(last.parameters["w"] - before.parameters["w"], share, rtol=1e-6)


def test_edge_models_move_so_that_their_mean_moves_by_the_sum():
    network = HierarchicalNetwork(num_clients=N, num_servers=3)

    class OnLinks(Drawn):
        def select(self, state, context, /, *, rng):
            return Uniform().select(state, context, rng=rng)

        def weights(self, state, context, selection, /):
            return np.full(selection.links.shape[0], 0.25)

    total = np.zeros(N)

    class Noted(Unit):
        def train(self, parameters, clients, /, **at):
            total[clients] += 0.25
            return super().train(parameters, clients, **at)

    for played in federate(OnLinks(), network, Noted(), rounds=2 * network.global_period, seed=1):
        np.testing.assert_allclose(played.parameters["w"], total, atol=1e-9)
    assert total.sum() > 0.0


def test_in_free_places_a_decision_of_f_places_counts_as_f_of_m(tmp_path):
    network = FlatNetwork(num_clients=N, cohort_size=M)
    *_, last = federate(Drawn(), network, Unit(), rounds=400, seed=1, places=FreePlaces())
    assert last.parameters["w"].sum() == pytest.approx(400 / M, rel=0.02)
    half = federate(Drawn(), network, Unit(), rounds=200, seed=1, places=FreePlaces())
    start = killed(tmp_path / "state.npz", half, 200, policy=Drawn(), environment=network, seed=1)
    *_, again = federate(Drawn(), network, Unit(), rounds=400, seed=1, places=FreePlaces(), start=start)
    np.testing.assert_array_equal(again.parameters["w"], last.parameters["w"])


def test_a_memory_whose_step_has_no_weights_is_refused():
    with pytest.raises(ConfigurationError, match="rule='difference'"):
        next(federate(Drawn(), FLAT, Unit(), rounds=1, seed=1, memory=UpdateMemory(rule="mean")))
