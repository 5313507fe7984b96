import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fedroster import RBCSF, Uniform
from fedroster.aggregation.signatures import signatures_of
from fedroster.core.errors import ConfigurationError, SelectionError, StateFileError
from fedroster.core.problem import Feedback, Status
from fedroster.core.protocols import Signature, poll_times
from fedroster.core.state import load_arrays, save_arrays
from fedroster.core.streams import Streams
from fedroster.lab.federated import federate, load_training, save_training
from fedroster.lab.task import Task
from fedroster.lab.training.protocol import Evaluation, Updates
from fedroster.lab.worlds.network import TraceNetwork
from fedroster.networks import FlatNetwork
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.policies import Oort, OptimalClientSampling, PowerOfChoice
from fedroster.simulation import simulate

torch = pytest.importorskip("torch", reason="trains networks")

ROUNDS = 12


class Moving:
    """A trainer whose clients add one to the model, or what ``move`` says of them; some send what is not finite."""

    def __init__(self, move=lambda clients: np.ones((len(clients), 1), np.float32), bad=(), dtype=np.float32):
        self.move, self.bad, self.dtype = move, list(bad), dtype
        self.asked = []
        self.evaluated = 0

    def init(self, *, rng):
        return {"w": np.zeros(2, self.dtype)}

    def train(self, parameters, clients, /, *, round, streams):
        self.asked.append(clients.copy())
        rows = parameters["w"] + self.move(clients)
        rows[np.isin(clients, self.bad), 1] = np.nan
        some = np.full(len(clients), 0.5)
        return Updates({"w": rows}, np.full(len(clients), 10), some)

    def evaluate(self, parameters, /):
        self.evaluated += 1
        return Evaluation(accuracy=0.5, loss=float(parameters["w"][0]))


def play(policy, trainer, environment=None, *, rounds=ROUNDS, seed=3, **options):
    return federate(policy, environment or FlatNetwork(), trainer, rounds=rounds, seed=seed, **options)


@pytest.fixture(scope="module")
def digits():
    return Task().trainer(num_clients=40, seed=3)


def test_checkpoint_of_another_run_is_refused(tmp_path, digits):
    path = tmp_path / "run.npz"
    last = next(play(Uniform(), digits))
    save_training(path, last, policy=Uniform(), environment=FlatNetwork(), seed=3)
    network = FlatNetwork()
    own = {"policy": Uniform(), "environment": network, "seed": 3}
    others = {"seed": 4, "policy": RBCSF(), "environment": FlatNetwork(num_clients=41), "task": "digits"}
    for name, other in others.items():
        with pytest.raises(ConfigurationError, match=f"belongs to {name}"):
            load_training(path, **own | {name: other})
    arrays, header = load_arrays(path, kind="training")
    for elapsed_s in (None, "1", -1.0, math.nan):
        save_arrays(tmp_path / "other.npz", arrays, header | {"elapsed_s": elapsed_s}, kind="training")
        with pytest.raises(StateFileError, match="elapsed_s"):
            load_training(tmp_path / "other.npz", **own)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StateFileError, match="damaged"):
        load_training(path, **own)


def test_the_digits_are_learned(digits):
    course = [last.accuracy for last in play(Uniform(), digits, rounds=60)]
    assert course[0] < 0.6
    assert np.mean(course[-10:]) > 0.92


def test_training_does_not_change_the_network_or_the_decisions(digits):
    plain = list(simulate(RBCSF(), FlatNetwork(), rounds=ROUNDS, seed=3))
    elapsed = 0.0
    for last, expected in zip(play(RBCSF(), digits), plain, strict=True):
        np.testing.assert_array_equal(last.round.selection.links, expected.selection.links)
        elapsed += expected.time_s
        assert last.elapsed_s == elapsed
        assert last.refused.size == 0


def test_an_update_that_is_not_finite_is_reported_and_the_round_goes_on():
    trainer = Moving(bad=[0, 1, 2, 3, 4, 5])
    refused = dropped = 0
    for last in play(Uniform(), trainer, FlatNetwork(dropout=0.4)):
        feedback, asked = last.round.feedback, trainer.asked[-1]  # who drops out does not train
        failed, here = feedback.status == Status.FAILED, feedback.status == Status.COMPLETED
        np.testing.assert_array_equal(asked, feedback.client[failed | here])
        np.testing.assert_array_equal(feedback.client[failed], last.refused)
        np.testing.assert_array_equal(last.refused, np.intersect1d(asked, trainer.bad))
        assert np.isnan(feedback.exchange_time_s[failed]).all()
        assert np.isfinite(feedback.exchange_time_s[here]).all()
        np.testing.assert_array_equal(last.parameters["w"], np.full(2, last.round.number, np.float32))
        refused, dropped = refused + last.refused.size, dropped + int((~(failed | here)).sum())
    assert refused > 0
    assert dropped > 0


@pytest.mark.parametrize(
    "network",
    [FlatNetwork(availability=0.0), FlatNetwork(dropout=1.0), HierarchicalNetwork(dropout=1.0)],
    ids=["none available", "silence", "edges"],
)
def test_an_empty_round_leaves_the_model_as_it_was(network):
    trainer = Moving()
    played = list(play(Uniform(), trainer, network, rounds=6))
    for last in played:
        assert not any(values.any() for values in (last.parameters["w"], *(last.edges or {}).values()))
    assert [last.accuracy for last in played] == [0.5] * 6
    assert trainer.asked == []
    assert trainer.evaluated == 1


def test_evaluate_every():
    played = list(play(Uniform(), Moving(), rounds=8, evaluate_every=3))
    tested = [last.round.number for last in played if not math.isnan(last.accuracy)]
    assert tested == [3, 6, 8]
    with pytest.raises(ConfigurationError, match="evaluate_every is 0"):
        next(play(Uniform(), Moving(), evaluate_every=0))


def walk(clients):
    return clients[:, None] + 1.0


NETWORK = HierarchicalNetwork(num_clients=12, deadline_s=1.1, min_updates=2, global_period=3, dropout=0.2, budget=8.0)


@pytest.mark.parametrize("bad", [(), (0, 1, 2, 3)], ids=["good", "some-infinite"])
def test_edge_models_by_hand(bad):
    """Every round against a plain loop over servers: (3), (6) with Z = 2, and the mean every third round."""
    edges = np.zeros((3, 2))
    late_and_used = refused = 0
    for last in play(Uniform(), Moving(walk, bad, np.float64), NETWORK, rounds=30):
        chosen = last.round.selection.links
        context, outcome = last.round.context, last.round.outcome
        failed = []
        for m in range(3):
            mine = [link for link in chosen if context.server[link] == m and outcome.responds[link]]
            mine.sort(key=lambda link: outcome.exchange_time_s[link])
            in_time = [link for link in mine if outcome.exchange_time_s[link] <= 1.1]
            used = in_time if len(in_time) >= 2 else mine[:2]
            late_and_used += len(used) > len(in_time)
            clients = [int(context.client[link]) for link in used]
            failed += [client for client in clients if client in bad]
            good = [client for client in clients if client not in bad]
            if good:
                edges[m] = np.mean([edges[m] + client + 1.0 for client in good], axis=0)
        mean = edges.mean(axis=0)
        if last.round.number % 3 == 0:
            edges[:] = mean
        np.testing.assert_allclose(last.edges["w"], edges)
        np.testing.assert_allclose(last.parameters["w"], mean)
        assert last.test_loss == last.parameters["w"][0]
        assert sorted(last.refused) == sorted(failed)
        status = last.round.feedback.status
        assert (status[np.isin(last.round.feedback.client, failed)] == Status.FAILED).all()
        refused += len(failed)
    assert late_and_used > 5
    assert (refused > 0) == bool(bad)


class Measuring(Moving):
    """Clients whose loss before training and number of samples tell who they are, and in which round."""

    def train(self, parameters, clients, /, *, round, streams):
        updates = super().train(parameters, clients, round=round, streams=streams)
        loss = clients + round / 1000.0
        return replace(updates, num_samples=100 + clients, loss_before=loss, squared_loss=loss**2 + 1.0)


@pytest.mark.parametrize("environment", [FlatNetwork(dropout=0.2), HierarchicalNetwork()], ids=["flat", "hierarchical"])
def test_policies_that_want_losses_get_them(environment):
    class Wants(Uniform):
        wants_losses = True

    seen = refused = 0
    trainer = Measuring(bad=range(0, 50, 4))
    for trained in play(Wants(), trainer, environment):
        feedback, number = trained.round.feedback, trained.round.number
        arrived = np.concatenate([np.empty(0, np.int64), *trainer.asked])
        trainer.asked.clear()
        used = np.isin(feedback.client, arrived) & ~np.isin(feedback.client, trained.refused)
        loss = np.where(used, feedback.client + number / 1000.0, np.nan)
        np.testing.assert_array_equal(feedback.loss, loss)
        np.testing.assert_array_equal(feedback.squared_loss, loss**2 + 1.0)
        np.testing.assert_array_equal(feedback.num_samples, np.where(used, 100.0 + feedback.client, np.nan))
        seen += used.sum()
        refused += trained.refused.size
    assert seen > 20
    assert refused > 0


def test_other_policies_get_neither_losses_nor_signatures():
    for trained in play(Uniform(), Measuring()):
        feedback = trained.round.feedback
        assert feedback.loss is feedback.num_samples is feedback.signature is None
    for played in simulate(Oort(), FlatNetwork(), rounds=3, seed=0):
        assert played.feedback.loss is None


class Polled(Measuring):
    """Clients whose loss of a model depends on them and on the model; remembers who was asked about which model."""

    def __init__(self):
        super().__init__()
        self.polled = []

    def losses(self, parameters, clients, /):
        self.polled.append((float(parameters["w"][0]), clients.copy()))
        return np.sin(clients + 10.0 * parameters["w"][0])


POW_D = PowerOfChoice(d=15, variant="pow-d")


DEVICES = TraceNetwork(num_clients=200, cohort_size=8)


@pytest.mark.parametrize(
    "network", [FlatNetwork(), FlatNetwork(drift=1.0, drift_rounds=7.0), DEVICES], ids=["flat", "drift", "traces"]
)
def test_polling_decides_by_the_present_model_and_takes_time(network):
    trainer = Polled()
    before = network.init(rng=Streams(3).at("environment-init"))
    for played in play(POW_D, trainer, network):
        one = played.round
        model, answered = trainer.polled[-1]
        assert model == one.number - 1.0  # the model after the round before
        asked = one.selection.polled
        assert len(asked) == 15
        assert one.context.available[asked].all()
        poll_s = poll_times(network, before, one.context, asked)
        stay_s = np.full(15, np.inf) if one.outcome.stay_s is None else one.outcome.stay_s[asked]
        np.testing.assert_array_equal(answered, asked[poll_s <= stay_s])
        best = answered[np.argsort(np.sin(answered + 10.0 * model))[-8:]]
        np.testing.assert_array_equal(one.selection.links, np.sort(best))
        exchange_s = one.outcome.exchange_time_s[one.selection.links].max()
        waited_s = poll_s.max()
        assert waited_s > 0.0
        assert one.time_s == exchange_s + waited_s
        before = one.environment_state
    assert len(trainer.polled) == ROUNDS
    if network is DEVICES:  # whose clock counts the polls
        assert before.time_s == pytest.approx(DEVICES.start_time_s + played.elapsed_s)


def test_candidates_tell_the_norms_of_their_updates_before_some_are_sent():
    told, far = [], Moving(lambda clients: np.outer(clients, [3.0, 4.0]), bad=[7])

    class Listening(OptimalClientSampling):
        def select(self, state, context, /, *, rng):
            def poll(rows):
                told.append((rows, context.poll(rows)))
                return told[-1][1]

            return OptimalClientSampling.select(self, state, context.with_poll(poll), rng=rng)

    total = np.zeros(2)
    for played in play(Listening(candidates=12), far, rounds=30):
        rows, norms = told[-1]
        np.testing.assert_allclose(norms, np.where(rows == 7, np.nan, 5.0 * rows))
        selection = played.round.selection
        np.testing.assert_array_equal(selection.polled, rows)
        total += selection.weights @ np.outer(selection.links, [3.0, 4.0])
        np.testing.assert_allclose(played.parameters["w"], total, rtol=1e-4)
        assert not np.isin([0, 7], selection.links).any()  # one whose model stays as it was, one that is not finite
    assert any(7 in rows for rows, _ in told)


@dataclass(frozen=True)
class Signed(Uniform):
    """Learns from updates, and tells a test what it was told."""

    signature: ClassVar[Signature] = Signature(length=8)
    told: ClassVar[list[Feedback]] = []

    def update(self, state, feedback, /):
        self.told.append(feedback)
        return state


@pytest.mark.parametrize(
    "network", [FlatNetwork(dropout=0.2), HierarchicalNetwork(num_clients=12)], ids=["flat", "edges"]
)
def test_signatures_are_of_the_updates_that_are_used(network):
    """Of the model that each client was sent, by the projection of the run's seed; NaN for what is refused."""
    directions, far = {}, Moving(lambda clients: np.outer(clients + 1.0, [3.0, 4.0]), bad=[7])
    for seed in (3, 4):
        Signed.told.clear()
        for _ in play(Signed(), far, network, seed=seed):
            pass
        expected = signatures_of({"w": np.array([[3.0, 4.0]])}, {"w": np.zeros(2)}, Signed.signature, seed=seed)[0]
        for feedback in Signed.told:
            used = (feedback.status == Status.COMPLETED) & (feedback.client != 7)
            signature = feedback.signature[used]
            np.testing.assert_allclose(signature, np.outer(feedback.client[used] + 1.0, expected), rtol=1e-3)
            assert np.isnan(feedback.signature[feedback.status >= Status.DROPPED]).all()
        assert any(7 in feedback.client for feedback in Signed.told)
        directions[seed] = expected
    assert not np.allclose(directions[3], directions[4])


def test_the_time_of_a_poll_by_hand():
    flat = FlatNetwork(num_clients=4, cohort_size=1, noise=0.0)
    context, outcome = flat.observe(flat.init(rng=Streams(0).at("i")), 1, rng=Streams(0).at("e"))
    train_s = context.features[:, 0] * np.array(flat.train_time_s)
    poll_s = flat.poll_times(flat.init(rng=Streams(0).at("i")), context, np.arange(4))
    np.testing.assert_allclose(outcome.expected_time_s - poll_s, train_s * 2.0 / 3.0)
    traces = TraceNetwork(num_clients=4, cohort_size=1, download_bit=3e6, upload_bit=1e6, cold_start_s=2.0, noise=0.0)
    state = traces.init(rng=Streams(0).at("i"))
    context, outcome = traces.observe(state, 1, rng=Streams(0).at("e"))
    work_s, cold, transfer_s = context.features.T
    assert (cold == 1.0).all()
    expected_s = work_s / 3.0 + 2.0 + 0.75 * transfer_s
    np.testing.assert_allclose(traces.poll_times(state, context, np.array([2, 0])), expected_s[[2, 0]])


def test_without_a_model_nobody_is_asked():
    for played in simulate(POW_D, FlatNetwork(), rounds=3, seed=0):
        assert played.selection.polled is None
        assert played.context.poll is None
    for played in play(PowerOfChoice(), Polled(), rounds=3):  # rpow-d does not poll
        assert played.round.selection.polled is None


def test_a_network_that_does_not_time_polls_takes_no_time_for_them():
    class Silent:
        """A network without ``poll_times``."""

        def __init__(self, network):
            self.init, self.observe, self.advance = network.init, network.observe, network.advance
            self.spec = network.spec

    timed, free = play(POW_D, Polled(), rounds=3), play(POW_D, Polled(), Silent(FlatNetwork()), rounds=3)
    for one, other in zip(timed, free, strict=True):
        np.testing.assert_array_equal(one.round.selection.links, other.round.selection.links)
        assert one.elapsed_s > other.elapsed_s


def test_a_trainer_that_cannot_be_asked_is_named():
    with pytest.raises(ConfigurationError, match=r"Moving has no losses\(parameters, clients\)"):
        next(play(POW_D, Moving()))


def test_only_the_available_may_be_polled():
    class Impolite(PowerOfChoice):
        def select(self, state, context, /, *, rng):
            context.poll(np.arange(context.num_links))
            return PowerOfChoice.select(self, state, context, rng=rng)

    with pytest.raises(SelectionError, match="was polled and is not available"):
        list(play(Impolite(variant="pow-d"), Polled(), FlatNetwork(availability=0.5), rounds=3))
