"""Training with an update memory and with steps of the server, in rounds and in free places."""

import numpy as np
import pytest

from fedroster import Floor, Uniform
from fedroster.aggregation.memory import UpdateMemory
from fedroster.aggregation.places import FreePlaces
from fedroster.aggregation.server import ServerStep
from fedroster.errors import ConfigurationError, StateFileError
from fedroster.lab.federated import federate
from fedroster.lab.training.protocol import Evaluation, Updates
from fedroster.networks import FlatNetwork
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.networks.volatile import VolatileNetwork
from fedroster.policies import BySpeed, Oracle
from runs import killed

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
    memory = UpdateMemory(share=share, unknown="zero")
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


@pytest.mark.parametrize(
    ("buffer", "discount", "memory"), [(3, 0.5, None), (1, 0.0, "zero"), (4, 0.0, "zero"), (2, 0.5, "left-out")]
)
def test_free_places_by_hand(buffer, discount, memory):
    """FedBuff and CA2FL in a plain loop: buffers, staleness, failures and refused updates."""
    network, bad, trainer = VolatileNetwork(stay_s=20.0), (2, 3, 5), Pulling()
    options = {"places": FreePlaces(buffer, discount), "memory": memory and UpdateMemory(unknown=memory)}
    x, rows, samples, pending, waiting, version, refused = np.zeros(3), {}, {}, {}, [], 0, set()
    seen: dict[int, int] = {}
    for last in play(network=network, trainer=Pulling(bad), rounds=200, **options):
        for client in last.round.selection.links.tolist():
            if last.round.outcome.responds[client] and client not in bad:
                pending[client] = (trainer.update(x, client), version)
        refused |= set(last.refused.tolist())
        (client,) = last.round.feedback.client.tolist()
        if client in pending:
            seen[client] = 10 + client
            waiting.append((client, *pending.pop(client)))
        if len(waiting) == buffer:
            known = sum(samples.values()) * (40 / len(samples) if memory == "zero" else 1.0) if samples else 1.0
            mean = sum(samples[n] * rows[n] for n in rows) / known if rows else np.zeros(3)
            unknown = mean if memory == "left-out" else np.zeros(3)
            step, usual = np.zeros(3), np.mean(list(seen.values()))
            for number, update, sent in waiting:
                weight = (10 + number) / usual * (1 + version - sent) ** -discount
                step += weight * (update - (rows.get(number, unknown) if memory else 0.0)) + (mean if memory else 0.0)
            for number in {number for number, *_ in waiting} if memory else ():
                rows[number] = np.mean([update for n, update, _ in waiting if n == number], axis=0)
                samples[number] = 10 + number
            x, version, waiting = x + step / 8, version + 1, []
        np.testing.assert_allclose(last.parameters["w"], x, atol=2e-3, rtol=2e-5)
    assert refused == set(bad)
    assert version > 100 / buffer


def test_ten_answers_move_the_model_as_far_whatever_the_buffer():
    ends = [list(play(rounds=81, places=FreePlaces(k)))[-1].parameters["w"] for k in (1, 4)]
    assert np.linalg.norm(ends[0] - ends[1]) < 0.25 * np.linalg.norm(ends[0])


WAYS = {
    "memory": {"memory": UpdateMemory(longest_age=3, dtype="float16")},
    "memory, Adam": {"memory": MEMORY, "server": ServerStep(0.1, momentum=0.9, adaptive=0.99)},
    "free places": {"places": FreePlaces(3, 0.5)},
    "free places, memory": {"places": FreePlaces(), "memory": MEMORY, "server": ServerStep(0.5, momentum=0.5)},
    "momentum": {"server": ServerStep(momentum=0.9)},
}


def everything(last):
    arrays = {**last.aggregation, **{f"model.{name}": value for name, value in last.parameters.items()}}
    return {name: np.array(value) for name, value in arrays.items()} | {"elapsed_s": np.array(last.elapsed_s)}


@pytest.mark.parametrize("way", WAYS)
def test_a_kill_leaves_model_and_memory_of_one_step(tmp_path, way):
    options, network = WAYS[way], VolatileNetwork(stay_s=20.0)
    policy = BySpeed() if "places" in options else Floor(beta=0.1)
    whole = [everything(last) for last in play(policy, network, **options)]
    run = play(policy, network, **options)
    start = killed(tmp_path / "run.npz", run, 5, policy=policy, environment=network)
    rest = [everything(last) for last in play(policy, network, start=start, **options)]
    assert len(rest) == ROUNDS - 5
    for one, two in zip(rest, whole[5:], strict=True):
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_a_checkpoint_without_the_memory_is_refused(tmp_path):
    start = killed(tmp_path / "run.npz", play(), 1, policy=Uniform(), environment=FlatNetwork())
    with pytest.raises(StateFileError, match="update memory"):
        next(play(start=start, memory=MEMORY))
    with pytest.raises(ConfigurationError, match="training in rounds"):
        next(play(start=start, places=FreePlaces()))
    with pytest.raises(ConfigurationError, match="no moment"):
        next(play(start=start, server=ServerStep(momentum=0.5)))


def test_a_comparison_in_free_places_with_memory(tmp_path):
    """Policies beside each other by the command's options; a killed run goes on, and tests count until the next."""
    from fedroster import compare
    from fedroster.lab.task import Task
    from fedroster.lab.trials.trial import Conditions, Trial

    task = Task("digits-logistic", samples_per_client=20, coupling=0.9, memory=True, free_places=True)
    found = compare(["by-speed", "random"], task=task, seeds=1, rounds=3)
    assert found.settings.rounds == 24  # fillings
    rounds = found.rounds.filter(found.rounds["policy"] == "by-speed")
    assert rounds["cohort_size"].sum() == 8 + 23
    assert rounds["accuracy"].is_nan().to_list() == [True] * 7 + [False] * 17  # tested after 8, 16 and 24 choices
    assert rounds["accuracy"].drop_nans().n_unique() <= 3
    trial = Trial("rbcs-f/table-1", "by-speed", 0, 24, task=task)
    whole = trial.run()
    stops = Conditions(checkpoint=tmp_path / "run.npz", stop_at=0.0)
    parts = 0
    while (run := trial.run(stops)) is None:
        parts += 1
    assert parts == 23
    np.testing.assert_array_equal(run.accuracy, whole.accuracy)
    np.testing.assert_array_equal(run.chosen, whole.chosen)
    np.testing.assert_allclose(run.round_time_s, whole.round_time_s)
