"""``fedroster choose`` recommends what the guide says, and what it prints runs."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from fedroster import ConfigurationError, make_policy, make_scenario
from fedroster.cli import app
from fedroster.guide import Aim, advise

AIMS = get_args(Aim)


@pytest.mark.parametrize("aim", AIMS)
def test_the_code_runs_and_the_policy_is_of_the_catalogue(aim: Aim) -> None:
    advice = advise(aim, num_clients=40, cohort_size=8)
    setting, told = advice.code.split("selector.observe", 1)
    space = {"ids": [f"client-{number}" for number in range(40)]}
    exec(setting, space)
    space["seconds"] = dict.fromkeys(space["cohort"].clients, 1.0)
    exec("selector.observe" + told, space)
    assert 0 < len(space["cohort"].clients) <= 8
    assert space["selector"].policy == make_policy(advice.policy)
    make_policy(advice.policy).check(make_scenario(advice.scenario).spec)


def test_the_guide_names_what_the_command_recommends() -> None:
    page = (Path(__file__).parents[2] / "docs" / "which-policy.md").read_text(encoding="utf-8")
    situations = page.split("## How to choose beta")[0]
    for aim in AIMS:
        name = advise(aim, num_clients=40, cohort_size=8).code.split("Selector(")[1].split("(")[0]
        assert f"fedroster.{name}>" in situations


def test_a_share_is_checked_and_half_of_the_equal_one_by_default() -> None:
    assert advise("short-rounds", num_clients=40, cohort_size=8).policy == "floor:beta=0.1"
    assert advise("short-rounds", num_clients=40, cohort_size=8, share=0.2).policy == "floor:beta=0.2"
    with pytest.raises(ConfigurationError, match=r"expected a share <= 0\.2"):
        advise("short-rounds", num_clients=40, cohort_size=8, share=0.3)
    with pytest.raises(ConfigurationError, match="aim is 'speed'"):
        advise("speed", num_clients=40, cohort_size=8)  # type: ignore[arg-type]


def test_the_command_prints_policy_and_code_and_asks_only_at_a_terminal() -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["choose", "--aim", "short-rounds", "--clients", "40", "--places", "8"])
    assert result.exit_code == 0
    assert result.stdout.startswith("floor:beta=0.1: ")
    unanswered = runner.invoke(app, ["choose", "--clients", "40", "--places", "8"])
    assert unanswered.exit_code == 2
    assert "expected --aim" in unanswered.stderr
