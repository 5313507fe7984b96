"""``fedroster choose`` recommends what the guide says, and what it prints runs."""

import itertools
from typing import get_args

import pytest

from commands import call
from fedroster import Floor, make_policy, make_scenario, simulate
from fedroster.cli.choose import End, Keep

ANSWERS = [*itertools.product(get_args(Keep), get_args(End))]


def chosen(*arguments: str, code: int = 0) -> tuple[str, str]:
    """What is printed, and what is said beside it."""
    result = call("choose", "--clients", 40, "--places", 8, *arguments, code=code)
    return result.stdout, " ".join(result.stderr.split())


@pytest.mark.parametrize("more", [(), ("--no-rounds",), ("--no-rounds", "--own-data")])
@pytest.mark.parametrize(("keep", "limit"), ANSWERS)
def test_the_code_runs_and_the_policy_is_of_the_catalogue(keep: str, limit: str, more: tuple[str, ...]) -> None:
    printed, beside = chosen("--keep", keep, "--limit", limit, *more)
    first, code = printed.split("\n\n", 1)
    setting, told = code.split("selector.observe", 1)
    space = {"ids": [f"client-{number}" for number in range(40)], "free": 3}
    exec(setting, space)
    space["seconds"] = dict.fromkeys(space["cohort"].clients, 1.0)
    exec("selector.observe" + told, space)
    spare = "when 8 have answered" in code
    assert 0 < len(space["cohort"].clients) <= (10 if spare else 8)
    assert ("at your deadline" in code) == (limit == "deadline" and keep not in ("turns", "chances"))
    assert ("UpdateMemory" in code) == ("--own-data" in more)
    policy = make_policy(first.partition(": ")[0])
    assert space["selector"].policy == policy
    tried = beside.partition("fedroster ")[2].split()
    assert tried[0] == ("plan" if spare else "simulate")
    policy.check(make_scenario(tried[1]).spec)
    assert ("0%" in tried) == (spare and keep == "nothing")  # a plan asked 10 % for each client of a share of 2 %


@pytest.mark.parametrize(("clients", "places", "limit"), [(10, 5, "slowest"), (10, 9, "tail"), (3, 7, "slowest")])
def test_what_is_to_be_tried_has_as_many_clients_and_places(clients: int, places: int, limit: str) -> None:
    told = ("--keep", "choices", "--limit", limit, "--clients", str(clients), "--places", str(places))
    tried = chosen(*told)[1].partition("fedroster ")[2].split()
    settings = dict(each.split("=") for before, each in itertools.pairwise(tried) if before == "--set")
    assert settings == {"num_clients": str(clients), "cohort_size": str(places)}  # 40 and 8, too few for such shares
    policy = make_policy(tried[tried.index("--policy") + 1])
    for _ in simulate(policy, make_scenario(tried[1], settings), rounds=2, seed=0):
        pass


def test_a_share_is_checked_and_half_of_the_equal_one_by_default() -> None:
    flat = ("--keep", "choices", "--limit", "slowest")
    assert chosen(*flat)[0].startswith("floor:beta=0.1: ")
    assert chosen(*flat, "--share", "0.2")[0].startswith("floor:beta=0.2: ")
    assert "expected a share <= 0.2" in chosen(*flat, "--share", "0.3", code=2)[1]
    assert "speed" in chosen("--keep", "speed", code=2)[1]


@pytest.mark.parametrize(
    ("more", "beta"),
    [
        (("--keep", "choices", "--clients", 1_000_000, "--places", 10), 5e-6),  # it was 0
        (("--keep", "nothing", "--clients", 1_000_000, "--places", 10), 5e-6),  # it was 0.02, too much for the places
        (("--keep", "nothing", "--clients", 400, "--places", 8), 0.02),
        (("--keep", "choices", "--clients", 3, "--places", 2, "--share", 0.6666666666), 0.6666666666),  # rounded up
    ],
)
def test_the_share_is_one_that_these_clients_can_have(more: tuple[object, ...], beta: float) -> None:
    printed, _ = chosen("--limit", "slowest", *map(str, more))
    assert make_policy(printed.partition(": ")[0]) == Floor(beta=beta)


def test_the_command_asks_only_at_a_terminal() -> None:
    assert "expected --keep" in chosen(code=2)[1]
    assert "expected --limit" in chosen("--keep", "choices", code=2)[1]
