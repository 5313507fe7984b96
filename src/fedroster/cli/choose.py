"""``fedroster choose``: the decision guide of the documentation, as a command."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal, TypeAlias

import typer

from fedroster.cli.command import command
from fedroster.core.errors import ConfigurationError, InvalidInputError

Aim: TypeAlias = Literal["short-rounds", "most-updates", "private", "equal-turns"]
"""What a federation wants of its selection."""

_QUESTIONS = """What do you want of the selection?
  short-rounds   rounds that do not wait for slow clients, while each client keeps a share
  most-updates   as many updates as possible by a deadline, at edge servers or within budgets
  private        privacy accounting that counts on uniform random sampling
  equal-turns    the same number of rounds for each client
"""
_ADVICE = {
    "short-rounds": (
        "Floor(beta={beta:g})",
        "it keeps every client within two participations of its share after every round, and has nothing to tune.",
    ),
    "most-updates": (
        "PartialPooling(beta={beta:g})",
        "it learns which updates come in time, gets the most of them for each server's budget, and keeps shares.",
    ),
    "private": ("Uniform()", "only uniform draws over all members give amplification by sampling."),
    "equal-turns": ("RoundRobin()", "the client that waited longest goes first."),
}
_CODE = """from fedroster import {names}

selector = {selector}({made}, cohort_size={places}, clients=ids{servers})
cohort = selector.select()                       # or select(ids) of those that are available
selector.observe(cohort.round, times_s=seconds)  # seconds by id, as your server measured them
"""


@command()
def choose(
    aim: Annotated[Aim | None, typer.Option(help="What the selection is for; asked if not given.")] = None,
    clients: Annotated[int | None, typer.Option(min=1, help="Number of clients; asked if not given.")] = None,
    places: Annotated[int | None, typer.Option(min=1, help="Clients in a round; asked if not given.")] = None,
    share: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Share of the rounds that each client must have; half of the equal share, m / 2N."
        ),
    ] = None,
) -> None:
    """Ask about your clients and your aim; print a suitable policy, and the code."""
    from fedroster.catalogue import policy_of_label, policy_text

    if aim is None:
        sys.stderr.write(_QUESTIONS)
    wanted = aim or _asked("aim", str)
    number, size = clients or _asked("clients", int), places or _asked("places", int)
    if wanted not in _ADVICE:
        raise ConfigurationError(f"aim is {wanted!r}; expected one of {', '.join(_ADVICE)}")
    # Half of the equal share: every client stays in the model, half of the places are free for speed.
    beta = round(min(size / number, 1.0) / 2.0, 4) if share is None else share
    if number * beta > size:
        raise ConfigurationError(
            f"each of {number} clients cannot take part in {beta:g} of the rounds with {size} places; "
            f"expected a share <= {size / number:.3g}"
        )
    made, why = _ADVICE[wanted][0].format(beta=beta), _ADVICE[wanted][1]
    is_limited = wanted == "most-updates"
    selector, servers = ("EdgeSelector", ', budgets={"north": 4.0, "south": 4.0}') if is_limited else ("Selector", "")
    names = ", ".join(sorted([made.partition("(")[0], selector]))
    policy = policy_text(policy_of_label(made))
    code = _CODE.format(names=names, selector=selector, made=made, places=size, servers=servers)
    sys.stdout.write(f"{policy}: {why}\n\n{code}")
    scenario = "cocs/mnist" if is_limited else "rbcs-f/table-1"
    sys.stderr.write(f"\nTry it: fedroster simulate {scenario} --policy {policy} --policy random\n")


def _asked(what: str, kind: type) -> Any:
    """An answer from the terminal."""
    if not sys.stdin.isatty():
        raise InvalidInputError(f"{what} is not given; expected --{what}, because there is no terminal to ask at")
    return typer.prompt(what, type=kind, err=True)
