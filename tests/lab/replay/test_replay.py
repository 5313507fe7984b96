"""What another policy would have made of a log's rounds."""

import io
import json
import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.replay import federation
from rich.console import Console

import fedroster.lab.replay
from commands import call
from fedroster import EdgeSelector, Floor, PartialPooling, Record, RoundRobin, Selector, Uniform
from fedroster.catalogue import make_policy
from fedroster.cli import terminal
from fedroster.core.problem import Selection, Status
from fedroster.core.protocols import Stateless
from fedroster.errors import InvalidInputError
from fedroster.lab.replay import MEASURES, replay
from fedroster.lab.replay.answers import Leaves, Pace, looks, read_waits
from fedroster.lab.replay.answers import expected as expected_times
from fedroster.lab.replay.estimates import Estimate, dry_run
from fedroster.lab.replay.history import read_history
from fedroster.lab.replay.modelled import Drawn, Fit
from fedroster.lab.replay.times import draw_times
from fedroster.networks.flat import FlatNetwork
from fedroster.record import Log
from lab.replay.logs import history, history_of, log_of


class Again(Stateless):
    """Chooses the log's own cohorts."""

    def __init__(self, chosen):
        self.chosen = chosen

    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.flatnonzero(self.chosen[context.round - 1]))


@pytest.fixture(scope="module")
def fit():
    return Fit(history_of(), draws=3, seed=0)


def test_a_policy_that_chooses_what_the_log_chose_meets_what_the_log_met(fit):
    history = fit.history
    played = fit.play(Again(history.chosen), 1)
    assert [one.length_s for one in played] == pytest.approx(history.round_s)
    assert all((one.status == Status.COMPLETED).all() for one in played)
    assert all((one.chosen == np.flatnonzero(row)).all() for one, row in zip(played, history.chosen, strict=True))


def test_the_column_that_says_who_was_chosen_before_follows_the_new_policy(fit):
    assert fit.cold == {1: (0.0, 1.0)}
    world = Drawn(fit, 0, None)
    world.look()
    world.end(np.arange(3), 5.0)
    assert world.look().features[:, 1].tolist() == (np.arange(12) >= 3).astype(float).tolist()


def test_times_are_those_of_the_network(fit):
    network = FlatNetwork(num_clients=12, cohort_size=4)
    drawn = draw_times(fit.history, 8, rng=np.random.default_rng(1))
    features = np.array([[0.9, 1.0, 7.0]])
    true = np.stack((network.train_time_s, network.cold_start_s, 1.0 / network.spectral_efficiency))
    for client in (0, 11):
        expected = float(features[0] @ true[:, network.client_class[client]])
        found = [times.means(np.array([client]), features)[0] for times in drawn]
        assert np.mean(found) == pytest.approx(expected, rel=0.35)
    assert all(times.ratios.mean() == pytest.approx(1.0) for times in drawn)
    assert np.mean([times.ratios.std() for times in drawn]) == pytest.approx(1.0 / math.sqrt(3.0), rel=0.1)
    missed = np.arange(fit.history.time_s.shape[0]) % 5 == 0  # of an exchange without a time, no ratio is known
    history = replace(fit.history, time_s=np.where(missed, np.nan, fit.history.time_s))
    (times,) = draw_times(history, 1, rng=np.random.default_rng(1))
    np.testing.assert_allclose(times.ratio * expected_times(history, times), history.time_s)


def test_leaves_are_read_off_the_log():
    available = np.array([[1, 1], [1, 0], [0, 0], [1, 1]], np.bool_)
    assert looks(available).tolist() == [[2, 1], [2, 1], [2, 2], [4, 4]]
    history = history_of(rounds=20)
    history = replace(history, at_s=np.array([0.0, 10.0, 20.0, 30.0]), available=available)
    leaves = Leaves(history)
    both = np.array([0, 1])
    # Client 0 is last seen at 10 s and gone at 20 s; client 1 goes between 0 s and 10 s.
    share = leaves.within(0, both, np.array([12.0, 5.0]))
    assert (share > [0.2, 0.5]).all()  # early rather than late
    assert (share < [0.4, 0.8]).all()
    assert leaves.within(0, both, np.array([20.0, 99.0])).tolist() == [1.0, 1.0]
    assert leaves.within(3, both, np.array([99.0, 99.0])).tolist() == [0.0, 0.0]


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
    status = np.where(lost, np.uint8(Status.DROPPED), np.uint8(Status.COMPLETED))
    times_s = np.where(lost, np.nan, time_s * rng.uniform(0.9, 1.1, lost.shape[0]))
    played = {"round": round, "client": client, "status": status, "time_s": times_s, "available": available}
    log = history(rounds, clients, cohort_size=8, at_s=at_s, round_s=np.full(rounds, time_s), **played)
    fit = Fit(log, draws=9, seed=0)
    drawn = np.mean([world.answers.sooner for world in fit.worlds])
    played = [fit.play(RoundRobin(), number) for number in range(9)]
    again = sum(np.count_nonzero(one.status != Status.COMPLETED) for run in played for one in run) / 9
    truth = sum(np.count_nonzero(~stays[at, one.chosen]) for run in played for at, one in enumerate(run)) / 9
    assert drawn < 0.95
    assert again == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize("waits_s", [0.0, 20.0])
def test_how_long_rounds_wait_for_lost_clients_is_told_from_what_they_take_anyway(waits_s):
    """Half of the rounds that waited for none take longer than usual, of 1 s and more beyond their exchanges."""
    rng, mean_s = np.random.default_rng(0), 1.0 + np.arange(12.0)
    client, lost = np.concatenate([rng.permutation(12)[:4] for _ in range(80)]), rng.random(320) < 0.05
    times_s = np.where(lost, 0.0, mean_s[client] * rng.lognormal(0.0, 0.3, 320))
    ends_s = np.where(lost, waits_s, times_s).reshape(80, 4).max(axis=1)
    status = np.where(lost, np.uint8(Status.DROPPED), np.uint8(Status.COMPLETED))
    played = {"round": np.repeat(np.arange(80), 4), "client": client, "status": status, "time_s": times_s}
    played |= {"round_s": ends_s + rng.lognormal(0.0, 0.2, 80), "at_s": 100.0 * np.arange(80), "cohort_size": 4}
    log = history(80, 12, available=np.ones((80, 12), np.bool_), **played)
    assert read_waits(log, mean_s[client]).lost_s == pytest.approx(waits_s, abs=0.2)


def test_clients_that_were_seldom_measured_widen_the_interval():
    """A policy that learns looks again at what looked fast; intervals of 90 % held the truth in 69 of 100 such logs."""
    network = FlatNetwork(num_clients=24, cohort_size=4, noise_shape="log-normal")
    wide, even = (
        next(one for one in replay(history_of(policy, rounds=50, network=network), {"random": Uniform()})[3:])
        for policy in ("rbcs-f:V=20", "random")
    )
    assert wide.measure == even.measure == "mean_round_time_s"
    assert math.log(wide.high / wide.low) > 2.0 * math.log(even.high / even.low)


def test_rounds_at_even_intervals_stay_so():
    at_s = np.arange(30) * 1800.0 + 5000.0 * (np.arange(30) > 20)  # and once they did not
    history = replace(history_of(rounds=30), at_s=at_s)
    assert Pace(history).next_s(3, 0.0, 70.0, empty=False) == pytest.approx(1800.0)


def test_idle_time_between_rounds_stays_where_it_was():
    history = history_of(rounds=60)
    nights_s = np.where(np.arange(60) % 10 == 9, 36000.0, np.random.default_rng(0).uniform(1.0, 9.0, 60))
    history = replace(history, at_s=history.at_s + np.concatenate(([0.0], np.cumsum(nights_s)[:-1])))
    played = Fit(history, draws=2, seed=0).play(RoundRobin(), 1)
    begun, ended = np.array([(one.at_s, one.at_s + one.length_s) for one in played]).T
    assert begun[1:] - ended[:-1] == pytest.approx(nights_s[:-1])


def test_estimates_have_all_measures_and_reasons():
    history = history_of(rounds=20)
    found = replay(history, {"floor": Floor(), "oort": make_policy("oort"), "it": Floor(beta=0.9)})
    for one in found[9:]:
        assert "beta" in one.refused
        assert math.isnan(one.estimate)
    found = found[:9]
    rows = [("random", "logged"), ("floor", "modelled"), ("oort", "modelled")]
    assert [(one.policy, one.kind, one.measure) for one in found] == [
        (*row, measure) for row in rows for measure in MEASURES
    ]
    assert found[0].low == found[0].estimate == found[0].high == pytest.approx(history.round_s.mean())
    for one in found:
        assert one.refused is None
        assert one.low <= one.estimate <= one.high
        assert one.lacks == (("losses",) if one.policy == "oort" else ())
        assert one.remark == ("it learns from losses, and a replay of this log has none" if one.lacks else "")


ROUNDS, NETWORK = 30, FlatNetwork(num_clients=16, cohort_size=4, dropout=0.05)
RULES = {
    "groups": {
        "few": {"clients": ["c?"], "least": 1, "most": 3},
        "some": {"clients": ["c11", "c12", "c13", "c14"], "least": 1},
    },
    "most_per_window": 2,
    "window": 5,
    "least_separation": 2,
}


def test_the_rules_of_a_log_are_played():
    """A replay that ignored them said 1.16 s (1.14 to 1.19) where a mean round took 3.56 s."""
    how, held = {"rounds": ROUNDS, "seed": 4, "rules": RULES, "idle_s": 20.0}, []
    turns = federation("round-robin", NETWORK, **how)
    for by in ("floor:beta=0.1", "random"):
        history = log_of(by, NETWORK, **how)
        own, *rest = replay(history, {by: make_policy(by), "round-robin": RoundRobin()})
        assert own.kind == "logged"
        for name, truth in ((by, federation(by, NETWORK, **how)), ("round-robin", turns)):
            found = [one for one in rest if one.policy == name and one.kind == "modelled"]
            true = np.mean(truth.lasted_s), truth.chosen.min() / ROUNDS, truth.missed
            assert found[0].estimate == pytest.approx(true[0], rel=0.2)
            held += [one.low <= is_true <= one.high for one, is_true in zip(found, true, strict=True)]
    assert sum(held) >= 11  # of 12 intervals of 90 %
    few = np.array([client in [f"c{number}" for number in range(10)] for client in history.ids])
    chosen = np.zeros((ROUNDS, 16), np.int64)
    for number, one in enumerate(Fit(history, draws=2, seed=0).play(RoundRobin(), 0)):
        chosen[number, one.chosen] = 1
        assert not one.begun or 1 <= few[one.chosen].sum() <= 3
    assert max(chosen[start : start + 5].sum(axis=0).max() for start in range(ROUNDS - 4)) <= 2
    assert (chosen[1:] + chosen[:-1]).max() == 1


def test_clients_that_fail_again_and_again_pause_in_a_replay_too():
    history = log_of("random", replace(NETWORK, dropout=0.0, availability=1.0), rounds=60, seed=1)
    never = history.client == 3
    status = np.where(never, np.uint8(Status.DROPPED), history.status)
    history = replace(history, status=status, time_s=np.where(never, np.nan, history.time_s))
    rounds = Fit(history, draws=2, seed=0).play(Uniform(), 1)
    count = np.bincount(np.concatenate([one.chosen for one in rounds]), minlength=16)
    assert count[3] < 0.7 * np.delete(count, 3).mean()


def test_a_deadline_shows_in_the_answers_of_a_federation():
    """Logs of federations do not tell of it."""
    how = {"rounds": 60, "seed": 2, "deadline_s": 9.0}
    history = log_of("random", NETWORK, **how)
    assert history.deadline_s == pytest.approx(9.0)
    truth = federation("round-robin", NETWORK, **how)
    time, _, misses = replay(history, {"round-robin": RoundRobin()})[3:]
    assert time.low <= np.mean(truth.lasted_s) <= time.high
    assert misses.low <= truth.missed <= misses.high


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"deadline_s": 7.0, "late": "dropped"}, "late count as dropped"),
        ({"needed": 3, "late": "dropped"}, "nearly every round ended with 3 answers"),
        ({"needed": 3}, "rounds did not end at a deadline"),
        ({"rounds": 10}, "10 rounds; expected at least 20"),
        ({"times_known": False}, "0 measured times"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(how, why):
    how = {"rounds": 30, "seed": 2, "times_known": True} | how
    known = how.pop("times_known")
    history = log_of("random", replace(NETWORK, dropout=0.0), **how)
    if not known:
        history = replace(history, time_s=np.full(history.time_s.shape, np.nan))
    found = replay(history, {"floor": Floor()})
    assert [one.kind for one in found] == ["logged"] * 3 + ["modelled"] * 3
    assert all(one.refused is None for one in found[:3])  # what it tells of itself is told all the same
    assert all(why in one.refused for one in found[3:])


def test_rounds_that_overlap_and_edge_servers_are_refused(tmp_path):
    selector = Selector(Uniform(), cohort_size=2, clients=range(4), observers=[Record(tmp_path / "a")])
    edges = EdgeSelector(
        PartialPooling(),
        cohort_size=2,
        clients=range(4),
        budgets={"a": 2.0, "b": 2.0},
        observers=[Record(tmp_path / "b")],
    )
    for _ in range(25):
        selector.select(at_most=1)
        edges.select()
    assert "overlap" in read_history(Log(tmp_path / "a")).flaw
    assert "2 servers" in read_history(Log(tmp_path / "b")).flaw
    for one in replay(Log(tmp_path / "b"), {"random": Uniform()})[3:]:
        assert "2 servers" in one.refused


def test_a_log_without_members_is_refused(tmp_path):
    selector = Selector(Uniform(), cohort_size=2, clients=["a"], observers=[Record(tmp_path)])
    selector.leave(["a"])
    selector.select()
    with pytest.raises(InvalidInputError, match="no round of the log has a member"):
        replay(Log(tmp_path), {"random": Uniform()})


@pytest.mark.parametrize("shape", ["uniform", "half-normal", "log-normal", "bimodal"])
def test_times_about_two_values_are_refused_and_no_others(shape):
    """Of 23 logs of bimodal times, 12 intervals held what they should."""
    network = FlatNetwork(num_clients=16, cohort_size=2, noise=0.9, noise_shape=shape)
    with pytest.raises(InvalidInputError, match="two values") if shape == "bimodal" else nullcontext():
        Fit(history_of("round-robin", rounds=120, network=network), draws=3, seed=0)


def test_dry_run_of_rules():
    history = log_of("random", NETWORK, rounds=40, seed=3, idle_s=100.0)
    own, before, after = dry_run(history, Uniform(), {"most_per_window": 1, "window": 8})
    assert own.mean_round_s == pytest.approx(before.mean_round_s, rel=0.1)
    assert before.slower == 0.0
    assert after.slower_ends[0] < after.slower < after.slower_ends[1]
    assert after.longest_wait_s < before.longest_wait_s  # turns are nearly in order
    assert own.not_begun == before.not_begun == 0.0
    least = {"least_cohort": 4, "least_separation": 4}
    assert dry_run(history, Uniform(), least)[2].not_begun > 0.1


def test_the_command_prints_one_array(tmp_path, monkeypatch):
    log, small = tmp_path / "log", ("--set", "num_clients=12", "--set", "cohort_size=4")
    call("simulate", "rbcs-f/table-1", *small, "--policy", "random", "--rounds", 20, "--record", log)
    rows = json.loads(call("replay", log, "--policy", "round-robin", "--json").stdout)
    keys = {"policy", "kind", "measure", "estimate", "low", "high", "rounds", "refused", "lacks"}
    assert all(row.keys() == keys for row in rows)
    assert {row["rounds"] for row in rows} == {20}
    table = io.StringIO()
    wide = Estimate(**rows[3] | {"policy": "x" * 40, "estimate": 1234.5})
    monkeypatch.setattr(fedroster.lab.replay, "replay", lambda *_: [wide])
    monkeypatch.setattr(terminal, "out", lambda: Console(width=80, file=table))
    call("replay", log, "--policy", "round-robin")
    for shown in (f"{wide.estimate:.4g}", f"{wide.low:.4g} to {wide.high:.4g}"):
        assert shown in table.getvalue()
    assert all(len(line) <= 80 for line in table.getvalue().splitlines())
