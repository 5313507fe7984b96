"""Free places in the simulator: the clock, who is at work, what comes back, and what a kill leaves."""

import numpy as np
import pytest

from fedroster import Floor, Uniform
from fedroster.core.state import pack
from fedroster.errors import ConfigurationError, StateFileError
from fedroster.lab.worlds.network import TraceNetwork
from fedroster.networks import FlatNetwork
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.networks.volatile import VolatileNetwork
from fedroster.policies import BySpeed, DivFL
from fedroster.simulation import Checkpoint, checkpoint_parts, restore_checkpoint, simulate
from fedroster.types import Status

NETWORKS = {
    "flat": FlatNetwork(num_clients=12, cohort_size=4),
    "drop-outs": FlatNetwork(num_clients=12, cohort_size=4, dropout=0.3),
    "volatile": VolatileNetwork(num_clients=12, cohort_size=4, stay_s=20.0),
    "traces": TraceNetwork(num_clients=40, cohort_size=4),
    "deadline": TraceNetwork(num_clients=40, cohort_size=4, deadline_s=40.0),
}


def play(policy=None, network=NETWORKS["flat"], rounds=80, **options):
    return simulate(policy or Uniform(), network, rounds=rounds, seed=5, free_places=True, **options)


@pytest.mark.parametrize("name", NETWORKS)
def test_answers_come_in_the_order_of_the_clock(name):
    """Every round against a plain list of clients at work."""
    network, work, now, statuses = NETWORKS[name], {}, 0.0, set()
    for round in play(BySpeed(), network):
        clients = round.selection.links
        assert not set(clients.tolist()) & set(work)
        assert not round.context.available[list(work)].any()
        assert len(work) + len(clients) <= 4
        free = 4 - len(work)
        assert len(clients) == min(free, np.count_nonzero(round.context.available))
        for client in clients.tolist():
            took = min(round.outcome.exchange_time_s[client], round.outcome.deadline_s)
            work[client] = (now + took, round.number, bool(round.outcome.in_time[client]), took)
        if not work:
            assert round.feedback.client.size == 0
            now += round.time_s
            continue
        first = min(work, key=work.get)
        due, sent, in_time, took = work.pop(first)
        assert round.feedback.client.tolist() == [first]
        assert (round.feedback.round, round.feedback.staleness) == (sent, round.number - sent)
        assert round.time_s == pytest.approx(due - now)
        now = due
        statuses.add(int(round.feedback.status[0]))
        assert (round.feedback.status[0] == Status.COMPLETED) == in_time
        if in_time:
            assert round.feedback.exchange_time_s[0] == pytest.approx(took)
    assert Status.COMPLETED in statuses
    assert (Status.DROPPED in statuses) or name in ("flat", "traces", "deadline")
    assert (Status.LATE in statuses) == (name == "deadline")


def test_a_client_is_warm_if_it_worked_in_the_last_round_of_the_network():
    network = FlatNetwork(num_clients=12, cohort_size=4, availability=1.0)
    began = []
    for round in play(network=network):
        if len(began) >= 4:
            blocks = len(began) // 4
            warm = set(began[4 * (blocks - 1) : 4 * blocks])
            assert set(np.flatnonzero(round.context.features[:, 1] == 0.0)) == warm
        began += round.selection.links.tolist()


def test_traces_go_by_the_clock():
    network, elapsed = NETWORKS["traces"], 0.0
    for round in play(network=network):
        elapsed += round.time_s
        assert round.environment_state.time_s == pytest.approx(network.start_time_s + elapsed)


@pytest.mark.parametrize("name", ["volatile", "traces"])
def test_a_killed_run_goes_on_with_those_at_work(name):
    network, policy = NETWORKS[name], BySpeed()
    whole, saved = [], None
    for round in play(policy, network, rounds=30):
        if round.number == 11:
            arrays, header = checkpoint_parts(round, policy=policy, environment=network, seed=5)
            saved = {key: np.array(value) for key, value in arrays.items()}
        whole.append(
            (round.selection.links.tolist(), round.feedback.client.tolist(), round.time_s, pack(round.at_work))
        )
    start = restore_checkpoint(saved, header, "run", policy=policy, environment=network, seed=5)
    assert start.at_work.client.shape == (3,)
    for round, (links, clients, time_s, at_work) in zip(
        play(policy, network, rounds=30, start=start), whole[11:], strict=True
    ):
        assert (round.selection.links.tolist(), round.feedback.client.tolist()) == (links, clients)
        assert round.time_s == time_s
        for key, value in pack(round.at_work).items():
            np.testing.assert_array_equal(value, at_work[key])


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("client", lambda old: old + 10**6, "a client at work is none, or twice"),
        ("client", lambda old: old * 0, "a client at work is none, or twice"),
        ("status", lambda old: old[:-1], "differ in shape"),
        ("measured", lambda old: old[:, :3], "differ in shape"),
        ("features", lambda old: old[:, :2], "differ in shape"),
        ("due_s", lambda old: old * np.nan, "due_s"),
        ("now_s", lambda old: old * np.nan, "now_s"),
        ("begun", lambda old: old - 10**6, "begun"),
    ],
)
def test_impossible_clients_at_work_are_refused(name, change, said):
    """The first one was accepted, and ended the run in an IndexError."""
    network, policy = NETWORKS["flat"], Floor(beta=0.1)
    *_, last = play(policy, network, rounds=11)
    arrays, header = checkpoint_parts(last, policy=policy, environment=network, seed=5)
    arrays[f"at-work.{name}"] = np.asarray(change(arrays[f"at-work.{name}"]))
    with pytest.raises(StateFileError, match=said):
        restore_checkpoint(arrays, header, "run", policy=policy, environment=network, seed=5)


@pytest.mark.parametrize("free_places", [True, False])
def test_a_run_goes_on_as_it_began(free_places):
    """Clients at work were lost, without a word."""
    *_, last = simulate(Uniform(), NETWORKS["flat"], rounds=5, seed=5, free_places=free_places)
    start = Checkpoint(last.number, last.policy_state, last.environment_state, last.at_work)
    with pytest.raises(ConfigurationError, match="one has free places"):
        next(simulate(Uniform(), NETWORKS["flat"], rounds=9, seed=5, start=start, free_places=not free_places))


def test_several_servers_and_signatures_have_no_free_places():
    for how in ({"network": HierarchicalNetwork()}, {"policy": DivFL()}):
        with pytest.raises(ConfigurationError, match=r"expected one server, and a policy .* without signatures"):
            next(play(**how))


def test_a_rate_is_owed_once_for_as_many_choices_as_there_are_places():
    counts = np.zeros(12)
    network = FlatNetwork(num_clients=12, cohort_size=4, availability=1.0)
    for round in play(Floor(beta=0.3), network, rounds=397):
        counts[round.selection.links] += 1
    assert counts.sum() == 400
    assert counts.min() >= 0.3 * 100 - 3  # 12 clients at 0.3 a choice would owe 3.6 times what there is
