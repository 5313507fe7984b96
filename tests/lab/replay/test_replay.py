"""What another policy would have made of a log's rounds."""

import html
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedroster.lab.replay
from fedroster import Floor, RoundRobin, Uniform
from fedroster.cli import app, terminal
from fedroster.core.errors import InvalidInputError
from fedroster.core.problem import Selection, Status
from fedroster.core.protocols import Stateless
from fedroster.lab.replay import MEASURES, replay
from fedroster.lab.replay.answers import Leaves, looks
from fedroster.lab.replay.clock import read_clock
from fedroster.lab.replay.history import History, read_history
from fedroster.lab.replay.modelled import Fit
from fedroster.lab.replay.times import draw_times
from fedroster.networks.flat import FlatNetwork
from fedroster.record import Log
from fedroster.simulation import simulate
from lab.replay.logs import history_of, log_of


class Again(Stateless):
    """Chooses the log's own cohorts."""

    def __init__(self, chosen):
        self.chosen = chosen

    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.flatnonzero(self.chosen[context.round - 1]))


@pytest.fixture(scope="module")
def history():
    return history_of()


@pytest.fixture(scope="module")
def fit(history):
    return Fit(history, draws=3, seed=0)


def test_a_policy_that_chooses_what_the_log_chose_meets_what_the_log_met(history, fit):
    played = fit.play(Again(history.chosen), 1)
    assert played.round_s == pytest.approx(history.round_s)
    assert played.missed == 0
    assert (played.chosen == history.chosen.sum(axis=0)).all()


def test_the_column_that_says_who_was_chosen_before_follows_the_new_policy(fit):
    assert fit.cold == {1: (0.0, 1.0)}
    warm = np.arange(12) < 3
    assert fit._context(5, 5, warm).features[:, 1].tolist() == (~warm).astype(float).tolist()


def test_times_are_those_of_the_network(history):
    network, drawn = FlatNetwork(num_clients=12, cohort_size=4), draw_times(history, 8, rng=np.random.default_rng(1))
    features = np.array([[0.9, 1.0, 7.0]])
    true = np.stack((network.train_time_s, network.cold_start_s, 1.0 / network.spectral_efficiency))
    for client in (0, 11):
        expected = float(features[0] @ true[:, network.client_class[client]])
        found = [times.means(np.array([client]), features, 0)[0] for times in drawn]
        assert np.mean(found) == pytest.approx(expected, rel=0.35)
    assert all(times.ratios.mean() == pytest.approx(1.0) for times in drawn)
    assert np.mean([times.ratios.std() for times in drawn]) == pytest.approx(1.0 / math.sqrt(3.0), rel=0.1)
    assert all(times.level.size == 1 for times in drawn)


def test_drift_is_found_and_followed():
    network = FlatNetwork(num_clients=12, cohort_size=6, drift=1.0, drift_rounds=100.0, noise=0.3)
    history = history_of(rounds=200, network=network)
    times = draw_times(history, 2, rng=np.random.default_rng(1))[0]
    assert times.level.shape == (200, 12)
    assert times.level.std() > 0.3


def test_leaves_are_read_off_the_log():
    available = np.array([[1, 1], [1, 0], [0, 0], [1, 1]], np.bool_)
    assert looks(available).tolist() == [[2, 1], [2, 1], [2, 2], [4, 4]]
    history = history_of(rounds=20)
    history = replace(history, at_s=np.array([0.0, 10.0, 20.0, 30.0]), available=available)
    leaves = Leaves(history)
    both = np.array([0, 1])
    # Client 0 is last seen at 10 s and gone at 20 s; client 1 goes between 0 s and 10 s.
    share = leaves.within(0, both, 0.0, np.array([12.0, 5.0]))
    assert (share > [0.2, 0.5]).all()  # early rather than late
    assert (share < [0.4, 0.8]).all()
    assert leaves.within(0, both, 0.0, np.array([20.0, 99.0])).tolist() == [1.0, 1.0]
    drawn = leaves.draw(1.0, rng=np.random.default_rng(0))
    assert drawn.at(0, 0.0).tolist() == [True, True]
    assert drawn.at(1, 19.999).tolist() == [False, False]
    assert (10.0 < drawn.until(0, both)[0] < 20.0, 0.0 < drawn.until(0, both)[1] < 10.0) == (True, True)
    assert (drawn.at(2, 20.0).tolist(), drawn.at(2, 29.999).tolist()) == ([False, False], [True, True])
    assert leaves.within(3, both, 30.0, np.array([99.0, 99.0])).tolist() == [0.0, 0.0]


def test_visits_that_are_short_or_long_lose_as_many_answers_as_the_log_shows():
    rng, rounds, clients, gap_s, time_s = np.random.default_rng(5), 150, 40, 300.0, 30.0
    at_s = gap_s * np.arange(rounds)
    available, stays = np.zeros((rounds, clients), np.bool_), np.zeros((rounds, clients), np.bool_)
    for client in range(clients):
        now_s = -2000.0
        while now_s < at_s[-1]:  # away, then there for a moment or for long
            now_s += rng.exponential(300.0)
            until_s = now_s + rng.exponential(40.0 if rng.random() < 0.7 else 3000.0)
            available[:, client] |= (at_s >= now_s) & (at_s < until_s)
            stays[:, client] |= (at_s >= now_s) & (at_s + time_s < until_s)
            now_s = until_s
    chosen = [rng.permutation(np.flatnonzero(row))[:8] for row in available]
    client, round = np.concatenate(chosen), np.repeat(np.arange(rounds), [row.shape[0] for row in chosen])
    lost = ~stays[round, client]
    log = History(
        at_s=at_s,
        round_s=np.full(rounds, time_s),
        deadline_s=np.full(rounds, np.inf),
        places=np.full(rounds, 8),
        members=np.ones((rounds, clients), np.bool_),
        available=available,
        features=np.ones((rounds, clients, 1)),
        round=round,
        client=client,
        status=np.where(lost, np.uint8(Status.DROPPED), np.uint8(Status.COMPLETED)),
        time_s=np.where(lost, np.nan, time_s * rng.uniform(0.9, 1.1, lost.shape[0])),
    )
    fit = Fit(log, draws=19, seed=0)
    drawn = np.mean([world.answers.sooner for world in fit.worlds])
    again = np.mean([fit.play(RoundRobin(), number).missed for number in range(19)])
    assert drawn < 0.95
    assert again == pytest.approx(lost.sum(), rel=0.2)


def test_clients_that_were_seldom_measured_widen_the_interval():
    """A policy that learns looks again at what looked fast; intervals of 90 % held the truth in 69 of 100 such logs."""
    network = FlatNetwork(num_clients=24, cohort_size=4, noise_shape="log-normal")
    wide, even = (
        next(one for one in replay(history_of(policy, rounds=80, network=network), {"random": Uniform()}))
        for policy in ("rbcs-f:V=20", "random")
    )
    assert wide.measure == even.measure == "mean_round_time_s"
    assert math.log(wide.high / wide.low) > 2.0 * math.log(even.high / even.low)


@pytest.mark.parametrize("by_time", [True, False])
def test_whether_clients_come_and_go_by_time_shows(by_time):
    rng = np.random.default_rng(3)
    gap_s = rng.uniform(5.0, 60.0, 299)
    available = np.zeros((300, 30), np.bool_)
    for index in range(1, 300):
        chance = 1.0 - np.exp(-gap_s[index - 1] / 300.0) if by_time else 0.1
        available[index] = available[index - 1] ^ (rng.random(30) < chance)
    at_s = np.concatenate(([0.0], np.cumsum(gap_s)))
    history = replace(history_of(rounds=20), at_s=at_s, available=available)
    clock = read_clock(history, np.append(gap_s, 1.0))
    assert clock.by_time == by_time
    assert clock.next_s(0.0, 7.0, empty=False) == pytest.approx(7.0)
    assert clock.index(5, float(at_s[9]) + 0.1) == (9 if by_time else 5)


def test_rounds_at_even_intervals_stay_so():
    history = replace(history_of(rounds=30), at_s=np.arange(30) * 1800.0)
    clock = read_clock(history, np.full(30, 50.0))
    assert clock.next_s(0.0, 70.0, empty=False) == pytest.approx(1800.0)


def test_estimates_have_all_measures_and_reasons(history):
    found = replay(history, {"floor": Floor(), "random": Uniform()})
    assert [(one.policy, one.kind, one.measure) for one in found] == [
        (name, "modelled", measure) for name in ("floor", "random") for measure in MEASURES
    ]
    for one in found:
        assert one.refused is None
        assert one.low <= one.estimate <= one.high
        assert one.effective_sample_size > 0.0


def test_misses_are_those_of_the_policy_that_is_replayed():
    network = FlatNetwork(num_clients=12, cohort_size=4, dropout=0.25)
    found = replay(history_of("round-robin", rounds=120, network=network), {"random": Uniform()})
    played = simulate(Uniform(), network, rounds=120, seed=0)
    truth = sum(np.count_nonzero(one.feedback.status != Status.COMPLETED) for one in played)
    (misses,) = (one for one in found if one.measure == "deadline_misses")
    assert misses.low <= truth <= misses.high


def test_what_cannot_be_promised_is_refused(history):
    for one in replay(history, {"it": Floor(beta=0.9)}):
        assert "beta" in one.refused
        assert math.isnan(one.estimate)


def test_logs_that_a_replay_does_not_know_are_refused():
    logged = log_of(rounds=25)
    with pytest.raises(InvalidInputError, match="10 rounds; expected at least 20"):
        read_history(logged[:10], num_clients=12)
    logged[3].servers = np.ones(4, np.int64)
    with pytest.raises(InvalidInputError, match="several servers"):
        read_history(logged, num_clients=12)
    logged[3].servers, logged[4].excluded = None, {"busy": np.array([1])}
    with pytest.raises(InvalidInputError, match="overlap"):
        read_history(logged, num_clients=12)
    for one in (rest := log_of(rounds=25)):
        one.status[:] = Status.DROPPED
        one.exchange_time_s[:] = np.nan
    found = replay(read_history(rest, num_clients=12), {"random": Uniform()})
    assert len(found) == 3
    assert all("0 measured times" in one.refused for one in found)


def test_the_command_prints_one_array(tmp_path, monkeypatch):
    call = CliRunner().invoke
    small = ["--set", "num_clients=12", "--set", "cohort_size=4"]
    made = call(
        app,
        [
            "simulate",
            "rbcs-f/table-1",
            *small,
            "--policy",
            "random",
            "--rounds",
            "30",
            "--record",
            str(tmp_path / "log"),
        ],
    )
    assert made.exit_code == 0, made.output
    result = call(app, ["replay", str(tmp_path / "log"), "--policy", "round-robin", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    keys = {"policy", "kind", "measure", "estimate", "low", "high", "rounds", "effective_sample_size", "refused"}
    assert all(row.keys() == keys for row in rows)
    assert {row["rounds"] for row in rows} == {30}
    page, table = tmp_path / "page", io.StringIO()
    assert call(app, ["replay", str(tmp_path / "log"), "--policy", "round-robin", "--out", str(page)]).exit_code == 0
    wide = replace(replay(Log(tmp_path / "log"), {"round-robin": RoundRobin()})[0], policy="x" * 40, estimate=1234.5)
    monkeypatch.setattr(fedroster.lab.replay, "replay", lambda *_: [wide])
    monkeypatch.setattr(terminal, "out", lambda: Console(width=80, file=table))
    assert call(app, ["replay", str(tmp_path / "log"), "--policy", "round-robin"]).exit_code == 0
    for shown in (f"{wide.estimate:.4g}", f"{wide.low:.4g} to {wide.high:.4g}"):
        assert shown in table.getvalue()
    assert all(len(line) <= 80 for line in table.getvalue().splitlines())
    text = html.unescape((page / "report.html").read_text())
    (time,) = [row for row in rows if row["measure"] == "mean_round_time_s"]
    assert f"{time['estimate']:.3g} s under round-robin ({time['low']:.3g} to {time['high']:.3g})" in text
    assert all(row["refused"] in text for row in rows if row["refused"] is not None)
