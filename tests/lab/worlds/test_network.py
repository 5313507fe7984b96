"""The network of real devices: its contract, its clock, drop-outs, and traces from files."""

import dataclasses
import math

import numpy as np
import pytest

from fedroster.core import parallel
from fedroster.core.errors import InvalidInputError, StateFileError
from fedroster.core.problem import Selection, Status
from fedroster.core.state import load_arrays, pack, save_arrays
from fedroster.core.streams import Streams
from fedroster.lab.worlds.network import TraceNetwork, exchange_times, round_key
from fedroster.policies import PowerOfChoice, Uniform
from fedroster.simulation import load_checkpoint, round_time, save_checkpoint, simulate
from fedroster.testing import EnvironmentContract
from variants import check_variant


class TraceContract(EnvironmentContract):
    rounds = 60

    def exogenous(self, context, outcome):
        """The cold start is history; devices, their sessions and answers are not, where rounds start at fixed times."""
        return {
            "available": context.available,
            "work": context.features[:, 0],
            "transfer": context.features[:, 2],
            "upload": outcome.expected_upload_s,
            "stay": outcome.stay_s,
        }


class TestTheClockMovesOnByTheRounds(TraceContract):
    def environment(self):
        return TraceNetwork(num_clients=200, cohort_size=5)

    def test_every_policy_meets_the_same_world(self):
        """Who was chosen decides when one looks, not what is there: at equal times the worlds are the same."""
        network = self.environment()
        state = network.init(rng=Streams(0).at("environment-init"))
        for round, (context, outcome, other) in enumerate(self._rounds(15, self._first), start=1):
            fresh = dataclasses.replace(state, time_s=other.time_s)
            again, same = network.observe(fresh, round, rng=Streams(9).at("environment", round))
            left, right = self.exogenous(context, outcome), self.exogenous(again, same)
            for name in left:
                np.testing.assert_array_equal(left[name], right[name])


@pytest.mark.parametrize(
    "network",
    [
        TraceNetwork(num_clients=300, cohort_size=7, deadline_s=600.0, round_interval_s=600.0, dropout=0.2),
        TraceNetwork(
            num_clients=40, cohort_size=3, noise=0.0, cold_start_s=0.0, deadline_s=100.0, round_interval_s=300.0
        ),
    ],
    ids=["drop-outs", "no noise"],
)
def test_rounds_at_fixed_times(network):
    check_variant(TraceContract, network)


PHONES = """client,time,available,compute,bandwidth
a,0,1,20,1
a,400,0,,
a,600,1,20,1
b,500,1,10,2
b,530,0,,
c,0,1,100,4
c,1000,0,,
"""


@pytest.fixture
def table(tmp_path):
    def write(text):
        (tmp_path / "phones.csv").write_text(text)
        return str(tmp_path / "phones.csv")

    return write


@pytest.fixture
def file(table):
    return table(PHONES)


def phones(file, **changes):
    settings = {"num_clients": 3, "cohort_size": 2, "traces": file, "resample": False, "start_time_s": 0.0}
    work = {"samples": 100, "download_bit": 3e6, "upload_bit": 1e6, "noise": 0.0}
    return TraceNetwork(**(settings | work | changes))


def start(network, seed=0):
    return network.init(rng=Streams(seed).at("environment-init"))


def look(network, state, round=1):
    return network.observe(state, round, rng=Streams(0).at("environment", round))


def test_times_by_hand(file):
    """3 x 100 samples at 20, 10 and 100 ms; a cold start of 1 s; 4 Mbit at 1, 2 and 4 Mbit/s, 1 Mbit of it up."""
    network = phones(file)
    context, outcome = look(network, start(network))
    np.testing.assert_allclose(context.features, [[6.0, 1.0, 4.0], [3.0, 1.0, 2.0], [30.0, 1.0, 1.0]])
    np.testing.assert_allclose(outcome.expected_time_s, [11.0, 6.0, 32.0])
    np.testing.assert_array_equal(outcome.exchange_time_s, outcome.expected_time_s)
    np.testing.assert_allclose(outcome.expected_upload_s, [1.0, 0.5, 0.25])
    assert context.available.tolist() == [True, False, True]
    assert outcome.responds.tolist() == [True, False, True]


def test_who_leaves_before_the_exchange_is_over_drops_out(file):
    network = phones(file)
    state = start(network)
    for time_s, available, responds in (
        (389.0, [True, False, True], [True, False, True]),  # 11 s are left, and 11 s are needed
        (390.0, [True, False, True], [False, False, True]),
        (524.0, [False, True, True], [False, True, True]),
        (525.0, [False, True, True], [False, False, True]),
        (995.0, [True, False, True], [True, False, True]),  # its session goes on across the end of the trace
        (1390.0, [True, False, True], [False, False, True]),
    ):
        context, outcome = look(network, dataclasses.replace(state, time_s=time_s))
        assert context.available.tolist() == available, time_s
        assert outcome.responds.tolist() == responds, time_s
        feedback = outcome.reveal(context, Selection(1, np.flatnonzero(context.available)))
        dropped = [Status.DROPPED if not responds[n] else Status.COMPLETED for n in np.flatnonzero(available)]
        assert feedback.status.tolist() == dropped


@pytest.mark.parametrize(
    ("time_s", "answered", "chosen", "status"),
    [
        (377.25, [0, 2], 0, Status.COMPLETED),  # 22.75 s are left: 11.75 s of waiting for client 2 and 11 s of exchange
        (377.5, [0, 2], 0, Status.DROPPED),
        (394.0, [0, 2], 0, Status.DROPPED),  # 6 s are left, and a poll needs 6 s
        (394.25, [2], 2, Status.COMPLETED),
    ],
)
def test_who_leaves_before_the_poll_is_over_gives_no_answer(file, time_s, answered, chosen, status):
    """Polls take 2 + 1 + 3 s and 10 + 1 + 0.75 s; client 0 is there until 400 s, and client 2 always."""
    network = phones(file, cohort_size=1, start_time_s=time_s)
    policy, asked = PowerOfChoice(variant="pow-d"), []

    def ask(context, links):
        asked.append(links.tolist())
        return 1.0 / (1.0 + links)  # client 0 is the most wanted

    played = next(simulate(policy, network, rounds=1, seed=0, ask=ask))
    assert asked == [answered]
    assert played.selection.polled.tolist() == [0, 2]
    assert played.selection.links.tolist() == [chosen]
    assert played.feedback.status.tolist() == [status]
    # The round waits for the answer that was due, and then for the exchange that was.
    assert played.time_s == 11.75 + {0: 11.0, 2: 32.0}[chosen]
    assert played.environment_state.time_s == time_s + played.time_s


def test_where_nobody_stays_for_a_poll_nobody_is_asked(table):
    rows = "a,0,1,20,1\na,1,0,,\nb,0,1,20,1\nb,1,0,,\nb,1000,0,,\n"
    network = phones(table(PHONES.partition("\n")[0] + "\n" + rows), num_clients=2, cohort_size=1)
    policy = PowerOfChoice(variant="pow-d")
    played = next(simulate(policy, network, rounds=1, seed=0, ask=lambda *_: pytest.fail("a client was asked")))
    assert played.selection.polled.tolist() == [0, 1]
    assert played.feedback.status.tolist() == [Status.DROPPED]


def test_the_clock_by_hand(file):
    network = phones(file)
    state = start(network)
    for round, (links, now) in enumerate([([0, 2], 0.0), ([0], 32.0), ([], 42.0), ([0], 342.0)], start=1):
        assert state.time_s == now
        context, _ = look(network, state, round)
        state = network.advance(state, context, Selection(round, np.array(links, np.int64)))
    # Client 0 was warm in round 2, and cold again in round 4.
    assert state.time_s == 353.0
    slow = phones(file, round_interval_s=60.0, deadline_s=20.0, idle_step_s=100.0)
    state = start(slow)
    for links, now in (([2], 60.0), ([], 160.0)):
        state = slow.advance(state, look(slow, state)[0], Selection(1, np.array(links, np.int64)))
        assert state.time_s == now


def test_the_clock_is_the_sum_of_the_round_times():
    network = TraceNetwork(num_clients=400, cohort_size=9, deadline_s=250.0, idle_step_s=77.0, dropout=0.3)
    now, waited = network.start_time_s, 0
    for played in simulate(Uniform(), network, rounds=40, seed=1):
        time_s = round_time(played.outcome, played.context, played.selection)
        now += 77.0 if played.selection.is_empty else time_s
        waited += time_s == 250.0
        assert played.environment_state.time_s == now
    assert 0 < waited < 40


def test_the_trace_repeats_or_stops(file):
    network = phones(file)
    state = start(network)
    once = look(network, dataclasses.replace(state, time_s=250.0))[0].available
    again = look(network, dataclasses.replace(state, time_s=77_250.0))[0].available
    assert np.array_equal(once, again)
    network = phones(file, at_end="stop")
    state = start(network)
    assert look(network, dataclasses.replace(state, time_s=999.0))[0].available.tolist() == [True, False, True]
    with pytest.raises(InvalidInputError, match="round 8"):
        look(network, dataclasses.replace(state, time_s=1000.0), 8)
    # There, a session at the end of the trace ends with it.
    assert look(network, dataclasses.replace(state, time_s=995.0))[1].responds.tolist() == [False, False, False]


def test_speeds_of_sessions(table):
    """A phone on two networks: the context follows."""
    rows = "a,10,1,10,1\na,50,1,20,8\na,90,0,,\na,100,0,,\n"
    network = phones(table(PHONES.partition("\n")[0] + "\n" + rows), num_clients=1, samples=1)
    state = start(network)
    slow, fast = [0.03, 1, 4.0], [0.06, 1, 0.5]
    for time_s, expected in ((10.0, slow), (49.0, slow), (50.0, fast), (5.0, fast)):
        context, outcome = look(network, dataclasses.replace(state, time_s=time_s))
        np.testing.assert_allclose(context.features[0], expected)
        assert outcome.responds[0] == (time_s != 5.0)  # one network after the other is one stay


def test_noise_is_uniform_and_new_in_every_round():
    client, features = np.arange(20_000), np.ones((20_000, 3))
    rounds = [
        exchange_times(client, features, cold_start_s=1.0, noise=0.5, key=round_key(11, round)) / 3.0
        for round in range(1, 5)
    ]
    for drawn in rounds:
        assert drawn.min() >= 0.5
        assert drawn.max() <= 1.5
        np.testing.assert_allclose(np.quantile(drawn, [0.1, 0.5, 0.9]), [0.6, 1.0, 1.4], atol=0.015)
        assert drawn.std() == pytest.approx(1.0 / math.sqrt(12.0), rel=0.02)
    correlation = np.corrcoef(rounds) - np.eye(4)
    assert np.abs(correlation).max() < 0.03
    assert abs(np.corrcoef(rounds[0][1:], rounds[0][:-1])[0, 1]) < 0.03
    assert (exchange_times(client, features, cold_start_s=1.0, noise=1.0, key=round_key(3, 1)) > 0.0).all()


def test_dropout_is_its_share_and_independent_of_the_times():
    network = TraceNetwork(num_clients=20_000, dropout=0.4, samples=1, download_bit=0.0, upload_bit=1.0)
    context, outcome = look(network, start(network))
    responds = outcome.responds[context.available]
    assert responds.mean() == pytest.approx(0.6, abs=0.04)
    late = (outcome.exchange_time_s / outcome.expected_time_s)[context.available]
    assert late[responds].mean() == pytest.approx(late[~responds].mean(), abs=0.01)
    assert not outcome.responds[~context.available].any()


def test_any_number_of_threads_gives_the_same(monkeypatch):
    network = TraceNetwork(num_clients=3000, dropout=0.3)
    state = start(network)
    context, outcome = look(network, state)
    monkeypatch.setattr(parallel, "MIN_ROWS_PER_THREAD", 100)
    monkeypatch.setattr(parallel, "num_threads", lambda: 3)
    again, same = look(network, state)
    np.testing.assert_array_equal(context.features, again.features)
    np.testing.assert_array_equal(context.available, again.available)
    for name in ("exchange_time_s", "expected_time_s", "expected_upload_s", "responds"):
        np.testing.assert_array_equal(getattr(outcome, name), getattr(same, name))


def test_the_state_is_small():
    state = start(TraceNetwork(num_clients=50_000))
    per_client = [a for a in pack(state).values() if a.shape[:1] == (50_000,)]
    assert sum(a.nbytes for a in per_client) == 33 * 50_000
    others = [a for a in pack(state).values() if a.shape[:1] != (50_000,)]
    assert sum(a.nbytes for a in others) < 8e6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_s", np.array(math.nan)),
        ("key", np.array(-5)),
        ("cold", np.ones(49, np.bool_)),
        ("fleet.device", np.full(50, 50)),
        ("fleet.device", np.full(50, -1)),
        ("fleet.by_session", np.array(True)),
        ("fleet.compute_s", np.ones(49)),
        ("table.sessions.offsets", np.arange(51) * 10**9),
        ("table.sessions.offsets", np.zeros(51, np.int64)),
        ("table.until_s", np.ones(3)),
    ],
)
def test_a_checkpoint_of_what_cannot_be_is_refused(tmp_path, name, value):
    """A device that there is not ended the process: kernels check no index."""
    network, file = TraceNetwork(num_clients=50, cohort_size=3), tmp_path / "run.npz"
    played = list(simulate(Uniform(), network, rounds=2, seed=0))[-1]
    who = {"policy": Uniform(), "environment": network, "seed": 0}
    save_checkpoint(file, played, **who)
    assert load_checkpoint(file, **who).round == 2
    arrays, header = load_arrays(file, kind="simulation")
    save_arrays(file, arrays | {f"environment.{name}": value}, header, kind="simulation")
    with pytest.raises(StateFileError):
        load_checkpoint(file, **who)
