"""``fedroster choose`` recommends what the guide says, and what it prints runs."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from fedroster import make_policy, make_scenario
from fedroster.cli import app
from fedroster.cli.choose import Aim

AIMS = get_args(Aim)


def chosen(*arguments: str, code: int = 0) -> tuple[str, str]:
    """What is printed, and what is said beside it."""
    result = CliRunner().invoke(app, ["choose", "--clients", "40", "--places", "8", *arguments])
    assert result.exit_code == code
    return result.stdout, " ".join(result.stderr.split())


@pytest.mark.parametrize("aim", AIMS)
def test_the_code_runs_and_the_policy_is_of_the_catalogue(aim: str) -> None:
    printed, beside = chosen("--aim", aim)
    first, code = printed.split("\n\n", 1)
    setting, told = code.split("selector.observe", 1)
    space = {"ids": [f"client-{number}" for number in range(40)]}
    exec(setting, space)
    space["seconds"] = dict.fromkeys(space["cohort"].clients, 1.0)
    exec("selector.observe" + told, space)
    assert 0 < len(space["cohort"].clients) <= 8
    policy = make_policy(first.partition(": ")[0])
    assert space["selector"].policy == policy
    policy.check(make_scenario(beside.partition("fedroster simulate ")[2].split()[0]).spec)


def test_the_guide_names_what_the_command_recommends() -> None:
    page = (Path(__file__).parents[2] / "docs" / "which-policy.md").read_text(encoding="utf-8")
    situations = page.split("## How to choose beta")[0]
    for aim in AIMS:
        name = chosen("--aim", aim)[0].split("Selector(")[1].split("(")[0]
        assert f".{name}>" in situations


def test_a_share_is_checked_and_half_of_the_equal_one_by_default() -> None:
    assert chosen("--aim", "short-rounds")[0].startswith("floor:beta=0.1: ")
    assert chosen("--aim", "short-rounds", "--share", "0.2")[0].startswith("floor:beta=0.2: ")
    assert "expected a share <= 0.2" in chosen("--aim", "short-rounds", "--share", "0.3", code=2)[1]
    assert "speed" in chosen("--aim", "speed", code=2)[1]


def test_the_command_asks_only_at_a_terminal() -> None:
    assert "expected --aim" in chosen(code=2)[1]
