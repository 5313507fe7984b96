"""Which policy for which federation: the decision guide of the documentation, as a function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedroster.core.checks import check_integer, check_number
from fedroster.core.errors import ConfigurationError

Aim: TypeAlias = Literal["short-rounds", "most-updates", "private", "equal-turns"]
"""What a federation wants of its selection: short rounds; as many updates as possible before a deadline, at servers or
within budgets; privacy that counts on random sampling; equal turns."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation.

    Attributes:
        policy: The policy as text, for the command line.
        why: One sentence.
        code: Python that runs it.
        scenario: Where it can be tried.
    """

    policy: str
    why: str
    code: str
    scenario: str


def usual_share(num_clients: int, cohort_size: int) -> float:
    """Half of the equal share, m / (2 N): every client stays in the model, half of the places are free for speed.

    Raises:
        ConfigurationError: If a number is no positive integer.
    """
    check_integer("clients", num_clients, least=1)
    check_integer("places", cohort_size, least=1)
    return round(min(cohort_size / num_clients, 1.0) / 2.0, 4)


def advise(aim: Aim, *, num_clients: int, cohort_size: int, share: float | None = None) -> Advice:
    """Recommend a policy.

    Args:
        aim: What the selection is for.
        num_clients: Number of clients N, >= 1.
        cohort_size: Places in a round m, >= 1.
        share: Share of the rounds that each client must take part in, in [0, m / N]; None for half of the equal share.

    Raises:
        ConfigurationError: If a number is out of its range, or the share cannot be kept.
    """
    beta = usual_share(num_clients, cohort_size) if share is None else share
    check_number("share", beta, least=0.0, most=1.0)
    if num_clients * beta > cohort_size:
        raise ConfigurationError(
            f"each of {num_clients} clients cannot take part in {beta:g} of the rounds with {cohort_size} places; "
            f"expected a share <= {cohort_size / num_clients:.3g}"
        )
    kinds = {
        "short-rounds": (
            f"floor:beta={beta:g}",
            f"Floor(beta={beta:g})",
            "it keeps every client within two participations of its share after every round, and has nothing to tune.",
        ),
        "most-updates": (
            f"partial-pooling:beta={beta:g}",
            f"PartialPooling(beta={beta:g})",
            "it learns which updates come in time, gets the most of them for each server's budget, and keeps shares.",
        ),
        "private": (
            "random",
            "Uniform()",
            "only uniform draws over all members give amplification by sampling.",
        ),
        "equal-turns": ("round-robin", "RoundRobin()", "the client that waited longest goes first."),
    }
    if aim not in kinds:
        raise ConfigurationError(f"aim is {aim!r}; expected one of {', '.join(kinds)}")
    policy, made, why = kinds[aim]
    is_limited = aim == "most-updates"
    selector, servers = ("EdgeSelector", ', budgets={"north": 4.0, "south": 4.0}') if is_limited else ("Selector", "")
    name = made.partition("(")[0]
    code = (
        f"from fedroster import {', '.join(sorted([name, selector]))}\n\n"
        f"selector = {selector}({made}, cohort_size={cohort_size}, clients=ids{servers})\n"
        "cohort = selector.select()                       # or select(ids) of those that are available\n"
        "selector.observe(cohort.round, times_s=seconds)  # seconds by id, as your server measured them"
    )
    return Advice(policy, why, code, "cocs/mnist" if is_limited else "rbcs-f/table-1")
