"""A plan meets its wish where one can, and says so where none can."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
from typer.testing import CliRunner

from fedroster import ConfigurationError
from fedroster.cli import app
from fedroster.study.plan_figure import trade_off_figure
from fedroster.study.planning import Exchanges, ScenarioWorld, Setting, Wish, plan, sentence


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


class TwoSpeeds:
    """Ten clients in turns, one in two slow: 1 s and 4 s; two places."""

    num_clients, cohort_size = 10, 2

    def rounds(self, policy: str, places: int, seed: int) -> Iterator[Exchanges]:
        order = np.arange(10)
        if not policy.startswith(("random", "round-robin")):
            order = np.concatenate([order[::2], order[1::2]])  # equals together
        for number in range(50):
            chosen = np.sort(np.roll(order, -number * places)[:places])
            yield Exchanges(chosen, np.where(chosen % 2, 4.0, 1.0), np.ones(places, np.bool_))


def test_the_shortest_setting_that_meets_the_wish_comes_first() -> None:
    wish = Wish(every_client=0.1, rounds_under_s=5.0, share=1.0)
    tried = plan(TwoSpeeds(), wish, seeds=[0, 1])
    assert tried[0].is_met
    assert tried[0].mean_round_s == min(each.mean_round_s for each in tried if each.is_met)
    assert tried[0].setting.policy.startswith(("floor", "rbcs-f"))
    assert sentence(tried, wish).startswith(str(tried[0].setting))
    assert "This held with each of 2 seeds" in sentence(tried, wish)


def test_what_cannot_be_met_is_said_with_the_nearest() -> None:
    wish = Wish(every_client=0.1, rounds_under_s=2.0, share=1.0)
    tried = plan(TwoSpeeds(), wish, seeds=[0])
    assert not any(each.is_met for each in tried)
    assert tried[0].lack(wish) == min(each.lack(wish) for each in tried) > 0.0
    assert sentence(tried, wish).startswith(f"None of the {len(tried)} settings")
    assert trade_off_figure(tried, wish).axes[0].get_xlabel() == "100% of the rounds end within, s"


def test_a_share_beyond_all_places_is_not_tried() -> None:
    tried = plan(TwoSpeeds(), Wish(every_client=0.5, rounds_under_s=2.0), seeds=[0])
    assert {each.setting.policy for each in tried} == {"random", "round-robin"}
    with pytest.raises(ConfigurationError, match="nothing can be tried"):
        plan(ScenarioWorld("rbcs-f/table-1", {}, num_rounds=10), Wish(0.5, 2.0), seeds=[0], only=["floor:beta=0.9"])


def test_a_plan_in_a_scenario_holds_there() -> None:
    world = ScenarioWorld("rbcs-f/table-1", {}, num_rounds=60)
    (best, *_) = plan(world, Wish(0.02, 1e6), seeds=[0], only=["random", "round-robin"])
    assert best.is_met
    assert best.setting == Setting(best.setting.policy, 4)
    with pytest.raises(ConfigurationError, match="has edge servers"):
        ScenarioWorld("cocs/mnist", {}, num_rounds=60)


def test_the_command() -> None:
    command = ["plan", "rbcs-f/table-1", "--every-client", "2%", "--rounds-under", "5min", "--rounds", "20"]
    few = ["--policy", "random", "--seeds", "0"]
    shown = CliRunner().invoke(app, [*command, *few, "--json"])
    assert shown.exit_code == 0
    rows = json.loads(shown.stdout)
    assert {row["setting"]["deadline_s"] for row in rows} == {None, 300.0}
    assert CliRunner().invoke(app, [*command, *few]).stdout.startswith("random")
    for wrong, what in (("often", "a share such as 5%"), ("105%", "every_client")):
        refused = CliRunner().invoke(app, [*command[:3], wrong, *command[4:]])
        assert refused.exit_code == 2
        assert what in refused.stderr
    late = CliRunner().invoke(app, [*command[:5], "soon"])
    assert "a time such as 600s" in late.stderr
