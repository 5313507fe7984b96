"""A plan meets its wish where one can, and says so where none can."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedroster.cli import app, terminal
from fedroster.errors import ConfigurationError, InvalidInputError
from fedroster.lab import planning
from fedroster.lab.pages.charts import data_of
from fedroster.lab.pages.plan_figure import trade_off_figure
from fedroster.lab.planning import Exchanges, LogWorld, ScenarioWorld, Setting, Wish, plan, sentence
from fedroster.lab.replay.modelled import Fit
from lab.replay.logs import history_of


def exchanges(*times_s: float, lost: tuple[int, ...] = ()) -> Exchanges:
    responds = np.array([place not in lost for place in range(len(times_s))])
    return Exchanges(np.arange(len(times_s)), np.array(times_s), responds)


@pytest.mark.parametrize(
    ("needed", "deadline_s", "lost", "length", "used"),
    [
        (3, math.inf, (), 9.0, [0, 1, 2]),  # all of them
        (2, math.inf, (), 5.0, [0, 1]),  # the first two of three
        (3, 6.0, (), 6.0, [0, 1]),  # the deadline comes first
        (2, math.inf, (0,), 9.0, [1, 2]),  # the next one takes the lost one's place
        (3, math.inf, (2,), 9.0, [0, 1]),  # that one is lost shows when its answer was due
        (2, 4.0, (0, 1, 2), 4.0, []),
    ],
)
def test_when_a_round_ends(
    needed: int, deadline_s: float, lost: tuple[int, ...], length: float, used: list[int]
) -> None:
    end_s, clients = exchanges(2.0, 5.0, 9.0, lost=lost).end(needed, deadline_s)
    assert (end_s, clients.tolist()) == (length, used)


def test_a_round_without_clients_takes_no_time() -> None:
    assert exchanges().end(3, math.inf)[0] == 0.0


def test_what_rounds_take_beyond_their_exchanges_comes_after_the_deadline() -> None:
    played = replace(exchanges(2.0, 5.0, 9.0), overhead_s=0.5)
    assert [played.end(3, deadline_s)[0] for deadline_s in (math.inf, 6.0)] == [9.5, 6.5]


class TwoSpeeds:
    """Ten clients in turns, one in two slow: 1 s and 4 s; two places."""

    num_clients, cohort_size = 10, 2
    overhead_s, doubt, trials, remark = 0.5, 0.0, "seeds", ""

    def rounds(self, policy: str, places: int, seed: int) -> Iterator[Exchanges]:
        order = np.arange(10)
        if not policy.startswith(("random", "round-robin")):
            order = np.concatenate([order[::2], order[1::2]])  # equals together
        for number in range(50):
            chosen = np.sort(np.roll(order, -number * places)[:places])
            yield Exchanges(chosen, np.where(chosen % 2, 4.0, 1.0), np.ones(places, np.bool_))


def test_the_shortest_setting_that_meets_the_wish_comes_first() -> None:
    wish = Wish(every_client=0.1, rounds_under_s=5.0, share=1.0)
    found = plan(TwoSpeeds(), wish, seeds=[0, 1])
    tried = found.tried
    assert tried[0].is_met
    assert {each.setting.deadline_s for each in tried} == {math.inf, 4.5}  # the overhead comes on top
    assert tried[0].mean_round_s == min(each.mean_round_s for each in tried if each.is_met)
    assert tried[0].setting.policy.startswith(("floor", "rbcs-f"))
    assert sentence(found, wish).startswith(str(tried[0].setting))
    assert "This held in 2 of 2 seeds" in sentence(found, wish)


def test_what_cannot_be_met_is_said_with_the_nearest() -> None:
    wish = Wish(every_client=0.1, rounds_under_s=2.0, share=1.0)
    found = plan(TwoSpeeds(), wish, seeds=[0])
    tried = found.tried
    assert not any(each.is_met for each in tried)
    assert tried[0].lack(wish) == min(each.lack(wish) for each in tried) > 0.0
    assert sentence(found, wish).startswith(f"None of the {len(tried)} settings")
    data = data_of(trade_off_figure(tried, wish))
    assert set(data["setting"]) == {str(each.setting) for each in tried}
    assert data["y"][0] == pytest.approx(100.0 * tried[0].least_share)


def test_a_share_beyond_all_places_is_not_tried() -> None:
    tried = plan(TwoSpeeds(), Wish(every_client=0.5, rounds_under_s=2.0), seeds=[0]).tried
    assert {each.setting.policy for each in tried} == {"random", "round-robin"}
    with pytest.raises(ConfigurationError, match="no setting can be tried"):
        plan(ScenarioWorld("rbcs-f/table-1", {}, rounds=10), Wish(0.5, 2.0), seeds=[0], only=["floor:beta=0.9"])


def test_a_plan_in_a_scenario_holds_there() -> None:
    world = ScenarioWorld("rbcs-f/table-1", {}, rounds=60)
    (best, *_) = plan(world, Wish(0.02, 1e6), seeds=[0], only=["random", "round-robin"]).tried
    assert best.is_met
    assert best.setting == Setting(best.setting.policy, 4)
    with pytest.raises(ConfigurationError, match="has edge servers"):
        ScenarioWorld("cocs/mnist", {}, rounds=60)


def test_a_plan_from_a_log_says_what_one_in_its_world_says() -> None:
    """Of logs by a random policy: what other settings would have made of the same rounds is known here."""
    wish, only, rounds = Wish(0.1, 14.0), ["random", "floor:beta=0.1", "rbcs-f:V=1,beta=0.1"], 150
    world = ScenarioWorld("rbcs-f/table-1", {"num_clients": "12", "cohort_size": "4"}, rounds=rounds)
    told, truth = [], []
    for seed in (3, 5, 8):
        logged = LogWorld(history_of("random", rounds=rounds, seed=seed), num_worlds=7)
        found = plan(logged, wish, seeds=range(7), only=only)
        told.append({str(each.setting): each for each in found.tried})
        truth.append({str(each.setting): each for each in plan(world, wish, seeds=[seed], only=only).tried})
        assert told[-1].keys() == truth[-1].keys()
        assert len(found.tried) == 18
        assert "The log has 150 rounds. The fitted worlds make them" in sentence(found, wish)
        if seed == 3:
            best = truth[-1][str(found.tried[0].setting)]
            assert best.mean_round_s <= 1.05 * min(each.mean_round_s for each in truth[-1].values() if each.is_met)
    for what, most in (("least_share", 0.25), ("round_s", 0.15), ("mean_round_s", 0.1)):
        held = []
        for setting in told[0]:
            says = [(getattr(each[setting], what), getattr(each[setting], f"{what}_ends")) for each in told]
            true = [getattr(each[setting], what) for each in truth]
            held += [low - 1e-9 <= is_true <= high + 1e-9 for (_, (low, high)), is_true in zip(says, true, strict=True)]
            # A tenth of the rounds of one log are few: the mean over the logs is judged.
            mean = np.mean([value for value, _ in says])
            assert mean == pytest.approx(np.mean(true), rel=most, abs=0.03), (setting, what)
        assert np.mean(held) >= 0.8, what


def test_what_a_log_cannot_tell_is_refused() -> None:
    history = history_of("random", rounds=40)
    world = LogWorld(history, num_worlds=2)
    wish = Wish(0.0, 14.0)
    with pytest.raises(ConfigurationError, match="knows true times, which no log has"):
        plan(world, wish, seeds=[0, 1], only=["fedcs"])
    many = plan(world, wish, seeds=[0, 1], only=["random", "floor:beta=0.3"])
    assert {each.setting.policy for each in many.tried} >= {"random"}
    assert all("beta" in why for why in many.refused.values())
    unknown = history.client >= 8  # a third of the clients never answered
    history = replace(history, time_s=np.where(unknown, np.nan, history.time_s))
    with pytest.raises(ConfigurationError, match="were never measured in the log"):
        plan(LogWorld(history, num_worlds=2), wish, seeds=[0, 1], only=["random"])


@pytest.mark.parametrize(("wrong", "by_chance", "refused"), [(0.2, 0.01, True), (0.2, 0.1, False), (0.1, 0.01, False)])
def test_a_log_that_the_model_cannot_follow_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: float, by_chance: float, refused: bool
) -> None:
    class Off(Fit):
        def logged_again(self, number: int) -> float:
            return float(self.durations_s.mean() * math.exp(wrong + by_chance * (-1.0) ** number / math.sqrt(2.0)))

    monkeypatch.setattr(planning, "Fit", Off)
    history = history_of("random", rounds=40)
    if refused:
        with pytest.raises(InvalidInputError, match=r"take 1\.22 times as long for its own rounds"):
            LogWorld(history, num_worlds=2)
    else:
        world = LogWorld(history, num_worlds=2)
        assert world.doubt == pytest.approx(0.5 * wrong)
        assert f"make them {math.exp(wrong) - 1.0:+.1%} longer" in world.remark


def test_a_client_that_came_late_has_its_share_of_its_own_rounds() -> None:
    members = np.ones((60, 12), np.bool_)
    members[:30, 0] = members[:50, 1] = False  # client 1 is a member for too few rounds to have a share
    history = history_of("round-robin", rounds=60)
    history = replace(history, members=members, available=history.available & members)
    (tried, *_) = plan(LogWorld(history, num_worlds=2), Wish(0.25, 1e3), seeds=[0, 1], only=["round-robin"]).tried
    assert tried.least_share >= 0.25


def test_the_command_takes_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    made = ["simulate", "rbcs-f/table-1", "--policy", "random", "--seeds", "0", "--rounds", "30", "--record", str(log)]
    assert CliRunner().invoke(app, made).exit_code == 0
    command = ["plan", str(log), "--every-client", "2%", "--rounds-under", "5min", "--policy", "random"]
    shown = CliRunner().invoke(app, [*command, "--seeds", "0-1", "--json"])
    assert shown.exit_code == 0
    (row, *_) = json.loads(shown.stdout)
    assert row["num_seeds"] == 2
    assert row["mean_round_s_ends"][0] < row["mean_round_s"] < row["mean_round_s_ends"][1]
    refused = CliRunner().invoke(app, [*command, "--rounds", "50"])
    assert refused.exit_code == 2
    assert "has its own rounds" in refused.stderr


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["plan", "rbcs-f/table-1", "--every-client", "2%", "--rounds-under", "5min", "--rounds", "20"]
    few = ["--policy", "random", "--seeds", "0"]
    shown = CliRunner().invoke(app, [*command, *few, "--json"])
    assert shown.exit_code == 0
    rows = json.loads(shown.stdout)
    assert {row["setting"]["deadline_s"] for row in rows} == {None, 300.0}
    table = io.StringIO()
    monkeypatch.setattr(terminal, "out", lambda: Console(width=80, file=table))
    assert CliRunner().invoke(app, [*command, *few]).stdout.startswith("random")
    lines = table.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for row in rows:  # settings may be broken into lines, numbers are not cut
        numbers = (
            f"{row['least_share']:.1%}",
            f"{row['mean_round_s']:.3g}",
            f"{row['updates']:.3g}",
            f"{row['wasted']:.0%}",
        )
        assert any(all(number in line.split() for number in numbers) for line in lines)
    for wrong, what in (("often", "a share such as 5%"), ("105%", "every_client")):
        refused = CliRunner().invoke(app, [*command[:3], wrong, *command[4:]])
        assert refused.exit_code == 2
        assert what in refused.stderr
    late = CliRunner().invoke(app, [*command[:5], "soon"])
    assert "a time such as 600s" in late.stderr
