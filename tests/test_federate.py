from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from fedroster import RBCSF, FedCS, Uniform
from fedroster.core.errors import ConfigurationError, StateFileError
from fedroster.core.problem import Status
from fedroster.core.state import pack
from fedroster.environment import FlatNetwork
from fedroster.federate import DigitsTask, federate, load_training, save_training
from fedroster.simulate import simulate
from fedroster.training.protocol import Evaluation, Updates

ROUNDS = 12


class Counting:
    """A trainer whose clients add one to the model; some send what is not finite."""

    def __init__(self, bad=()):
        self.bad = list(bad)
        self.asked = []
        self.evaluated = 0

    def init(self, *, rng):
        return {"w": np.zeros(2, np.float32)}

    def train(self, parameters, clients, /, *, round, streams):
        self.asked.append(clients.copy())
        rows = np.repeat(parameters["w"][None] + 1.0, len(clients), axis=0)
        rows[np.isin(clients, self.bad), 1] = np.nan
        some = np.full(len(clients), 0.5)
        return Updates({"w": rows}, np.full(len(clients), 10), some, some)

    def evaluate(self, parameters, /):
        self.evaluated += 1
        return Evaluation(accuracy=0.5, loss=float(parameters["w"][0]))


def play(policy, trainer, environment=None, *, rounds=ROUNDS, seed=3, **options):
    return federate(policy, environment or FlatNetwork(), trainer, num_rounds=rounds, seed=seed, **options)


@pytest.fixture(scope="module")
def digits():
    return DigitsTask(gamma_1=0.5).trainer(num_clients=40, seed=3)


def snapshot(last):
    """All that must be equal, copied: a policy reuses its arrays."""
    states = pack(last.round.policy_state, "policy.") | pack(last.round.environment_state, "environment.")
    arrays = states | {f"model.{name}": value for name, value in last.parameters.items()}
    scalars = (last.accuracy, last.test_loss, last.elapsed_s, last.round.time_s)
    return {name: np.array(value) for name, value in arrays.items()} | {"scalars": np.array(scalars)}


def assert_equal(one, two):
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.mark.parametrize("policy", [RBCSF(), FedCS()], ids=["rbcs-f", "fedcs"])
def test_killed_and_resumed_equals_uninterrupted(tmp_path, digits, policy):
    whole = [snapshot(last) for last in play(policy, digits)]
    path = tmp_path / "run.npz"
    killed = play(policy, digits)
    for last in killed:
        if last.round.number == 5:
            save_training(path, last, policy=policy, environment=FlatNetwork(), seed=3)
            break
    killed.close()
    fresh = DigitsTask(gamma_1=0.5).trainer(num_clients=40, seed=3)
    start = load_training(path, policy=policy, environment=FlatNetwork(), seed=3)
    rest = [snapshot(last) for last in play(policy, fresh, start=start)]
    assert len(rest) == ROUNDS - 5
    for one, two in zip(rest, whole[5:], strict=True):
        assert_equal(one, two)


def test_checkpoint_of_another_run_is_refused(tmp_path, digits):
    path = tmp_path / "run.npz"
    last = next(play(Uniform(), digits))
    save_training(path, last, policy=Uniform(), environment=FlatNetwork(), seed=3)
    network = FlatNetwork()
    with pytest.raises(ConfigurationError, match="belongs to seed 3; expected 4"):
        load_training(path, policy=Uniform(), environment=network, seed=4)
    with pytest.raises(ConfigurationError, match="belongs to policy"):
        load_training(path, policy=RBCSF(), environment=network, seed=3)
    with pytest.raises(ConfigurationError, match="belongs to environment"):
        load_training(path, policy=Uniform(), environment=FlatNetwork(num_clients=41), seed=3)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StateFileError, match="damaged"):
        load_training(path, policy=Uniform(), environment=network, seed=3)
    with pytest.raises(FileNotFoundError):
        load_training(tmp_path / "none.npz", policy=Uniform(), environment=network, seed=3)


def test_same_seed_same_curve_and_other_seed_another(digits):
    one, same, other = (
        [(last.accuracy, last.test_loss) for last in play(Uniform(), digits, seed=seed)] for seed in (3, 3, 4)
    )
    assert one == same
    assert one != other


def test_the_digits_are_learned(digits):
    course = [last.accuracy for last in play(Uniform(), digits, rounds=60)]
    assert course[0] < 0.6
    assert np.mean(course[-10:]) > 0.92


def test_training_does_not_change_the_network_or_the_decisions(digits):
    plain = list(simulate(RBCSF(), FlatNetwork(), num_rounds=ROUNDS, seed=3))
    elapsed = 0.0
    for last, expected in zip(play(RBCSF(), digits), plain, strict=True):
        np.testing.assert_array_equal(last.round.selection.links, expected.selection.links)
        elapsed += expected.time_s
        assert last.elapsed_s == elapsed
        assert last.refused.size == 0
        assert np.isfinite(last.train_loss).all()


def test_an_update_that_is_not_finite_is_reported_and_the_round_goes_on():
    trainer = Counting(bad=[0, 1, 2, 3, 4, 5])
    refused = 0
    for last in play(Uniform(), trainer):
        feedback = last.round.feedback
        failed = feedback.status == Status.FAILED
        np.testing.assert_array_equal(feedback.client[failed], last.refused)
        np.testing.assert_array_equal(last.refused, np.intersect1d(feedback.client, trainer.bad))
        assert np.isnan(feedback.exchange_time_s[failed]).all()
        assert np.isfinite(feedback.exchange_time_s[~failed]).all()
        np.testing.assert_array_equal(last.parameters["w"], np.full(2, last.round.number, np.float32))
        refused += last.refused.size
    assert refused > 0


def test_when_all_updates_are_refused_the_model_stays():
    for last in play(Uniform(), Counting(bad=range(40)), rounds=3):
        assert last.refused.size == 8
        assert last.parameters["w"].tolist() == [0.0, 0.0]
        assert last.round.time_s > 0.0


def test_drop_outs_do_not_train():
    trainer = Counting()
    dropped = 0
    for last in play(Uniform(), trainer, FlatNetwork(dropout=0.4)):
        here = last.round.feedback.status == Status.COMPLETED
        np.testing.assert_array_equal(trainer.asked[-1], last.round.feedback.client[here])
        assert np.isnan(last.train_loss[~here]).all()
        assert (last.train_loss[here] == 0.5).all()
        dropped += int((~here).sum())
    assert dropped > 0


@pytest.mark.parametrize(
    "network", [FlatNetwork(availability=0.0), FlatNetwork(dropout=1.0)], ids=["nobody", "silence"]
)
def test_an_empty_round_leaves_the_model_as_it_was(network):
    trainer = Counting()
    played = list(play(Uniform(), trainer, network, rounds=3))
    assert [last.parameters["w"].tolist() for last in played] == [[0.0, 0.0]] * 3
    assert [last.accuracy for last in played] == [0.5] * 3
    assert trainer.asked == []
    assert trainer.evaluated == 1


def test_evaluate_every():
    played = list(play(Uniform(), Counting(), rounds=8, evaluate_every=3))
    tested = [last.round.number for last in played if not math.isnan(last.accuracy)]
    assert tested == [3, 6, 8]
    with pytest.raises(ConfigurationError, match="evaluate_every is 0"):
        next(play(Uniform(), Counting(), evaluate_every=0))


def test_digits_task():
    with pytest.raises(ConfigurationError, match="gamma_1 is 0"):
        DigitsTask(gamma_1=0)
    assert dataclasses.asdict(DigitsTask()) == {"gamma_1": 0.5}
